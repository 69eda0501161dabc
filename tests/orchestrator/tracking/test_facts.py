"""The points of a run's charts follow from its log alone, and a longer log only adds some.

What tracking is told of a run has names that MLflow takes, exact numbers, and no path of this machine.
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


def at(when: float, event: str, **more: Any) -> dict[str, Any]:
    stamp = datetime.fromtimestamp(ZERO + when, UTC).isoformat(timespec="milliseconds")
    return {"time": stamp, "event": event, **more}


def started(seconds: float, stored: int = 0) -> list[dict[str, Any]]:
    first = at(seconds, "started", planned=10, stored=stored, tasks={"train": 10})
    return [first, *(at(seconds, "stored", key=f"{n:064x}", task="train") for n in range(stored))]


def done(seconds: float, number: int) -> dict[str, Any]:
    return at(seconds, "done", key=f"{number:064x}", task="train", models=1, seconds=1.0)


def course(folder: Path, events: list[dict[str, Any]]) -> ProgressLog:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "events.jsonl").unlink(missing_ok=True)
    Journal(folder).append(events)
    found = ProgressLog(MergedLog([Journal(folder)]))
    found.read()
    return found


def counts(points: list[Point]) -> list[tuple[int, float, int]]:
    return [(point.step, point.time - ZERO, point.done) for point in points]


FIRST = [*started(0), *(done(n + 1, n) for n in range(8)), at(9, "interrupted", jobs={})]
SECOND = [*started(20, stored=8), done(22, 8), done(26, 9), at(27, "finished", jobs={})]
IDLE = [*started(30, stored=10), at(31, "finished", jobs={})]


def test_a_point_comes_every_five_seconds_of_the_log_and_at_both_ends_of_a_start(tmp_path: Path) -> None:
    found = course(tmp_path, FIRST + SECOND)
    assert counts(found.points) == [(0, 0, 0), (1, 5, 5), (2, 9, 8), (3, 20, 8), (4, 26, 10)]
    assert (found.state, found.began, found.ended) == ("finished", ZERO, ZERO + 27)
    assert found.points[1].models_per_minute == 60.0
    assert found.points[0].models_per_minute is None


def test_a_longer_log_has_the_points_of_a_shorter_one_and_more_behind_them(tmp_path: Path) -> None:
    events = FIRST[:7] + SECOND + IDLE + FIRST  # the first start was killed
    whole = course(tmp_path, events).points
    for length in range(len(events)):
        part = course(tmp_path, events[:length]).points
        assert whole[: len(part)] == part


def test_a_log_read_in_pieces_has_the_same_points(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    pieces = ProgressLog(MergedLog([journal]))
    for event in FIRST + SECOND:
        journal.append([event])
        pieces.read()
    assert course(tmp_path, FIRST + SECOND).points == pieces.points


def test_a_start_that_finds_nothing_to_do_adds_no_point_and_moves_no_end(tmp_path: Path) -> None:
    busy, idle = course(tmp_path, FIRST + SECOND), course(tmp_path, FIRST + SECOND + IDLE + IDLE)
    assert busy.points == idle.points
    assert busy.ended == idle.ended


def test_a_run_whose_results_were_all_there_has_one_point(tmp_path: Path) -> None:
    assert counts(course(tmp_path, [*started(0, stored=10), at(1, "finished", jobs={})]).points) == [(0, 1, 10)]


def test_the_last_counts_of_a_killed_start_are_shown_once_the_next_one_begins(tmp_path: Path) -> None:
    killed = [*started(0), done(1, 0), done(2, 1)]
    assert counts(course(tmp_path, killed).points) == [(0, 0, 0)]
    assert course(tmp_path, killed).state is None
    assert counts(
        course(tmp_path, [*killed, *started(9, stored=2), done(10, 2), at(11, "paused", jobs={})]).points
    ) == [(0, 0, 0), (1, 2, 2), (2, 9, 2), (3, 11, 3)]


def test_the_logs_of_a_sweeps_cells_are_one_with_what_they_share_once(tmp_path: Path) -> None:
    one, other = Journal(tmp_path / "one"), Journal(tmp_path / "other")
    for journal in (one, other):
        journal.folder.mkdir()
    alone = [*started(-50), done(-40, 0), at(-39, "finished", jobs={})]  # before the sweep was made
    one.append([*alone, *started(0, stored=2), done(1, 5), done(7, 6), at(9, "finished", jobs={})])
    other.append([*started(0, stored=3), done(1, 5), done(8, 7), at(9.1, "finished", jobs={})])
    found = ProgressLog(MergedLog([one, other], at(0, "")["time"]))
    found.read()
    assert counts(found.points) == [(0, 0, 3), (1, 7, 5), (2, 9, 6)]
    assert (found.began, found.ended) == (ZERO, ZERO + 9.1)


def test_what_a_log_may_still_get_is_awaited(tmp_path: Path) -> None:
    one, other = Journal(tmp_path / "one"), Journal(tmp_path / "other")
    stamp = {"time": now()}
    for journal in (one, other):
        journal.folder.mkdir()
        journal.append([started(0)[0] | stamp, done(0, 0) | stamp])
    found = ProgressLog(MergedLog([one, other]))
    found.read(settled=False)
    assert found.points == []
    found.read()
    assert len(found.points) == 1


def test_the_numbers_of_the_row_behind_the_answer_are_metrics_without_what_is_none(tmp_path: Path) -> None:
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
    rows = [fold | {"epoch": epoch, "split": "train", "estimate": 90.0 - epoch} for epoch in (2, 1)]
    table = pa.Table.from_pylist([*rows, rows[0] | {"models": "whole"}], schema=losses.LOSSES)
    assert losses.learning_curves(table) == {"train_loss": [(1, 89.0), (2, 88.0)], "test_loss": []}
    empty = dict.fromkeys(learning_curve.HISTORY.names)
    trained = [empty | {"epoch": 1, "train_loss": loss, "validation_loss": 1.0} for loss in (1.0, 3.0)]
    means = learning_curve.learning_curves(pa.Table.from_pylist(trained, schema=learning_curve.HISTORY))
    assert means["train_loss"] == [(1, 2.0)]


def test_data_sets_are_named_once_each_and_without_their_path(tmp_path: Path) -> None:
    config = plain(with_settings(UniqueFeature(), data=Dataset.parse(SECRET), probe=Dataset.parse(SECRET)))
    (tmp_path / "run.json").write_text(json.dumps({"audit": "unique_feature", "config": config}))
    about = Disclosure().journal(tmp_path).about()
    found = facts.inputs(about)
    assert [Input("parquet:7", "a" * 64, "question.data, probe")] == found
    assert "/home" not in found[0].source + str(facts.params(about))
    assert f"parquet:7@{'a' * 64}" == facts.params(about)["question.data"]


def test_a_table_that_is_handed_over_is_without_remarks_of_its_schema() -> None:
    table = pa.table({"n": [1]}, metadata={"config": "words:JANE DOE"})
    assert artifacts.shareable(table).schema.metadata is None


def test_bytes_are_in_no_table_that_is_handed_over() -> None:
    inner = pa.list_(pa.struct([("name", pa.string()), ("values", pa.large_binary())]))
    table = pa.table({"n": [1], "image": pa.array([b"x"]), "weights": pa.array([[]], inner), "list": [[1, 2]]})
    assert artifacts.shareable(table).schema.names == ["n", "list"]


def test_a_link_opens_the_view_with_runs_and_shows_no_password() -> None:
    target = Target("https://ann:secret@mlflow.example/base/")
    assert (
        target.address("3", "abc")
        == "https://mlflow.example/base/#/experiments/3/runs/abc?workflowType=machine_learning"
    )
    listed = "http://h:1/#/experiments/3/runs?workflowType=machine_learning"
    assert listed == run_list("http://h:1", "3")
    assert f"{listed}&viewStateShareKey=engram-answers" == run_list("http://h:1", "3", with_answers=True)
    assert Target("postgresql://ann:secret@db/x").address("1", "2") == "postgresql://db/x"


def test_a_relative_tracking_store_lies_where_the_command_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert f"sqlite:///{tmp_path}/a.db" == absolute_uri("sqlite:///a.db")
    assert absolute_uri("sqlite:////a.db") == "sqlite:////a.db"
    assert (tmp_path / "mlruns").as_uri() == absolute_uri("./mlruns")
    assert absolute_uri("http://h:1") == "http://h:1"
