"""A finished run is read again only if a program has written to it since."""

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
def pretend_ext4(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests may run on a disk, such as a container's, whose time stamps are not reliable."""
    monkeypatch.setattr(durability, "file_system", lambda *_: "ext4")


@pytest.fixture
def verified_names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The verified results, by the names of their files."""
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
    """A finished run or sweep, resumed once all its files are old."""
    report = start([Cell("toys", toys.Config(parts=2 + cell)) for cell in range(cells)], store, HERE)
    wait_for_stamps(Path(store.location))
    resumed = resume(report.run, store, HERE)
    assert resumed.jobs["stored"] == report.jobs["planned"]
    assert resumed.jobs["done"] == 0
    return resumed


def folder_of(store: Store, report: Report) -> Path:
    return Path(store.location) / "runs" / report.run


@pytest.mark.parametrize("cells", [1, 2])
def test_untouched_finished_run_is_not_read_again(store: Store, verified_names: list[str], cells: int) -> None:
    report = finish(store, cells)
    run = report.cells[0] if report.cells else report
    log = (folder_of(store, run) / "events.jsonl").read_bytes()
    verified_names.clear()
    event_kinds: list[str] = []
    resumed = resume(report.run, store, HERE, lambda event: event_kinds.append(event["event"]))
    assert verified_names == []
    assert (folder_of(store, run) / "events.jsonl").read_bytes() == log
    assert event_kinds == ["planned", "finished"]
    assert report.state == resumed.state
    assert report.jobs == resumed.jobs
    assert report.roots == resumed.roots
    assert report.summary == resumed.summary


def flip(path: Path) -> None:
    """Flip a bit and restore the time of the change, like a program that hides it."""
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(bytes(data))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("damage", [flip, Path.unlink, lambda path: os.truncate(path, 200)], ids=["bit", "gone", "cut"])
@pytest.mark.parametrize("damaged_file", ["result", "part", "log", VERIFIED_FILE])
def test_damaged_file_is_found_and_rewritten(
    store: Store, verified_names: list[str], damaged_file: str, damage: Callable[[Path], object]
) -> None:
    report = finish(store)
    key = report.roots["parts"][1]
    folder = folder_of(store, report)
    (part,) = (folder / "tables" / "parts").glob("*.parquet")
    result = Path(store.location) / "results" / key[:2] / f"{key}.arrow"
    path = {"result": result, "part": part, "log": folder / "events.jsonl", VERIFIED_FILE: folder / VERIFIED_FILE}[
        damaged_file
    ]
    before = part.read_bytes()
    verified_names.clear()
    damage(path)
    resumed = resume(report.run, store, HERE)
    expected = {"result": {key}, VERIFIED_FILE: set(report.roots["parts"])}.get(damaged_file, set())
    assert expected == {name for name in verified_names if name in report.roots["parts"]}
    assert report.state == resumed.state
    assert report.summary == resumed.summary
    assert int(damaged_file == "result") == resumed.jobs["done"]
    assert (damaged_file == "result" and damage is not Path.unlink) == bool(resumed.damaged)
    assert before == part.read_bytes()
    assert list(store.verify(store.keys())) == []
    assert status(Journal(folder), store).state == "finished"


def test_everything_is_read_with_unreliable_stamps(
    store: Store, verified_names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durability, "file_system", lambda *_: "fuse.sshfs")
    other_store = type(store)(Path(store.location))
    report = finish(other_store)
    verified_names.clear()
    resume(report.run, other_store, HERE)
    assert store.keys() == set(verified_names)
