"""One job runs again in this process, and its result is compared with the stored one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import toys

from orchestrator.errors import EngramError
from orchestrator.inspection.explain import differences, rerun
from orchestrator.run_folder.journal import Journal
from orchestrator.runs.lifecycle import start
from orchestrator.spec.resolve import Cell
from orchestrator.spec.specification import Execution
from orchestrator.store import Store


def keys(store: Store, task: str, way: str = "auto", **fields: Any) -> list[str]:
    """Run an audit in this process and return the keys of one task's jobs."""
    how = Execution(address="none", mlflow="off", report=False, way=way)  # type: ignore[arg-type]
    run = start([Cell("toys", toys.Config(**fields))], store, how).run
    result = []
    for key, name in Journal(store.folder("runs", run)).tasks().items():
        if name == task:
            result.append(key)
    return result


def test_equal_result_is_reported_as_same(store: Store) -> None:
    (total,) = keys(store, "toys.total", parts=2)
    comparison = rerun(store, total)
    assert (comparison["same"], comparison["differs"], comparison["rows"], comparison["task"]) == (
        True,
        [],
        1,
        "toys.total",
    )
    assert comparison["seconds"] >= 0


def test_different_result_lists_differing_columns(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    part = keys(store, "toys.part", parts=2)[0]
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 5)  # a part's table names the process that computed it
    comparison = rerun(store, part)
    assert (comparison["same"], comparison["differs"]) == (False, [{"column": "pid", "rows": 1, "largest": 5}])


def test_unstored_job_is_computed_without_comparison(store: Store, tmp_path: Path) -> None:
    part = keys(store, "toys.part", parts=2, trouble="raise", at=0, folder=str(tmp_path))[0]
    with pytest.raises(ValueError, match="part 0 cannot be had"):
        rerun(store, part)
    (tmp_path / "mended").touch()
    assert rerun(store, part)["same"] is None
    assert part not in store


def test_job_without_its_input_is_refused(store: Store, tmp_path: Path) -> None:
    (total,) = keys(store, "toys.total", parts=2, trouble="raise", at=0, folder=str(tmp_path))
    with pytest.raises(EngramError, match=r"an input of .* is missing: .*; resume its run first"):
        rerun(store, total)


def test_job_uses_the_way_in_its_record(store: Store, tmp_path: Path) -> None:
    part = keys(store, "toys.part", way="graph", parts=2, trouble="choose", folder=str(tmp_path))[0]
    assert rerun(store, part)["same"]
    assert not (tmp_path / "chosen.log").exists()


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"a": [1, 2]}, []),
        ({"a": [1, 4]}, [{"column": "a", "rows": 1, "largest": 2}]),
        ({"a": [1]}, [{"column": None, "problem": "1 rows, were 2"}]),
        ({"b": [1, 2]}, [{"column": None, "problem": "columns are ['b'], were ['a']"}]),
    ],
)
def test_table_differences_list_column_rows_and_distance(table: dict[str, Any], expected: list[dict[str, Any]]) -> None:
    assert expected == differences(pa.table(table), pa.table({"a": [1, 2]}))


def test_texts_and_nan_are_compared() -> None:
    one = pa.table({"a": ["x", "y"], "b": [float("nan"), 1.0]})
    changed = pa.table({"a": ["x", "z"], "b": [float("nan"), 1.5]})
    assert differences(one, changed) == [
        {"column": "a", "rows": 1, "largest": None},
        {"column": "b", "rows": 1, "largest": 0.5},
    ]
