"""One job again, in this process, beside what is stored of it."""

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
    """The keys of a run's jobs of one task, which has been run in this process."""
    how = Execution(address="none", mlflow="off", report=False, way=way)  # type: ignore[arg-type]
    run = start([Cell("toys", toys.Config(**fields))], store, how).run
    return [key for key, name in Journal(store.folder("runs", run)).tasks().items() if name == task]


def test_a_job_that_gives_what_is_stored_is_the_same(store: Store) -> None:
    (total,) = keys(store, "toys.total", parts=2)
    said = rerun(store, total)
    assert (said["same"], said["differs"], said["rows"], said["task"]) == (True, [], 1, "toys.total")
    assert said["seconds"] >= 0


def test_a_job_that_gives_something_else_tells_where(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    part = keys(store, "toys.part", parts=2)[0]
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 5)  # a part's table names the process that computed it
    said = rerun(store, part)
    assert (said["same"], said["differs"]) == (False, [{"column": "pid", "rows": 1, "largest": 5}])


def test_what_is_not_stored_is_computed_and_compared_with_nothing(store: Store, tmp_path: Path) -> None:
    part = keys(store, "toys.part", parts=2, trouble="raise", at=0, folder=str(tmp_path))[0]
    with pytest.raises(ValueError, match="part 0 cannot be had"):
        rerun(store, part)
    (tmp_path / "mended").touch()
    assert None is rerun(store, part)["same"]
    assert part not in store


def test_a_job_whose_input_is_gone_is_refused(store: Store, tmp_path: Path) -> None:
    (total,) = keys(store, "toys.total", parts=2, trouble="raise", at=0, folder=str(tmp_path))
    with pytest.raises(EngramError, match=r"an input of .* is missing: .*; resume its run first"):
        rerun(store, total)


def test_a_job_is_computed_in_the_way_that_its_record_names(store: Store, tmp_path: Path) -> None:
    part = keys(store, "toys.part", way="graph", parts=2, trouble="choose", folder=str(tmp_path))[0]
    assert rerun(store, part)["same"]
    assert not (tmp_path / "chosen.log").exists()


@pytest.mark.parametrize(
    ("table", "found"),
    [
        ({"a": [1, 2]}, []),
        ({"a": [1, 4]}, [{"column": "a", "rows": 1, "largest": 2}]),
        ({"a": [1]}, [{"column": None, "problem": "1 rows, were 2"}]),
        ({"b": [1, 2]}, [{"column": None, "problem": "columns are ['b'], were ['a']"}]),
    ],
)
def test_tables_differ_by_column_row_and_distance(table: dict[str, Any], found: list[dict[str, Any]]) -> None:
    assert found == differences(pa.table(table), pa.table({"a": [1, 2]}))


def test_texts_and_not_a_numbers_are_compared_too() -> None:
    one = pa.table({"a": ["x", "y"], "b": [float("nan"), 1.0]})
    other = pa.table({"a": ["x", "z"], "b": [float("nan"), 1.5]})
    assert differences(one, other) == [
        {"column": "a", "rows": 1, "largest": None},
        {"column": "b", "rows": 1, "largest": 0.5},
    ]
