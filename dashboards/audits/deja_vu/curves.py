"""Estimates with their intervals over something that grows, which the figures of this audit share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dashboards import drawing
from dashboards.columns import numbers

Array = NDArray[np.float64]
MARKED = 15  # places with a mark each
PERCENT = 20  # of pictures, as published; where no row of a table says which decides
# Colour, mark and dash of what is drawn in several figures.
TARGET = ("canary", "o", "-")
REFERENCE = ("twin", "s", (0, (4, 2)))
GAP = ("accent", "D", (0, (1, 1.5)))
NULL = " This run is a null: both models were trained on other pictures, the first one in the place of the one named."
ACROSS = {"epoch": "epoch", "layer": "layer, 0: the backbone's output", "k": "neighbours that vote"}  # axes' words
NAMES = {"target_accuracy": "trained on the picture", "reference_accuracy": "not trained on it"}


@dataclass(frozen=True)
class Curve:
    """Estimates at ascending places with their intervals; NaN where there is none. All are (places,)."""

    places: Array
    value: Array
    low: Array
    high: Array

    def describe(self, at: int = -1) -> str:
        """The estimate at one of the places with its interval, in words."""
        low, high = float(self.low[at]), float(self.high[at])
        return (
            f"{drawing.format_number(float(self.value[at]))}"
            f"{'' if np.isnan(low) else drawing.format_interval(low, high)}"
        )


def read_curve(table: pa.Table, across: str, name: str) -> Curve | None:
    """The column `name` over the column `across`; None where no row has a value."""
    if not {across, name} <= set(table.column_names):
        return None
    columns = [numbers(table, column) for column in (across, name, f"{name}_low", f"{name}_high")]
    there = np.flatnonzero(~np.isnan(columns[0]) & ~np.isnan(columns[1]))
    there = there[np.argsort(columns[0][there], kind="stable")]
    return Curve(*(column[there] for column in columns)) if len(there) else None


def decisive_percent(table: pa.Table) -> int:
    """The percentage of most confident pictures that decides: the one whose score was tested."""
    tested = np.flatnonzero(~np.isnan(numbers(table, "p_value")))
    return int(numbers(table, "percent")[tested[0]]) if len(tested) else PERCENT


def rows_at_percent(table: pa.Table, percent: int) -> pa.Table:
    """The rows of this percentage of most confident pictures."""
    return table.take(pa.array(np.flatnonzero(numbers(table, "percent") == percent)))


def draw_curve(axes: Any, shown: Curve, look: tuple[str, str, Any], width: float = 1.5) -> None:
    """Draw the estimates as a line over the band of their intervals; with bars where there is a single place."""
    colour, marker, dash = look
    same = {"color": drawing.light(colour)}
    whole = ~np.isnan(shown.low) & ~np.isnan(shown.high)
    if len(shown.places) > 1:
        axes.fill_between(shown.places[whole], shown.low[whole], shown.high[whole], alpha=0.15, linewidth=0, **same)
    else:
        ends = drawing.segment_path(shown.places[whole], shown.low[whole], shown.high[whole])
        axes.plot(*ends, linewidth=1.8, solid_capstyle="butt", **same)
    size = 4.5 if len(shown.places) <= MARKED else 0
    axes.plot(shown.places, shown.value, marker=marker, markersize=size, linestyle=dash, linewidth=width, **same)


def axis_limits(shown: Sequence[Curve]) -> tuple[float, float]:
    """Limits of an axis that holds these estimates with their intervals, and 0."""
    ends = np.concatenate([values for each in shown for values in (each.value, each.low, each.high)])
    return drawing.padded_limits([0.0, *ends[~np.isnan(ends)].tolist()])
