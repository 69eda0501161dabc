"""The points of a run's charts depend on its log alone, and a longer log only adds points.

Values for MLflow have valid names, exact numbers and no path of this machine.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from orchestrator.inspection.disclosure import Disclosure
from orchestrator.run_folder.journal import Journal, MergedLog
from orchestrator.spec.config_parts import plain
from orchestrator.spec.specification import absolute_uri
from orchestrator.store import open_store
from orchestrator.store.provenance import now
from orchestrator.tracking import artifacts, facts
from orchestrator.tracking.facts import Input, Point, ProgressLog
from orchestrator.tracking.tracking_store import Target, run_list
from tasks.audits.density.measures import losses
from tasks.audits.unique_feature import UniqueFeature
from tasks.audits.unique_feature.measures import learning_curve
from tasks.contract import schemas
from tasks.datasets.dataset import Dataset
from tests.support.settings import with_settings

ZERO = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
SECRET = "parquet:/home/ann/wards/7@" + "a" * 64


def event_at(when: float, event: str, **more: Any) -> dict[str, Any]:
    stamp = datetime.fromtimestamp(ZERO + when, UTC).isoformat(timespec="milliseconds")
    return {"time": stamp, "event": event, **more}


def started(seconds: float, stored_count: int = 0) -> list[dict[str, Any]]:
    first = event_at(seconds, "started", planned=10, stored=stored_count, tasks={"train": 10})
    return [first, *(event_at(seconds, "stored", key=f"{n:064x}", task="train") for n in range(stored_count))]


def done(seconds: float, number: int) -> dict[str, Any]:
    return event_at(seconds, "done", key=f"{number:064x}", task="train", models=1, seconds=1.0)


def progress_log(folder: Path, events: list[dict[str, Any]]) -> ProgressLog:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "events.jsonl").unlink(missing_ok=True)
    Journal(folder).append(events)
    log = ProgressLog(MergedLog([Journal(folder)]))
    log.read()
    return log


def counts(points: list[Point]) -> list[tuple[int, float, int]]:
    return [(point.step, point.time - ZERO, point.done) for point in points]


FIRST = [*started(0), *(done(n + 1, n) for n in range(8)), event_at(9, "interrupted", jobs={})]
SECOND = [*started(20, stored_count=8), done(22, 8), done(26, 9), event_at(27, "finished", jobs={})]
IDLE = [*started(30, stored_count=10), event_at(31, "finished", jobs={})]


def test_points_come_every_five_seconds_and_at_ends(tmp_path: Path) -> None:
    log = progress_log(tmp_path, FIRST + SECOND)
    assert counts(log.points) == [(0, 0, 0), (1, 5, 5), (2, 9, 8), (3, 20, 8), (4, 26, 10)]
    assert log.state == "finished"
    assert log.began == ZERO
    assert log.ended == ZERO + 27
    assert log.points[1].models_per_minute == 60.0
    assert log.points[0].models_per_minute is None


def test_longer_log_only_adds_points(tmp_path: Path) -> None:
    events = FIRST[:7] + SECOND + IDLE + FIRST  # the first start was killed
    all_points = progress_log(tmp_path, events).points
    for length in range(len(events)):
        part = progress_log(tmp_path, events[:length]).points
        assert all_points[: len(part)] == part


def test_log_read_in_pieces_gives_equal_points(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    pieces = ProgressLog(MergedLog([journal]))
    for event in FIRST + SECOND:
        journal.append([event])
        pieces.read()
    assert progress_log(tmp_path, FIRST + SECOND).points == pieces.points


def test_start_without_work_adds_no_point(tmp_path: Path) -> None:
    busy = progress_log(tmp_path, FIRST + SECOND)
    idle = progress_log(tmp_path, FIRST + SECOND + IDLE + IDLE)
    assert busy.points == idle.points
    assert busy.ended == idle.ended


def test_fully_stored_run_has_one_point(tmp_path: Path) -> None:
    assert counts(progress_log(tmp_path, [*started(0, stored_count=10), event_at(1, "finished", jobs={})]).points) == [
        (0, 1, 10)
    ]


def test_counts_of_a_killed_start_appear_later(tmp_path: Path) -> None:
    killed = [*started(0), done(1, 0), done(2, 1)]
    assert counts(progress_log(tmp_path, killed).points) == [(0, 0, 0)]
    assert progress_log(tmp_path, killed).state is None
    assert counts(
        progress_log(
            tmp_path, [*killed, *started(9, stored_count=2), done(10, 2), event_at(11, "paused", jobs={})]
        ).points
    ) == [(0, 0, 0), (1, 2, 2), (2, 9, 2), (3, 11, 3)]


def test_cells_share_one_log_without_repetitions(tmp_path: Path) -> None:
    first, second = Journal(tmp_path / "one"), Journal(tmp_path / "other")
    for journal in (first, second):
        journal.folder.mkdir()
    alone = [*started(-50), done(-40, 0), event_at(-39, "finished", jobs={})]  # before the sweep was made
    first.append([*alone, *started(0, stored_count=2), done(1, 5), done(7, 6), event_at(9, "finished", jobs={})])
    second.append([*started(0, stored_count=3), done(1, 5), done(8, 7), event_at(9.1, "finished", jobs={})])
    merged_log = ProgressLog(MergedLog([first, second], event_at(0, "")["time"]))
    merged_log.read()
    assert counts(merged_log.points) == [(0, 0, 3), (1, 7, 5), (2, 9, 6)]
    assert merged_log.began == ZERO
    assert merged_log.ended == ZERO + 9.1


def test_events_that_may_be_preceded_are_awaited(tmp_path: Path) -> None:
    first, second = Journal(tmp_path / "one"), Journal(tmp_path / "other")
    stamp = {"time": now()}
    for journal in (first, second):
        journal.folder.mkdir()
        journal.append([started(0)[0] | stamp, done(0, 0) | stamp])
    merged_log = ProgressLog(MergedLog([first, second]))
    merged_log.read(settled=False)
    assert merged_log.points == []
    merged_log.read()
    assert len(merged_log.points) == 1


def test_answers_row_is_logged_without_missing_numbers(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    empty = dict.fromkeys(schemas.SUMMARY.names)
    rows = [
        empty | {"metric": "a", "setting": "{}", "estimate": 0.1 + 0.2, "low": 1e-17, "high": float("inf")},
        empty | {"metric": "b", "setting": "{}", "estimate": 3.0},
    ]
    store.write("a" * 64, pa.Table.from_pylist(rows, schema=schemas.SUMMARY), {})
    journal = Journal(store.folder("runs", "some"))
    (journal.folder / "run.json").write_text('{"audit": "none"}')
    (journal.folder / "plan.json").write_text(
        '{"roots": {"summary": ["%s"]}, "jobs": [["%s", "t"]]}' % (("a" * 64,) * 2)
    )
    assert facts.metrics(journal, store, None) == {"effect": 0.1 + 0.2, "effect.low": 1e-17}
    assert facts.learning_curves(journal, store) == {}


def test_learning_curves_are_means_by_epoch(tmp_path: Path) -> None:
    fold = {"models": "folds", "low": None, "high": None, "n": 2}
    rows = []
    for epoch in (2, 1):
        rows.append(fold | {"epoch": epoch, "split": "train", "estimate": 90.0 - epoch})
    table = pa.Table.from_pylist([*rows, rows[0] | {"models": "whole"}], schema=losses.LOSSES)
    assert losses.learning_curves(table) == {"train_loss": [(1, 89.0), (2, 88.0)], "test_loss": []}
    empty = dict.fromkeys(learning_curve.HISTORY.names)
    histories = []
    for loss in (1.0, 3.0):
        histories.append(empty | {"epoch": 1, "train_loss": loss, "validation_loss": 1.0})
    means = learning_curve.learning_curves(pa.Table.from_pylist(histories, schema=learning_curve.HISTORY))
    assert means["train_loss"] == [(1, 2.0)]


def test_data_sets_are_named_once_without_path(tmp_path: Path) -> None:
    config = plain(with_settings(UniqueFeature(), data=Dataset.parse(SECRET), probe=Dataset.parse(SECRET)))
    (tmp_path / "run.json").write_text(json.dumps({"audit": "unique_feature", "config": config}))
    about = Disclosure().journal(tmp_path).about()
    inputs = facts.inputs(about)
    assert [Input("parquet:7", "a" * 64, "question.data, probe")] == inputs
    assert "/home" not in inputs[0].source + str(facts.params(about))
    assert facts.params(about)["question.data"] == f"parquet:7@{'a' * 64}"


def test_exported_table_has_no_schema_metadata() -> None:
    table = pa.table({"n": [1]}, metadata={"config": "words:JANE DOE"})
    assert artifacts.shareable(table).schema.metadata is None


def test_exported_tables_contain_no_bytes() -> None:
    inner = pa.list_(pa.struct([("name", pa.string()), ("values", pa.large_binary())]))
    table = pa.table({"n": [1], "image": pa.array([b"x"]), "weights": pa.array([[]], inner), "list": [[1, 2]]})
    assert artifacts.shareable(table).schema.names == ["n", "list"]


def test_link_opens_the_runs_and_hides_passwords() -> None:
    target = Target("https://ann:secret@mlflow.example/base/")
    assert (
        target.address("3", "abc")
        == "https://mlflow.example/base/#/experiments/3/runs/abc?workflowType=machine_learning"
    )
    run_list_url = "http://h:1/#/experiments/3/runs?workflowType=machine_learning"
    assert run_list_url == run_list("http://h:1", "3")
    assert run_list("http://h:1", "3", with_answers=True) == f"{run_list_url}&viewStateShareKey=engram-answers"
    assert Target("postgresql://ann:secret@db/x").address("1", "2") == "postgresql://db/x"


def test_relative_tracking_store_is_in_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute_uri("sqlite:///a.db") == f"sqlite:///{tmp_path}/a.db"
    assert absolute_uri("sqlite:////a.db") == "sqlite:////a.db"
    assert (tmp_path / "mlruns").as_uri() == absolute_uri("./mlruns")
    assert absolute_uri("http://h:1") == "http://h:1"
