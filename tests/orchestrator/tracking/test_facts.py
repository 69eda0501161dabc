"""What tracking is told of a run has names that MLflow takes, exact numbers, and no path of this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from orchestrator.inspection.disclosure import Disclosure
from orchestrator.run_folder.journal import Journal
from orchestrator.spec.config_parts import plain
from orchestrator.spec.specification import absolute_uri
from orchestrator.store import open_store
from orchestrator.tracking import artifacts, facts
from orchestrator.tracking.facts import Input
from orchestrator.tracking.tracking_store import Target, run_list
from tasks import schemas
from tasks.audits.density.measures import losses
from tasks.audits.unique_feature import UniqueFeature
from tasks.audits.unique_feature.measures import learning_curve
from tasks.datasets.dataset import Dataset

SECRET = "parquet:/home/ann/wards/7@" + "a" * 64


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
    assert {"effect": 0.1 + 0.2, "effect.low": 1e-17} == facts.metrics(journal, store, None)
    assert {} == facts.learning_curves(journal, store)


def test_learning_curves_are_means_by_epoch(tmp_path: Path) -> None:
    fold = {"models": "folds", "low": None, "high": None, "n": 2}
    rows = [fold | {"epoch": epoch, "split": "train", "estimate": 90.0 - epoch} for epoch in (2, 1)]
    table = pa.Table.from_pylist([*rows, rows[0] | {"models": "whole"}], schema=losses.LOSSES)
    assert {"train_loss": [(1, 89.0), (2, 88.0)], "test_loss": []} == losses.learning_curves(table)
    empty = dict.fromkeys(learning_curve.HISTORY.names)
    trained = [empty | {"epoch": 1, "train_loss": loss, "validation_loss": 1.0} for loss in (1.0, 3.0)]
    means = learning_curve.learning_curves(pa.Table.from_pylist(trained, schema=learning_curve.HISTORY))
    assert [(1, 2.0)] == means["train_loss"]


def test_data_sets_are_named_once_each_and_without_their_path(tmp_path: Path) -> None:
    config = plain(UniqueFeature(data=Dataset.parse(SECRET), probe=Dataset.parse(SECRET)))
    (tmp_path / "run.json").write_text(json.dumps({"audit": "unique_feature", "config": config}))
    about = Disclosure().journal(tmp_path).about()
    found = facts.inputs(about)
    assert [Input("parquet:7", "a" * 64, "data, probe")] == found
    assert "/home" not in found[0].source + str(facts.params(about))
    assert f"parquet:7@{'a' * 64}" == facts.params(about)["data"]


def test_a_table_that_is_handed_over_is_without_remarks_of_its_schema() -> None:
    table = pa.table({"n": [1]}, metadata={"config": "words:JANE DOE"})
    assert artifacts.shareable(table).schema.metadata is None


def test_bytes_are_in_no_table_that_is_handed_over() -> None:
    inner = pa.list_(pa.struct([("name", pa.string()), ("values", pa.large_binary())]))
    table = pa.table({"n": [1], "image": pa.array([b"x"]), "weights": pa.array([[]], inner), "list": [[1, 2]]})
    assert ["n", "list"] == artifacts.shareable(table).schema.names


def test_a_link_opens_the_view_with_runs_and_shows_no_password() -> None:
    target = Target("https://ann:secret@mlflow.example/base/")
    assert "https://mlflow.example/base/#/experiments/3/runs/abc?workflowType=machine_learning" == target.address(
        "3", "abc"
    )
    listed = "http://h:1/#/experiments/3/runs?workflowType=machine_learning"
    assert listed == run_list("http://h:1", "3")
    assert f"{listed}&viewStateShareKey=engram-answers" == run_list("http://h:1", "3", with_answers=True)
    assert "postgresql://db/x" == Target("postgresql://ann:secret@db/x").address("1", "2")


def test_a_relative_tracking_store_lies_where_the_command_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert f"sqlite:///{tmp_path}/a.db" == absolute_uri("sqlite:///a.db")
    assert "sqlite:////a.db" == absolute_uri("sqlite:////a.db")
    assert (tmp_path / "mlruns").as_uri() == absolute_uri("./mlruns")
    assert "http://h:1" == absolute_uri("http://h:1")
