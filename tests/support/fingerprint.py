"""A number that distinguishes one table of results from another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tasks.contract.job import marks

# Allowed relative distance of a training's result from the stored one. Processors and libraries differ in the last bit
# of a sum: if every sum of a training is off by up to 1.2e-7, the fingerprints move by at most 5e-5. One image of 180
# in another class would move them by 7e-4 (tests/tasks/test_other_processors.py runs them so).
TRAINED = 2e-3


def total(table: pa.Table) -> float:
    """One number that every measured value of a table changes: the sum, with weights 1, 2, ... by column."""
    columns = []
    for name in table.column_names:
        if pa.types.is_floating(table[name].type):
            columns.append(table[name])
    return float(
        sum(
            weight * np.nansum(column.to_numpy(zero_copy_only=False).astype(np.float64))
            for weight, column in enumerate(columns, start=1)
        )
    )


@dataclass(frozen=True)
class Computed:
    """A table of a task, and a fingerprint that distinguishes it from the table of another version."""

    task: Callable[..., pa.Table]
    compute: Callable[[], pa.Table]
    fingerprint: Callable[[pa.Table], Any] = total
    tolerance: float = 1e-6
    label: str = ""

    @property
    def name(self) -> str:
        return self.label or str(marks(self.task).name)

    @property
    def is_trained(self) -> bool:
        return self.tolerance >= TRAINED

    def describe(self) -> dict[str, Any]:
        """The task's version, and the rows and fingerprint of the table that it computes."""
        table = self.compute()
        version = marks(self.task).version
        return {"version": version, "rows": table.num_rows, "fingerprint": self.fingerprint(table)}
