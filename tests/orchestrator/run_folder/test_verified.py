"""A finished run is read again where a program has written to it since, and nowhere else."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import toys

from orchestrator.inspection.status import status
from orchestrator.run_folder.journal import Journal
from orchestrator.run_folder.notes import VERIFIED_FILE
from orchestrator.runs.lifecycle import resume, start
from orchestrator.runs.report import Report
from orchestrator.spec.resolve import Cell
from orchestrator.spec.specification import Execution
from orchestrator.store import Store, durability, files

HERE = Execution(address="none", mlflow="off", report=False)


@pytest.fixture(autouse=True)
def _on_ext4(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk of the tests may be one whose stamps are not known to be certain, as that of a container."""
    monkeypatch.setattr(durability, "file_system", lambda *_: "ext4")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The results that are verified, by their files' names."""
    names: list[str] = []
    quick_read = files.quick_read
    monkeypatch.setattr(files, "quick_read", lambda path: (names.append(Path(path).stem), quick_read(path))[1])
    return names


def wait_for_stamps(folder: Path) -> None:
    while not all(files.stamps(map(str, folder.rglob("*.arrow")))) or not all(
        files.stamps(map(str, folder.rglob("*.parquet")))
    ):
        time.sleep(0.01)


def finish(store: Store, cells: int = 1) -> Report:
    """A run, or a sweep, that has finished, and was started once more when no file was new any longer."""
    report = start([Cell("toys", toys.Config(parts=2 + cell)) for cell in range(cells)], store, HERE)
    wait_for_stamps(Path(store.location))
    again = resume(report.run, store, HERE)
    assert (report.jobs["planned"], 0) == (again.jobs["stored"], again.jobs["done"])
    return again


def folder_of(store: Store, report: Report) -> Path:
    return Path(store.location) / "runs" / report.run


@pytest.mark.parametrize("cells", [1, 2])
def test_a_finished_run_that_nothing_has_written_to_is_not_read_again(
    store: Store, read: list[str], cells: int
) -> None:
    report = finish(store, cells)
    run = report.cells[0] if report.cells else report
    log = (folder_of(store, run) / "events.jsonl").read_bytes()
    read.clear()
    told: list[str] = []
    again = resume(report.run, store, HERE, lambda event: told.append(event["event"]))
    assert ([], log) == (read, (folder_of(store, run) / "events.jsonl").read_bytes())
    assert told == ["planned", "finished"]
    assert (report.state, report.jobs, report.roots) == (again.state, again.jobs, again.roots)
    assert report.summary == again.summary


def flip(path: Path) -> None:
    """Flip a bit, and leave the time of the change as it was, as far as programs can."""
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(bytes(data))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("damage", [flip, Path.unlink, lambda path: os.truncate(path, 200)], ids=["bit", "gone", "cut"])
@pytest.mark.parametrize("what", ["result", "part", "log", VERIFIED_FILE])
def test_what_is_damaged_is_found_and_made_anew(
    store: Store, read: list[str], what: str, damage: Callable[[Path], object]
) -> None:
    report = finish(store)
    key = report.roots["parts"][1]
    folder = folder_of(store, report)
    (part,) = (folder / "tables" / "parts").glob("*.parquet")
    result = Path(store.location) / "results" / key[:2] / f"{key}.arrow"
    path = {"result": result, "part": part, "log": folder / "events.jsonl", VERIFIED_FILE: folder / VERIFIED_FILE}[what]
    before = part.read_bytes()
    read.clear()
    damage(path)
    again = resume(report.run, store, HERE)
    expected = {"result": {key}, VERIFIED_FILE: set(report.roots["parts"])}.get(what, set())
    assert expected == {name for name in read if name in report.roots["parts"]}
    assert (report.state, report.summary) == (again.state, again.summary)
    assert int(what == "result") == again.jobs["done"]
    assert (what == "result" and damage is not Path.unlink) == bool(again.damaged)
    assert before == part.read_bytes()
    assert list(store.verify(store.keys())) == []
    assert status(Journal(folder), store).state == "finished"


def test_all_is_read_again_where_stamps_are_not_certain(
    store: Store, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durability, "file_system", lambda *_: "fuse.sshfs")
    other = type(store)(Path(store.location))
    report = finish(other)
    read.clear()
    resume(report.run, other, HERE)
    assert store.keys() == set(read)
