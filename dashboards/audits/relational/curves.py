"""Lines by epoch with the bands of their intervals, which the figures of this audit share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dashboards import drawing
from dashboards.columns import numbers

Array = NDArray[np.float64]
MARKED = 15  # epochs with a mark each
SCORES: Mapping[str, str] = {"exact_match": "exact match", "f1": "F1"}


@dataclass(frozen=True)
class Curve:
    """An estimate by epoch with its interval; NaN where there is none. All are (epochs,)."""

    epochs: Array
    value: Array
    low: Array
    high: Array

    def describe(self, at: int = -1) -> str:
        """The estimate after one of the epochs, in words."""
        low, high = float(self.low[at]), float(self.high[at])
        ends = "" if np.isnan(low) else drawing.format_interval(low, high)
        return f"{drawing.format_number(float(self.value[at]))}{ends}"


def read_curve(table: pa.Table, name: str, score: str, golds: str) -> Curve | None:
    """The column `name` of the memorization table by epoch, of the first subset of questions; None where it has none.

    An epoch that is not known is 0.
    """
    if "questions" not in table.column_names or not table.num_rows:
        return None
    questions = table["questions"][0].as_py()
    kept = [
        at
        for at, row in enumerate(table.select(["questions", "score", "golds"]).to_pylist())
        if (row["questions"], row["score"], row["golds"]) == (questions, score, golds)
    ]
    if not kept:
        return None
    rows = table.take(pa.array(kept))
    columns = [numbers(rows, column) for column in ("epoch", name, f"{name}_low", f"{name}_high")]
    columns[0] = np.nan_to_num(columns[0])
    order = np.argsort(columns[0], kind="stable")
    return Curve(*(column[order] for column in columns))


def draw_curve(axes: Any, shown: Curve, colour: str, marker: str, dash: Any, band: bool = True) -> None:
    """Draw the estimates as a line, over the band of their intervals."""
    look = {"color": drawing.light(colour)}
    whole = ~np.isnan(shown.low) & ~np.isnan(shown.high)
    if band and len(shown.epochs) > 1:
        axes.fill_between(shown.epochs[whole], shown.low[whole], shown.high[whole], alpha=0.15, linewidth=0, **look)
    if band and len(shown.epochs) == 1:
        path = drawing.segment_path(shown.epochs[whole], shown.low[whole], shown.high[whole])
        axes.plot(*path, linewidth=1.8, solid_capstyle="butt", **look)
    size = 4.5 if len(shown.epochs) <= MARKED else 0
    axes.plot(shown.epochs, shown.value, marker=marker, markersize=size, linestyle=dash, linewidth=1.4, **look)


def set_epoch_axis(axes: Any, shown: Sequence[Curve], last: bool) -> None:
    """Set the axis of epochs; without ticks where the training is not known."""
    known = np.concatenate([each.epochs for each in shown])
    axes.set_xlim(*drawing.padded_limits([float(known.min()), float(known.max())], 0.03))
    drawing.set_ticks(axes, 6, 5, whole=True)
    if known.max() == 0:
        axes.set_xticks([])
    elif last:
        axes.set_xlabel("epoch")
    else:
        axes.tick_params(labelbottom=False)
