"""Reads table columns as NumPy arrays.

(pyarrow's own `to_numpy` and filters import pandas, which takes half a second.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.contract.grouping import group_by

P = ParamSpec("P")
R = TypeVar("R")


def numbers(table: pa.Table, name: str, infinite: bool = False) -> NDArray[np.float64]:
    """Read a numeric column. Nulls become NaN, and so do infinities unless `infinite` is set.

    Returns an empty array if the table has no such column.
    """
    if name not in table.column_names:
        return np.empty(0)
    values, is_valid = _parts(table[name], pa.float64())
    return np.where(is_valid & (infinite | np.isfinite(values)), values, np.nan)


def integers(table: pa.Table, name: str) -> NDArray[np.int64]:
    """Read an integer or boolean column without rounding. Nulls become 0."""
    values, is_valid = _parts(table[name], pa.int64())
    return np.where(is_valid, values, 0)


def texts(table: pa.Table, name: str) -> NDArray[np.str_]:
    """Read a string column. Nulls become empty strings."""
    return np.array([text or "" for text in table[name].to_pylist()], np.str_)


def groups(table: pa.Table, *names: str) -> dict[tuple[Any, ...], pa.Table]:
    """Group the rows by the values in these columns. Groups are in order of first occurrence."""
    keys = list(zip(*(table[name].to_pylist() for name in names), strict=True))
    rows_of = group_by(range(table.num_rows), keys.__getitem__)
    return {key: table.take(pa.array(rows)) for key, rows in rows_of.items()}


def nothing() -> None:
    """Return None. Default for functions that return a figure."""
    return None


def with_columns(
    names: Iterable[str], empty: Callable[[], Any] = nothing, filled: str | None = None
) -> Callable[[Callable[Concatenate[pa.Table, P], R]], Callable[Concatenate[pa.Table, P], R]]:
    """Decorate a function of a table so that it returns `empty()` if a column is missing or the table has no rows.

    With `filled`, it also returns `empty()` if that column contains a null.
    """
    required = frozenset(names)

    def decorate(function: Callable[Concatenate[pa.Table, P], R]) -> Callable[Concatenate[pa.Table, P], R]:
        @wraps(function)
        def guarded(table: pa.Table, /, *args: P.args, **kwargs: P.kwargs) -> R:
            is_complete = table.num_rows > 0 and required <= set(table.column_names)
            if not is_complete or (filled is not None and table[filled].null_count):
                empty_result: R = empty()
                return empty_result
            return function(table, *args, **kwargs)

        return guarded

    return decorate


def _parts(column: pa.ChunkedArray, kind: pa.DataType) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Convert the column to this type. Returns the values and a mask of the valid ones."""
    dtype = np.dtype(str(kind).replace("double", "float64"))
    values = [np.empty(0, dtype)]
    masks = [np.empty(0, np.bool_)]
    for chunk in column.cast(kind, safe=False).chunks:
        nothing = chunk.null_count == len(chunk)  # Arrow may then not store any values
        if nothing:
            chunk_values = np.zeros(len(chunk), dtype)
        else:
            chunk_values = np.frombuffer(chunk.buffers()[1], dtype)[chunk.offset :]
        values.append(chunk_values[: len(chunk)])
        masks.append(np.from_dlpack(chunk.is_valid().cast(pa.uint8())) == 1)
    return np.concatenate(values), np.concatenate(masks)
