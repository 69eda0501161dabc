"""Grouping of items and rows, in order of first occurrence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any, TypeVar

Item = TypeVar("Item")
Key = TypeVar("Key")
RowType = TypeVar("RowType", bound=Mapping[str, Any])


def group_by(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Group the items by key. Keys are in order of first occurrence."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def group_rows(rows: Iterable[RowType], *columns: str) -> dict[Any, list[RowType]]:
    """Group the rows by the value of a column, or by the tuple of values of several columns."""
    return group_by(rows, itemgetter(*columns))
