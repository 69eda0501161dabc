"""On a disk that fills up, what the run says at its end and what `status` says later are the same counts."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import toys

from orchestrator.cli import verdict
from orchestrator.errors import Unwritable
from orchestrator.inspection.status import status
from orchestrator.run_folder.journal import Journal
from orchestrator.run_folder.progress import RunProgress
from orchestrator.runs.lifecycle import start
from orchestrator.runs.report import Report
from orchestrator.spec.resolve import Cell
from orchestrator.spec.specification import Execution
from orchestrator.store import Store, open_store
from orchestrator.store.local import LocalStore


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own, with few names."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.check_call(["mount", "-t", "tmpfs", "-o", "size=4m,nr_inodes=400", "none", str(place)])
    yield place
    subprocess.check_call(["umount", "-l", str(place)])


def run(store: Store, observe: Any = None) -> Report:
    execution = Execution(address="none", mlflow="off", report=False)
    return start([Cell("toys", toys.Config())], store, execution, observe)


def counts(store: Store, report: Report, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """What the run's last line and the line of `status` say of its jobs."""
    seen = status(Journal(store.folder("runs", report.run)), store)
    capsys.readouterr()
    verdict.display(report, store.location, False)
    last = capsys.readouterr().out.splitlines()[-1]
    return tuple(line.partition(": ")[2].partition(" jobs")[0] for line in (last, verdict.status_line(seen)))  # type: ignore[return-value]


def test_a_damaged_result_that_a_full_disk_keeps_in_its_place_counts_in_neither_line(
    disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_store(str(disk / "store"))

    def fill(event: Mapping[str, Any]) -> None:
        """Damage a result as it is checked, when there is no room for a lock to set it aside with."""
        if event.get("step") == "checking stored results" and not (disk / "filling").exists():
            path = sorted(disk.glob("store/results/*/*.arrow"))[0]
            path.write_bytes(path.read_bytes()[:-100] + bytes(100))
            (disk / "filling").mkdir()
            with suppress(OSError):
                for number in range(400):
                    (disk / "filling" / str(number)).touch()

    report = run(store, fill)
    assert report.state == "paused"
    assert "cannot be set aside" in report.note
    assert counts(store, report, capsys) == ("6 of 7", "6 of 7")
    for path in (disk / "filling").iterdir():
        path.unlink()
    again = run(store)
    assert (again.state, again.jobs["done"]) == ("finished", 1)
    assert counts(store, again, capsys) == ("7 of 7", "7 of 7")


def test_a_result_that_is_stored_though_its_write_is_refused_counts_in_the_progress_too(
    disk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store, progress = open_store(str(disk / "store")), RunProgress()
    write = LocalStore.write

    def write_and_refuse(self: LocalStore, *arguments: Any) -> None:
        write(self, *arguments)
        raise Unwritable("cannot write: No space left on device (ENOSPC)")  # the folder could not be synced

    monkeypatch.setattr(LocalStore, "write", write_and_refuse)
    report = run(store, progress.take)
    assert (report.state, report.jobs["done"], progress.stored_now) == ("paused", 1, 1)
    assert counts(store, report, capsys) == ("1 of 7", "1 of 7")


def test_an_old_traceback_that_cannot_be_removed_stops_nothing(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise Unwritable("cannot write failures: Read-only file system (EROFS)")

    monkeypatch.setattr(LocalStore, "clear_failure", refuse)
    assert run(open_store(str(disk / "store"))).state == "finished"
