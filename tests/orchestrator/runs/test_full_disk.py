"""On a disk that fills up, the final line of a run and the later output of `status` show equal counts."""

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
    """A small separate disk with room for few names."""
    mount_point = tmp_path / "disk"
    mount_point.mkdir()
    subprocess.check_call(["mount", "-t", "tmpfs", "-o", "size=4m,nr_inodes=400", "none", str(mount_point)])
    yield mount_point
    subprocess.check_call(["umount", "-l", str(mount_point)])


def run(store: Store, observe: Any = None) -> Report:
    execution = Execution(address="none", mlflow="off", report=False)
    return start([Cell("toys", toys.Config())], store, execution, observe)


def counts(store: Store, report: Report, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """The job counts in the run's last line and in the line of `status`."""
    run_status = status(Journal(store.folder("runs", report.run)), store)
    capsys.readouterr()
    verdict.display_end(report, False)
    last = capsys.readouterr().out.splitlines()[-1]
    return tuple(line.partition(": ")[2].partition(" jobs")[0] for line in (last, verdict.status_line(run_status)))  # type: ignore[return-value]


def test_damaged_result_on_full_disk_is_not_counted(disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = open_store(str(disk / "store"))

    def fill(event: Mapping[str, Any]) -> None:
        """Damage a result during the check, when there is no room for a lock to quarantine it."""
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
    resumed = run(store)
    assert resumed.state == "finished"
    assert resumed.jobs["done"] == 1
    assert counts(store, resumed, capsys) == ("7 of 7", "7 of 7")


def test_stored_result_with_refused_write_is_counted(
    disk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_store(str(disk / "store"))
    progress = RunProgress()
    write = LocalStore.write

    def write_and_refuse(self: LocalStore, *arguments: Any) -> None:
        write(self, *arguments)
        raise Unwritable("cannot write: No space left on device (ENOSPC)")  # the folder could not be synced

    monkeypatch.setattr(LocalStore, "write", write_and_refuse)
    report = run(store, progress.take)
    assert report.state == "paused"
    assert report.jobs["done"] == 1
    assert progress.stored_now == 1
    assert counts(store, report, capsys) == ("1 of 7", "1 of 7")


def test_old_traceback_that_cannot_be_removed_is_ignored(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise Unwritable("cannot write failures: Read-only file system (EROFS)")

    monkeypatch.setattr(LocalStore, "clear_failure", refuse)
    assert run(open_store(str(disk / "store"))).state == "finished"
