"""A number by which a table of results is told from another."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def total(table: pa.Table) -> float:
    """One number that all measured ones of a table move: their sum, each column counted once more than the last."""
    columns = [table[name] for name in table.column_names if pa.types.is_floating(table[name].type)]
    return float(
        sum(
            weight * np.nansum(column.to_numpy(zero_copy_only=False).astype(np.float64))
            for weight, column in enumerate(columns, start=1)
        )
    )
