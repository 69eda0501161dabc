"""Tables of a schema: one value per row or one value for all rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tasks.contract.schemas import make_table, nan_as_null, table_of_rows

SCHEMA = pa.schema([("row", pa.int32()), ("name", pa.string()), ("score", pa.float64())])


@pytest.mark.parametrize(
    "rows", [[3, 4], (3, 4), range(3, 5), np.array([3, 4]), pa.array([3, 4]), pa.chunked_array([[3], [4]])]
)
def test_single_values_fill_every_row(rows: Any) -> None:
    table = make_table(SCHEMA, score=None, name="a", row=rows)
    assert table.schema.equals(SCHEMA)
    assert table.to_pylist() == [{"row": row, "name": "a", "score": None} for row in (3, 4)]


def test_numpy_scalars_are_single_values() -> None:
    table = make_table(SCHEMA, row=np.int64(3), name=np.str_("a"), score=np.float32(0.5))
    assert table.to_pylist() == [{"row": 3, "name": "a", "score": 0.5}]


def test_empty_column_makes_an_empty_table() -> None:
    assert make_table(SCHEMA, row=[], name="a", score=1.0).equals(SCHEMA.empty_table())


def test_nested_values_are_columns_of_values() -> None:
    schema = pa.schema([("values", pa.list_(pa.float64())), ("about", pa.struct([("n", pa.int64())]))])
    table = make_table(schema, values=[[1.0], [2.0, 3.0]], about={"n": 1})
    assert table.to_pylist() == [{"values": [1.0], "about": {"n": 1}}, {"values": [2.0, 3.0], "about": {"n": 1}}]


def test_nan_is_null_only_on_request() -> None:
    table = make_table(SCHEMA, row=[0], name="a", score=[np.nan])
    assert np.isnan(table["score"][0].as_py())
    assert make_table(SCHEMA, row=[0], name="a", score=nan_as_null([np.nan]))["score"].null_count == 1


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"row": [0]}, r"columns missing: name, score\. The schema has row, name, score\."),
        ({"row": 0, "name": "a", "score": 0, "mem": 0}, "columns not in the schema: mem"),
        ({"row": [0, 1], "name": ["a"], "score": 0}, "columns have different lengths: row 2, name 1"),
    ],
)
def test_wrong_columns_are_named(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_table(SCHEMA, **columns)


def test_rows_are_in_the_order_of_the_schema() -> None:
    assert table_of_rows(SCHEMA, [(3, "a", 0.5)]).to_pylist() == [{"row": 3, "name": "a", "score": 0.5}]
    assert table_of_rows(SCHEMA, []).equals(SCHEMA.empty_table())
    with pytest.raises(ValueError, match="argument"):
        table_of_rows(SCHEMA, [(3, "a")])
