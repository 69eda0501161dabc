"""Statistics of the scores by epoch and label."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dashboards import drawing
from dashboards.columns import integers, numbers, texts

Array = NDArray[np.float64]
NEEDED = {"epoch", "score", "label", "statistic", "estimate", "low", "high", "n"}


@dataclass(frozen=True)
class Curve:
    """A statistic by epoch, with its interval over `n` repetitions; NaN without one."""

    epochs: NDArray[np.int64]
    estimate: Array
    low: Array
    high: Array
    n: int

    def describe(self, at: int = -1) -> str:
        """The estimate at one of the epochs, with its interval, in words."""
        low, high = (None if np.isnan(end[at]) else float(end[at]) for end in (self.low, self.high))
        return f"{drawing.format_number(float(self.estimate[at]))}{drawing.format_interval(low, high)}"


@dataclass(frozen=True)
class Statistics:
    """One row per epoch, score, label and statistic; label is null for all labels together."""

    table: pa.Table

    @cached_property
    def _columns(self) -> dict[str, Any]:
        return {
            "score": texts(self.table, "score"),
            "statistic": texts(self.table, "statistic"),
            "epoch": integers(self.table, "epoch"),
            "n": integers(self.table, "n"),
            **{name: numbers(self.table, name) for name in ("label", "estimate", "low", "high")},
        }

    @property
    def there(self) -> bool:
        return set(self.table.column_names) >= NEEDED

    def curve(self, score: str, statistic: str) -> Curve | None:
        """A statistic of a score over all labels by epoch; None if it was not recorded."""
        if not self.there:
            return None
        of = self._columns
        chosen = (of["score"] == score) & (of["statistic"] == statistic) & np.isnan(of["label"])
        rows = np.flatnonzero(chosen & ~np.isnan(of["estimate"]))
        rows = rows[np.argsort(of["epoch"][rows], kind="stable")]
        if not len(rows):
            return None
        estimate, low, high = (of[name][rows] for name in ("estimate", "low", "high"))
        return Curve(of["epoch"][rows], estimate, low, high, int(of["n"][rows].max()))

    def null(self, score: str, statistic: str) -> float | None:
        """The value of the statistic over all labels where nothing is memorised; None if unknown."""
        if not self.there or "null" not in self.table.column_names:
            return None
        of, null = self._columns, numbers(self.table, "null")
        chosen = (of["score"] == score) & (of["statistic"] == statistic) & np.isnan(of["label"]) & ~np.isnan(null)
        rows = np.flatnonzero(chosen)
        return float(null[rows[of["epoch"][rows].argmax()]]) if len(rows) else None
