"""A store filled by another party: links are not followed, pipes block no reader, odd names stop no command."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.store import open_store
from orchestrator.store.transfer import copy_store
from tests.support.s3 import Server
from tests.support.shell import Here, Shell
from tests.support.waiting import HANGING

SECRET = b"a file outside of the store\n"
KEY = "ab" * 32
PLACES = {
    "a run's page": "runs/{run}/report.html",
    "a run's notes": "runs/{run}/details.json",
    "a run's log": "runs/{run}/events.jsonl",
    "a run's plan": "runs/{run}/plan.json",
    "a run's description": "runs/{run}/run.json",
    "a run's lease": "runs/{run}/lease.json",
    "what was verified": "runs/{run}/verified.json",
    "timings": "runs/{run}/timings.json",
    "a table": "runs/{run}/tables/summary/1.parquet",
    "a result": f"results/ab/{KEY}.arrow",
    "a checkpoint": f"states/{KEY}.state",
    "a traceback": f"failures/{KEY}.txt",
    "an output": f"outputs/{KEY}/stdout",
    "the marker": "engram-store.json",
    "digests": "digests.json",
}
READERS = {
    "verify": ("verify",),
    "status": ("status",),
    "runs": ("runs",),
    "results": ("results", "toys", "summary"),
    "logs": ("logs",),
    "the log of a job": ("logs", KEY),
    "report": ("report",),
    "explain": ("explain", "toys"),
    "resume": ("resume", "toys", "--address", "none"),
    "plan": ("plan", "toys", "parts=1"),
    "gc": ("gc",),
    "store copy": ("store", "copy", "engram-store", "copy"),
    "store sync": ("store", "sync", "engram-store", "copy"),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a finished run."""
    here = Here(tmp_path_factory.mktemp("finished"))
    here.env = {"ENGRAM_REPORT": "no", "MLFLOW_TRACKING_URI": "off"}
    here("run", "toys", "parts=1", "--address", "none")
    return here.folder / "engram-store"


def foreign(finished: Path, folder: Path, file_kind: str, put: Callable[[Path], object]) -> Path:
    """Copy the store to the folder and replace one file."""
    copy = folder / "engram-store"
    shutil.copytree(finished, copy)
    (run,) = (path.name for path in finished.glob("runs/toys*"))
    path = copy / file_kind.format(run=run)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        path.unlink()
    put(path)
    return path


@pytest.mark.parametrize("file_kind", PLACES)
def test_pipe_instead_of_a_file_blocks_no_reader(file_kind: str, finished: Path, tmp_path: Path) -> None:
    for name, command in READERS.items():
        folder = tmp_path / name
        folder.mkdir()
        foreign(finished, folder, PLACES[file_kind], os.mkfifo)
        here = Here(folder)
        here.env = {"ENGRAM_REPORT": "no", "MLFLOW_TRACKING_URI": "off"}
        completed = here.run(*command)
        assert "unexpected" not in completed.stderr, (name, completed)
        if name.startswith("store") and file_kind != "the marker":
            assert completed.returncode == (0 if file_kind == "digests" else 1), (name, completed)


@pytest.mark.parametrize(
    "file_kind", [kind for kind in PLACES if kind not in ("the marker", "digests", "a run's lease")]
)
@pytest.mark.parametrize("depth", ["a file", "its folder"])
def test_link_is_named_and_its_target_not_copied(depth: str, file_kind: str, finished: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    target = outside / Path(PLACES[file_kind]).name
    target.write_bytes(SECRET)
    path = foreign(finished, tmp_path, PLACES[file_kind], lambda path: path.symlink_to(target))
    if depth == "its folder":
        shutil.rmtree(path.parent)
        path.parent.symlink_to(outside, target_is_directory=True)
        path = path.parent
    for command in (("copy", "engram-store", "copy"), ("sync", "other", "engram-store")):
        here = Here(tmp_path)
        if command[0] == "sync":
            open_store(tmp_path / "other")
        completed = here("store", *command, code=1)
        assert str(path.relative_to(tmp_path)) in completed.stderr
        copied = (tmp_path / "copy").rglob("*"), (tmp_path / "other").rglob("*")
        assert not [file for files in copied for file in files if file.is_file() and file.read_bytes() == SECRET]
    assert [path.name for path in outside.iterdir()] == [target.name]


@pytest.mark.parametrize(
    "name", ["failures/../../x", "failures//x", "failures/..", f"failures/..%2f{KEY}.txt", "failures/a\\b"]
)
def test_invalid_name_does_not_stop_a_copy(name: str, s3: Server, tmp_path: Path) -> None:
    origin = open_store("s3://results/hostile")
    origin.write_failure(KEY, "it failed")
    s3.put(f"hostile/{name}", b"x")
    target = open_store(tmp_path / "deep" / "copy")
    done = copy_store(origin, target)
    assert target.failure(KEY) == "it failed"
    assert bool(done.irregular) == any(part in ("", "..") for part in name.split("/"))
    assert [path.name for path in tmp_path.rglob("*") if path.name == "x"] == []


HANG = """
import sys, threading
from orchestrator.cli import main
from orchestrator.store.local import LocalStore

def read_file(self, name):
    print("reading", flush=True)
    threading.Event().wait()

LocalStore.read_file = read_file
sys.argv = ["engram", "store", "copy", "engram-store", "copy"]
main()
"""


def test_blocked_read_ends_on_an_interrupt(finished: Path, shell: Shell, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "engram-store")
    run = shell.python("-c", HANG)
    assert run.stdout is not None
    assert run.stdout.readline() == "reading\n"
    os.kill(run.pid, signal.SIGTERM)
    out, messages = run.communicate(timeout=HANGING)
    assert run.returncode == 130, out + messages
    assert "stopped immediately" in messages
