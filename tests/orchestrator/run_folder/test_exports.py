"""Tables as users take them out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from orchestrator.run_folder.tables import KEYS, column, flatten_table
from tests.support.shell import Here


def rows(*settings: object) -> pa.Table:
    """A summary's rows with these settings; their estimates count from 0."""
    texts = [None if setting is None else json.dumps(setting) for setting in settings]
    estimates = pa.array([float(at) for at in range(len(settings))], pa.float64())
    return pa.table({"metric": ["M"] * len(settings), "setting": pa.array(texts, pa.string()), "estimate": estimates})


def test_a_setting_becomes_columns_of_its_own_types_after_it() -> None:
    taken = flatten_table(rows({"model": "canary", "p": 1}, {"p": 0.5, "told": True}, None), "toys-1")
    assert ["run", "metric", "setting", "setting.model", "setting.p", "setting.told", "estimate"] == taken.schema.names
    types = [taken.schema.field(f"setting.{name}").type for name in ("model", "p", "told")]
    assert [pa.string(), pa.float64(), pa.bool_()] == types
    assert [1.0, 0.5, None] == taken["setting.p"].to_pylist()
    assert ["toys-1"] * 3 == taken["run"].to_pylist()


@pytest.mark.parametrize(
    ("values", "column"),
    [
        (({"a": [1, 2]}, {"a": [3]}), ["[1,2]", "[3]"]),
        (({"a": {"b": 1}}, {"a": 2}), ['{"b": 1}', "2"]),
        (({"a": "x"}, {"a": 2}, {"a": None}), ["x", "2", None]),
        (({"a": 2**70}, {}), [str(2**70), None]),
        (({"a": None}, {"a": None}), [None, None]),
    ],
)
def test_values_of_several_types_are_text(values: tuple[object, ...], column: list[str | None]) -> None:
    assert column == flatten_table(rows(*values), "toys-1")["setting.a"].to_pylist()


@pytest.mark.parametrize("values", [["é", "", None], [1, None, -(2**63)], [0.5, None, -1e308], [True, None, False]])
def test_a_column_is_what_pyarrow_makes_of_the_values(values: list[Any]) -> None:
    for many in (values, values * 7, values[:1]):
        made = column(many)
        made.validate(full=True)
        assert made.equals(pa.array(many))


def test_what_is_no_setting_adds_nothing() -> None:
    torn = pa.table({"setting": ["{torn", "[1]"], "run": ["mine", "mine"]})
    taken = flatten_table(torn, "toys-1")
    assert {"cell.run": ["toys-1"] * 2, "setting": ["{torn", "[1]"], "run": ["mine"] * 2} == taken.to_pydict()
    assert 0 == flatten_table(pa.table({}), "toys-1").num_columns


def test_a_table_without_rows_has_the_run_and_its_own_columns() -> None:
    assert ["run", "metric", "setting", "estimate"] == flatten_table(rows(), "toys-1").schema.names


def test_runs_join_in_pandas_without_parsing() -> None:
    both = [
        flatten_table(rows({"model": "canary"}, {"model": "twin"}), run).to_pandas() for run in ("toys-1", "toys-2")
    ]
    models = pd.concat(both).pivot(index="run", columns="setting.model", values="estimate")
    assert {"canary": {"toys-1": 0.0, "toys-2": 0.0}, "twin": {"toys-1": 1.0, "toys-2": 1.0}} == models.to_dict()


def test_parts_of_an_earlier_version_are_written_anew(tmp_path: Path) -> None:
    engram = Here(tmp_path)
    run = engram.json("run", "toys", "parts=2", "--address", "none")["run"]
    [part] = (tmp_path / "engram-store" / "runs" / run / "tables" / "parts").glob("*.parquet")
    now = pq.read_table(part)
    earlier = now.drop_columns(["run"]).replace_schema_metadata({KEYS: now.schema.metadata[KEYS]})
    pq.write_table(earlier, part)
    engram("resume", run, "--address", "none")
    assert now.equals(pq.read_table(part))
