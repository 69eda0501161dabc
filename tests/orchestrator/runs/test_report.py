"""A run is finished only if every result exists and is sound, and its log and tables are complete."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import toys

from orchestrator.cli import verdict
from orchestrator.errors import Unwritable
from orchestrator.inspection.status import status
from orchestrator.run_folder.journal import Journal
from orchestrator.runs.lifecycle import resume, start
from orchestrator.runs.report import Report
from orchestrator.spec.resolve import Cell
from orchestrator.spec.specification import Execution
from orchestrator.store import Store, WriteEffect, open_store
from orchestrator.store.local import LocalStore

HERE = Execution(address="none", mlflow="off", report=False)
PAUSED = ("paused", 1)


def run(store: Store, events: list[Mapping[str, Any]] | None = None, **fields: Any) -> Report:
    observe = None if events is None else events.append
    return start([Cell("toys", toys.Config(**fields))], store, HERE, observe)


def state_and_code(report: Report) -> tuple[str, int]:
    return report.state, report.exit_code


def result_path(store: Store, key: str) -> Path:
    return Path(store.location) / "results" / key[:2] / f"{key}.arrow"


def computation_count(folder: Path) -> int:
    """The number of computations of parts, including repetitions."""
    return len((folder / "computed.log").read_text().split())


def rows(store: Store, report: Report, name: str = "parts") -> list[int]:
    column = {"parts": "number", "summary": "estimate"}[name]
    table = pq.read_table(Path(store.location) / "runs" / report.run / "tables" / name)
    return sorted(table[column].to_pylist())


def refusing(
    refuses: Callable[[Path, Any], bool], number: int, act: Callable[..., Any] = os.open
) -> Callable[..., Any]:
    """A version of `os.open`, or of a similar function, that fails for some paths. The second argument is the flags."""

    def refuse(path: Any, *arguments: Any, **more: Any) -> Any:
        if isinstance(path, str | os.PathLike) and refuses(Path(path), arguments[0] if arguments else 0):
            raise OSError(number, os.strerror(number), str(path))
        return act(path, *arguments, **more)

    return refuse


# Results


@pytest.mark.parametrize("target", ["/nowhere", "itself"])
def test_dangling_link_is_quarantined_and_result_recomputed(store: Store, tmp_path: Path, target: str) -> None:
    report = run(store, folder=str(tmp_path))
    path = result_path(store, report.roots["parts"][0])
    path.unlink()
    path.symlink_to(path.name if target == "itself" else target)
    repeated = run(store, folder=str(tmp_path))
    assert state_and_code(repeated) == ("finished", 0)
    assert repeated.jobs["done"] == 1
    assert computation_count(tmp_path) == 7
    assert path.is_file()
    assert list(store.verify(store.keys())) == []


def test_unreadable_result_pauses_the_run(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = run(store, folder=str(tmp_path))
    path = result_path(store, report.roots["parts"][0])
    path.touch()  # one that nothing has touched is not read again
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refusing(lambda opened_path, _: opened_path == path, errno.EACCES))
        events: list[Mapping[str, Any]] = []
        repeated = run(store, events, folder=str(tmp_path))
    assert state_and_code(repeated) == PAUSED
    assert repeated.note == f"cannot read {path}: Permission denied"
    assert repeated.jobs == {"planned": 7, "stored": 6, "done": 0, "failed": 0}
    event_kinds = [event["event"] for event in events if event["event"] != "step"]
    assert event_kinds == ["planned", "paused"]  # no recomputation is announced
    assert status(Journal(store.folder("runs", report.run)), store).state == "paused"
    assert state_and_code(run(store, folder=str(tmp_path))) == ("finished", 0)
    assert computation_count(tmp_path) == 6


def test_damaged_result_without_quarantine_pauses_the_run(store: Store, tmp_path: Path) -> None:
    report = run(store, folder=str(tmp_path))
    key = report.roots["parts"][0]
    data = bytearray(result_path(store, key).read_bytes())
    data[len(data) // 3] ^= 1
    result_path(store, key).write_bytes(data)
    quarantine = Path(store.location) / "quarantine"
    quarantine.rmdir()
    quarantine.touch()
    with pytest.raises(Unwritable):  # at once, if the store is opened again
        open_store(store.location)
    repeated = resume(report.run, store, HERE)
    assert state_and_code(repeated) == PAUSED
    assert f"result {key} is damaged" in repeated.note
    assert str(quarantine) in repeated.note or "cannot be set aside" in repeated.note
    quarantine.unlink()
    assert state_and_code(run(open_store(store.location), folder=str(tmp_path))) == ("finished", 0)
    assert computation_count(tmp_path) == 7


def test_cell_finishes_despite_anothers_unreadable_result(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [Cell("toys", toys.Config(parts=2, first=first)) for first in (0, 10)]
    path = result_path(store, start(cells, store, HERE).cells[1].roots["parts"][0])
    path.touch()  # one that nothing has touched is not read again
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refusing(lambda opened_path, _: opened_path == path, errno.EACCES))
        swept = start(cells, store, HERE)
    assert swept.state == "paused"
    assert [cell.state for cell in swept.cells] == ["finished", "paused"]


def test_end_of_a_sweep_lists_the_store_constantly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    list_calls: list[str] = []
    keys = LocalStore.keys
    monkeypatch.setattr(LocalStore, "keys", lambda self: list_calls.append(self.location) or keys(self))
    for cells in (2, 6):
        store = open_store(str(tmp_path / str(cells)))
        start(
            [Cell("toys", toys.Config(parts=1, label=str(i))) for i in range(cells)], store, replace(HERE, report=True)
        )
    few = list_calls.count(str(tmp_path / "2"))
    many = list_calls.count(str(tmp_path / "6"))
    assert few == many <= 7


def test_unstarted_cell_is_not_called_finished(store: Store) -> None:
    cells = []
    for first in (0, 10):
        cells.append(Cell("toys", toys.Config(parts=1, first=first, trouble="raise", at=first)))
    swept = start(cells, store, replace(HERE, fail_fast=True))
    assert [(cell.state, cell.jobs["stored"]) for cell in swept.cells] == [("failed", 0), ("interrupted", 0)]


# Commits that are refused


@pytest.mark.parametrize("number", [errno.EXDEV, errno.ENAMETOOLONG, errno.EINVAL, errno.EMLINK, errno.ETXTBSY])
def test_refused_commit_pauses_the_run_at_once(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refusing(lambda path, _: "tmp" in path.parts, number, os.link))
        report = run(store, folder=str(tmp_path))
    assert state_and_code(report) == PAUSED
    assert "cannot write" in report.note
    assert f"({errno.errorcode[number]})" in report.note
    assert computation_count(tmp_path) == 1
    assert state_and_code(run(store, folder=str(tmp_path))) == ("finished", 0)
    assert computation_count(tmp_path) == 7


# Logs and tables


def full(store: Store) -> Callable[[Path, int], bool]:
    """Matches writes to a run's log, as on a full disk."""
    runs = Path(store.location) / "runs"
    return lambda path, flags: path.is_relative_to(runs) and path.name == "events.jsonl" and bool(flags & os.O_RDWR)


def test_unwritable_log_pauses_the_run(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:

        def fill(event: Mapping[str, Any]) -> None:
            if event["event"] == "planned":
                patch.setattr(os, "open", refusing(full(store), errno.ENOSPC))

        report = start([Cell("toys", toys.Config(folder=str(tmp_path)))], store, HERE, fill)
    log = Path(store.location) / "runs" / report.run / "events.jsonl"
    assert state_and_code(report) == PAUSED
    assert report.note == f"cannot write {log}: No space left on device"
    assert report.jobs["stored"] == 7
    repeated = run(store, folder=str(tmp_path))
    assert state_and_code(repeated) == ("finished", 0)
    assert computation_count(tmp_path) == 6
    assert list(range(6)) == rows(store, repeated)


def test_unwritable_tables_pause_the_run(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(pq, "write_table", full_disk)
        report = run(store, folder=str(tmp_path))
    assert state_and_code(report) == PAUSED
    assert f"cannot write {store.location}/runs/{report.run}/tables/" in report.note
    assert "No space left on device" in report.note
    assert status(Journal(store.folder("runs", report.run)), store).state == "paused"
    repeated = run(store, folder=str(tmp_path))
    assert state_and_code(repeated) == ("finished", 0)
    assert computation_count(tmp_path) == 6
    assert list(range(6)) == rows(store, repeated)


def full_disk(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_delayed_log_entries_keep_their_order(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    done = []
    with monkeypatch.context() as patch:

        def fill(event: Mapping[str, Any]) -> None:
            if event["event"] == "done":
                done.append(event["key"])
                if len(done) == 2:
                    patch.setattr(os, "open", refusing(full(store), errno.ENOSPC))
                if len(done) == 5:
                    patch.undo()

        report = start([Cell("toys", toys.Config())], store, HERE, fill)
    assert state_and_code(report) == ("finished", 0)
    events = list(Journal(Path(store.location) / "runs" / report.run).events())
    assert done == [event["key"] for event in events if event["event"] == "done"]
    kinds = [event["event"] for event in events if event["event"] not in ("ready", "running", "step")]
    assert kinds == ["started", *["done"] * 7, "finished"]


def test_results_of_other_runs_are_in_the_tables(store: Store) -> None:
    spare = run(store, parts=6)
    stored_tables = {key: store.read(key) for key in spare.roots["parts"]}
    for key in (*stored_tables, *spare.roots["summary"]):
        result_path(store, key).unlink()
    shutil.rmtree(Path(store.location) / "runs" / spare.run)

    def elsewhere(event: Mapping[str, Any]) -> None:
        if event["event"] == "planned":
            store.write(spare.roots["parts"][5], stored_tables[spare.roots["parts"][5]], {})

    report = start([Cell("toys", toys.Config())], store, HERE, elsewhere)
    assert list(range(6)) == rows(store, report)


# Results that differ when computed again


def test_differing_result_is_reported_with_its_location(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    differing_table = pa.table({"number": pa.array([5], pa.int64()), "pid": pa.array([0], pa.int64())})
    events: list[Mapping[str, Any]] = []

    def observe(event: Mapping[str, Any]) -> None:
        events.append(event)
        if event["event"] == "done" and not any(earlier["event"] == "done" for earlier in events[:-1]):
            key = Journal(store.folder("runs", name)).roots()["parts"][5]
            assert store.write(key, differing_table, {}) == WriteEffect.NEW

    name = run(open_store(str(Path(store.location).with_name("other")))).run
    report = start([Cell("toys", toys.Config())], store, HERE, observe)
    assert state_and_code(report) == ("finished", 0)
    assert report.differing == 1
    assert len(list((Path(store.location) / "conflicts").glob("*.arrow"))) == 1
    verdict.display_answer(report, store.location, json=True)
    assert verdict.display_end(report, json=True) == 0
    messages = capsys.readouterr().err
    assert "1 result differed when computed again" in messages
    assert f"{store.location}/conflicts" in messages
