"""A table's columns as numpy arrays. (pyarrow's own `to_numpy` loads pandas, which takes half a second.)"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


def numbers(table: pa.Table, name: str) -> NDArray[np.float64]:
    """A column of numbers; NaN where there is none or it is infinite, empty where the table has no such column."""
    if name not in table.column_names:
        return np.empty(0)
    values = _array(pc.fill_null(table[name].cast(pa.float64(), safe=False), float("nan"))).astype(np.float64)
    return np.where(np.isfinite(values), values, np.nan)


def integers(table: pa.Table, name: str) -> NDArray[np.int64]:
    """A column of whole numbers or truths, exactly; 0 where there is none."""
    return _array(pc.fill_null(table[name].cast(pa.int64()), 0)).astype(np.int64)


def _array(column: pa.ChunkedArray) -> NDArray[Any]:
    chunks = [np.from_dlpack(chunk) for chunk in column.chunks if len(chunk)]
    return np.concatenate(chunks) if chunks else np.empty(0)
