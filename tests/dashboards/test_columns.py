"""Tables that lack columns or rows are not read."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from dashboards.columns import with_columns


@with_columns(("name", "value"), list, filled="name")
def scaled_values(table: pa.Table, factor: int) -> list[int]:
    return [factor * value for value in table["value"].to_pylist()]


@pytest.mark.parametrize(
    ("columns", "values"),
    [
        ({"name": ["a", "b"], "value": [1, 2]}, [3, 6]),
        ({"name": ["a"], "value": [1], "other": [None]}, [3]),
        ({"name": ["a"]}, []),
        ({"name": pa.array([], pa.string()), "value": pa.array([], pa.int64())}, []),
        ({"name": ["a", None], "value": [1, 2]}, []),
        ({}, []),
    ],
)
def test_incomplete_tables_are_not_read(columns: dict[str, Any], values: list[int]) -> None:
    assert scaled_values(pa.table(columns), factor=3) == values
