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
    """The modules that the names refer to in a process whose path begins with a folder of shadowing modules."""
    (folder / "orchestrator.py").write_text("raise RuntimeError('the wrong module')\n")
    (folder / "tasks.py").write_text("mine = True\n")
    (folder / "ours_no_more.py").touch()
    location = ROOT / "orchestrator" / "executors" / "worker.py"
    script = SCRIPT.format(worker=str(location), root=str(ROOT), before=before)
    environment = {}
    for name, value in os.environ.items():
        if name != "PYTHONPATH":
            environment[name] = value
    ended = subprocess.run([sys.executable, "-c", script], cwd=folder, env=environment, capture_output=True, text=True)
    assert ended.stderr == ""
    return ended.stdout.split()


def test_working_directory_does_not_shadow_our_modules(tmp_path: Path) -> None:
    calls, job, user_module = pinned(tmp_path)
    assert str(ROOT / "orchestrator" / "executors" / "calls.py") == calls
    assert str(ROOT / "tasks" / "contract" / "job.py") == job
    assert tmp_path / "ours_no_more.py" == Path(user_module)


def test_wrongly_loaded_module_is_dropped(tmp_path: Path) -> None:
    assert str(ROOT / "tasks" / "contract" / "job.py") == pinned(tmp_path, before="import tasks; assert tasks.mine")[1]


@pytest.fixture
def restored_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undoes the changes of a worker to its process."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    handler = signal.getsignal(signal.SIGINT)
    monkeypatch.setenv("ENGRAM_TOLD", "before")
    yield
    signal.signal(signal.SIGINT, handler)


@pytest.mark.usefixtures("restored_process")
def test_worker_stores_results_and_ignores_interrupts(tmp_path: Path) -> None:
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


@pytest.mark.usefixtures("restored_process")
def test_import_error_in_a_worker_gives_one_line(tmp_path: Path) -> None:
    run = worker.entry(str(ROOT), {}, open_store(tmp_path / "store").location)
    of_another_installation = b"cnowhere.to_be_found\nTask\n."
    message = f"{socket.gethostname()}: ModuleNotFoundError: No module named 'nowhere'"
    assert message == run(of_another_installation)


def test_missing_folder_leaves_the_path_unchanged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = list(sys.path)
    worker.pin(str(tmp_path))
    assert before == sys.path
