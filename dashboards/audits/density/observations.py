"""The scores of observations by column, and which observations are highly memorised."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dashboards.columns import integers, numbers
from tasks.audits.density.highly_memorised import highly_memorised_mask

Array = NDArray[np.float64]

# Each score with its column. The published one has more terms in favour of memory than against it.
COLUMNS = {"published": "m", "matched": "m_matched"}


@dataclass(frozen=True)
class Observations:
    """One row per observation. Columns that the table lacks are empty; nulls are NaN."""

    table: pa.Table

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        return integers(self.table, "row") if "row" in self.table.column_names else np.empty(0, np.int64)

    @cached_property
    def scores(self) -> dict[str, Array]:
        """The scores that have any value, over all observations."""
        scores = {score: self.column(column) for score, column in COLUMNS.items()}
        return {score: values for score, values in scores.items() if np.isfinite(values).any()}

    @property
    def high(self) -> NDArray[np.bool_]:
        """Whether each observation is highly memorised; all false without matched-count scores."""
        values = numbers(self.table, COLUMNS["matched"], infinite=True)  # inf is above any quantile
        there = ~np.isnan(values)
        high = np.zeros(len(values), np.bool_)
        high[there] = highly_memorised_mask(values[there])
        return high

    def column(self, name: str) -> Array:
        return numbers(self.table, name)
