"""Code shared by the figures: scores and their statistics, styles, and axis limits that are robust to outliers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dashboards import drawing, legend
from dashboards.chart import Array, Curve
from dashboards.columns import integers, numbers, texts
from tasks.audits.density.highly_memorised import highly_memorised_mask

# Table column of each score. The published score is biased towards memorisation.
COLUMNS = {"published": "m", "matched": "m_matched"}
SCORES = {"matched": "M, matched counts", "published": "M as published"}
SCORE_LOOKS: Mapping[str, legend.Series] = {"matched": drawing.SERIES[0], "published": drawing.SERIES[1]}
KINDS = {"memorised": "highly memorised", "regular": "regular"}
KIND_COLOURS = {"memorised": "canary", "regular": "twin"}
DASHES: dict[str, Any] = {"memorised": "-", "regular": (0, (4, 2))}
STATISTICS = {"epoch", "score", "label", "statistic", "estimate", "low", "high", "n"}
TAIL = 0.001  # fraction of values at each end that may lie outside the axis
STRETCHED = 1.5  # the axis is cut if tails would make it longer by this factor


@dataclass(frozen=True)
class Observations:
    """One row per observation. Columns missing from the table are empty, and nulls are NaN."""

    table: pa.Table

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        if "row" in self.table.column_names:
            return integers(self.table, "row")
        return np.empty(0, np.int64)

    @cached_property
    def scores(self) -> dict[str, Array]:
        """The scores that have at least one value, over all observations."""
        scores = {score: self.column(column) for score, column in COLUMNS.items()}
        result = {}
        for score, values in scores.items():
            if np.isfinite(values).any():
                result[score] = values
        return result

    @cached_property
    def known_scores(self) -> dict[str, Array]:
        """The defined values of each score."""
        return {score: values[~np.isnan(values)] for score, values in self.scores.items()}

    @property
    def high(self) -> NDArray[np.bool_]:
        """Mask of highly memorised observations. All False if there are no matched-count scores."""
        values = numbers(self.table, COLUMNS["matched"], infinite=True)  # inf lies above any quantile
        defined = ~np.isnan(values)
        high = np.zeros(len(values), np.bool_)
        high[defined] = highly_memorised_mask(values[defined])
        return high

    def column(self, name: str) -> Array:
        return numbers(self.table, name)


@dataclass(frozen=True)
class Statistics:
    """One row per epoch, score, label and statistic. The label is null for all labels together."""

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
        return set(self.table.column_names) >= STATISTICS

    def curve(self, score: str, statistic: str) -> Curve | None:
        """Return a statistic of a score over all labels by epoch, with intervals over repetitions.

        Returns None if the table lacks it.
        """
        if not self.there:
            return None
        columns = self._columns
        is_requested = (columns["score"] == score) & (columns["statistic"] == statistic) & np.isnan(columns["label"])
        rows = np.flatnonzero(is_requested & ~np.isnan(columns["estimate"]))
        rows = rows[np.argsort(columns["epoch"][rows], kind="stable")]
        if not len(rows):
            return None
        estimate = columns["estimate"][rows]
        low = columns["low"][rows]
        high = columns["high"][rows]
        return Curve(columns["epoch"][rows], estimate, low, high, n=int(columns["n"][rows].max()))

    def null(self, score: str, statistic: str) -> float | None:
        """Return the value of a statistic over all labels without memorisation. Returns None if unknown."""
        if not self.there or "null" not in self.table.column_names:
            return None
        columns = self._columns
        null = numbers(self.table, "null")
        is_requested = (
            (columns["score"] == score)
            & (columns["statistic"] == statistic)
            & np.isnan(columns["label"])
            & ~np.isnan(null)
        )
        rows = np.flatnonzero(is_requested)
        if len(rows):
            return float(null[rows[columns["epoch"][rows].argmax()]])
        return None


def score_legend_entry(score: str, **look: Any) -> Any:
    """Return the legend entry for a score."""
    return legend.series_entry(SCORES[score], SCORE_LOOKS[score], **{"linewidth": 1.4, "markersize": 5} | look)


def area_legend_entry(colour: str, label: str) -> Any:
    """Return the legend entry for an area with an edge. `colour` is the edge colour."""
    return legend.area(label, facecolor=drawing.light(f"{colour}-band"), edgecolor=drawing.light(colour))


def format_share(part: int, total: int) -> str:
    """Format a part of a total as counts and percentage."""
    percent = 0.0
    if total:
        percent = 100 * part / total
    if percent >= 10:
        return f"{part:,} of {total:,} ({percent:.0f} %)"
    return f"{part:,} of {total:,} ({percent:.2g} %)"


def robust_limits(groups: Iterable[Array], including: Sequence[float] = ()) -> tuple[float, float]:
    """Return axis limits that include these numbers and each group's values, except for distant tails."""
    lows = list(including)
    highs = list(including)
    for values in groups:
        lowest, low, high, highest = np.quantile(values, (0, TAIL, 1 - TAIL, 1))
        long = STRETCHED * (high - low)
        lows.append(float(lowest if high - lowest <= long else low))
        highs.append(float(highest if highest - low <= long else high))
    return drawing.padded_limits([min(lows), max(highs)], 0.03)


def describe_outside(values: Array, limits: tuple[float, float]) -> str:
    """Describe the values beyond the limits. Returns an empty string if there are none."""
    below = int((values < limits[0]).sum())
    above = int((values > limits[1]).sum())
    words = []
    for count, name, end in ((below, "below", values.min()), (above, "above", values.max())):
        if count:
            words.append(
                f"{count:,} {name} it, {'down' if name == 'below' else 'up'} to {drawing.format_number(float(end))}"
            )
    return " and ".join(words)
