"""The objectives of a search over training choices: memorization and utility."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from tasks.contract.summaries import Row, index_rows

SHARE = "share"  # unit of values from 0 to 1, printed in percentage points


@dataclass(frozen=True)
class Objective:
    """A number of the summary that a search minimises or maximises.

    `row(config, summary)` returns the summary row that contains it, or None if there is none.
    """

    name: str
    unit: str
    better: Literal["lower", "higher"]
    row: Callable[[Any, pa.Table], Row | None]

    @property
    def sign(self) -> int:
        """1 if higher is better, else -1."""
        return 1 if self.better == "higher" else -1


@dataclass(frozen=True)
class Objectives:
    """The two objectives of a search. `allowance` is the loss of utility accepted by default."""

    memorization: Objective
    utility: Objective
    allowance: float


def row_reader(metric: str, setting: str) -> Callable[[Any, pa.Table], Row | None]:
    """Return a function that finds the row with this metric and setting (JSON) in a summary."""
    name = (metric, setting)

    def row(_config: Any, summary: pa.Table) -> Mapping[str, Any] | None:
        return index_rows(summary).get(name)

    return row  # type: ignore[return-value]
