"""Groups of rows, in the order in which they first occur."""

from __future__ import annotations

import pyarrow as pa

from dashboards.columns import groups
from tasks.contract.grouping import group_by, group_rows

ROWS = [
    {"name": "b", "seed": 1, "value": 0.5},
    {"name": "a", "seed": 1, "value": 1.5},
    {"name": "b", "seed": 2, "value": 2.5},
    {"name": "b", "seed": 1, "value": 3.5},
]


def test_groups_are_in_first_seen_order() -> None:
    assert list(group_by([3, 2, 5, 4], lambda number: number % 2).items()) == [(1, [3, 5]), (0, [2, 4])]
    assert list(group_rows(ROWS, "name").items()) == [("b", [ROWS[0], ROWS[2], ROWS[3]]), ("a", [ROWS[1]])]
    assert list(group_rows(ROWS, "name", "seed")) == [("b", 1), ("a", 1), ("b", 2)]
    assert group_rows([], "name") == {}


def test_tables_group_like_rows() -> None:
    table = pa.Table.from_pylist(ROWS)
    for columns in (("name", "seed"), ("seed", "name")):
        parts = {key: part.to_pylist() for key, part in groups(table, *columns).items()}
        assert list(parts.items()) == list(group_rows(ROWS, *columns).items())
    assert list(groups(table, "name")) == [("b",), ("a",)]
    assert groups(table.slice(0, 0), "name") == {}
