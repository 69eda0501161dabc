from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.executors import worker
from orchestrator.executors.calls import Done
from orchestrator.store import open_store
from tests.orchestrator.executors.jobs import call, key_of

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = """
import importlib.util, sys
location = {worker!r}
spec = importlib.util.spec_from_file_location("by_value", location)
worker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(worker)
{before}
worker.pin({root!r})
import orchestrator.executors.calls, tasks.contract.job, ours_no_more
print(orchestrator.executors.calls.__file__, tasks.contract.job.__file__, ours_no_more.__file__)
"""


def pinned(folder: Path, before: str = "") -> list[str]:
    """What the names mean in a process whose path begins with a folder of modules named like ours."""
    (folder / "orchestrator.py").write_text("raise RuntimeError('the wrong module')\n")
    (folder / "tasks.py").write_text("mine = True\n")
    (folder / "ours_no_more.py").touch()
    location = ROOT / "orchestrator" / "executors" / "worker.py"
    script = SCRIPT.format(worker=str(location), root=str(ROOT), before=before)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run([sys.executable, "-c", script], cwd=folder, env=environment, capture_output=True, text=True)
    assert ended.stderr == ""
    return ended.stdout.split()


def test_modules_of_the_working_directory_do_not_shadow_ours(tmp_path: Path) -> None:
    calls, job, theirs = pinned(tmp_path)
    assert [str(ROOT / "orchestrator" / "executors" / "calls.py"), str(ROOT / "tasks" / "contract" / "job.py")] == [
        calls,
        job,
    ]
    assert tmp_path / "ours_no_more.py" == Path(theirs)


def test_what_was_wrongly_loaded_before_is_dropped(tmp_path: Path) -> None:
    assert str(ROOT / "tasks" / "contract" / "job.py") == pinned(tmp_path, before="import tasks; assert tasks.mine")[1]


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a worker does to its process, undone."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    handler = signal.getsignal(signal.SIGINT)
    monkeypatch.setenv("ENGRAM_TOLD", "before")
    yield
    signal.signal(signal.SIGINT, handler)


@pytest.mark.usefixtures("kept")
def test_a_worker_commits_before_it_answers_and_heeds_no_interrupt(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    run = worker.entry(str(ROOT), {"ENGRAM_TOLD": "by the driver"}, store.location)
    for number in (1, 2):
        answer = run(pickle.dumps(call("double", 1.0, first=number)))
        assert isinstance(answer, bytes)
        [outcome] = pickle.loads(answer).outcomes
        assert isinstance(outcome, Done)
        assert store.read(key_of(number))["value"].to_pylist() == [2.0]
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    assert os.environ["ENGRAM_TOLD"] == "by the driver"


@pytest.mark.usefixtures("kept")
def test_what_a_worker_cannot_import_it_says_in_a_line(tmp_path: Path) -> None:
    run = worker.entry(str(ROOT), {}, open_store(tmp_path / "store").location)
    of_another_installation = b"cnowhere.to_be_found\nTask\n."
    said = f"{socket.gethostname()}: ModuleNotFoundError: No module named 'nowhere'"
    assert said == run(of_another_installation)


def test_where_there_is_no_such_folder_the_path_decides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = list(sys.path)
    worker.pin(str(tmp_path))
    assert before == sys.path
