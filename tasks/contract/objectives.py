"""What a search over training choices moves: how much is memorised, and how useful the model is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from tasks.contract.summaries import Row, index_rows

SHARE = "share"  # the unit of what lies between 0 and 1, which is told in points of a hundred


@dataclass(frozen=True)
class Objective:
    """A number of the summary of which less, or more, is better.

    `row(config, summary)` is the row of the summary that holds it; None where there is none.
    """

    name: str
    unit: str
    better: Literal["lower", "higher"]
    row: Callable[[Any, pa.Table], Row | None]

    @property
    def sign(self) -> int:
        """1 where higher is better, else -1: by it two values can be compared."""
        return 1 if self.better == "higher" else -1


@dataclass(frozen=True)
class Objectives:
    """The two objectives of a search; `allowance` is the utility that may be given up if nothing else is asked."""

    memorization: Objective
    utility: Objective
    allowance: float


def row_reader(metric: str, setting: str) -> Callable[[Any, pa.Table], Row | None]:
    """The row of this metric and setting (JSON) in any summary, whatever the config."""
    name = (metric, setting)

    def row(_config: Any, summary: pa.Table) -> Mapping[str, Any] | None:
        return index_rows(summary).get(name)

    return row  # type: ignore[return-value]
