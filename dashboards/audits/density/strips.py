"""Strips: rows with the median and the middle 90 % of both scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dashboards import drawing, layout, legend
from dashboards.audits.density import kinds
from dashboards.audits.density.observations import Array


@dataclass(frozen=True)
class Strip:
    """One row: the 5 % quantile, median and 95 % quantile of each score over `n` observations."""

    name: str
    spreads: Mapping[str, tuple[float, float, float]]
    n: int

    @property
    def median(self) -> float:
        """The median of the matched score, or of the other without it."""
        return next(self.spreads[score][1] for score in kinds.SCORES if score in self.spreads)

    def describe(self) -> str:
        """The row in words."""
        words = [
            (
                f"{kinds.SCORES[score]} {drawing.format_number(middle)}, "
                f"{drawing.format_number(low)} to {drawing.format_number(high)}"
            )
            for score, (low, middle, high) in self.spreads.items()
        ]
        return f"{self.name} (n {self.n:,}): {'; '.join(words)}."


def strip(name: str, scores: Mapping[str, Array]) -> Strip | None:
    """The strip of these scores; None if they have no value."""
    there = {score: values[~np.isnan(values)] for score, values in scores.items()}
    there = {score: there[score] for score in kinds.SCORES if score in there and len(there[score])}
    if not there:
        return None
    spreads = {}
    for score, values in there.items():
        low, middle, high = (float(value) for value in np.quantile(values, (0.05, 0.5, 0.95)))
        spreads[score] = (low, middle, high)
    return Strip(name, spreads, max(map(len, there.values())))


def draw_strips(strips: Sequence[Strip], name: str) -> str:
    """The strips as SVG, one below the other in their order, on one scale with a line at 0."""
    scores = [score for score in kinds.SCORES if any(score in strip.spreads for strip in strips)]
    figure, axes, y = layout.row_axes([strip.name for strip in strips], legend.ROW + 0.08)
    axes.axvline(0, **drawing.NULL)
    for at, score in enumerate(scores):
        colour, marker, _ = kinds.SCORE_LOOKS[score]
        rows = [index for index, strip in enumerate(strips) if score in strip.spreads]
        low, middle, high = np.array([strips[index].spreads[score] for index in rows]).T
        height = y[rows] + ((len(scores) - 1) / 2 - at) * 0.36
        across, up = drawing.segment_path(height, low, high)
        axes.plot(up, across, color=drawing.light(colour), linewidth=1.8, solid_capstyle="butt")
        axes.plot(middle, height, marker, color=drawing.light(colour), markersize=4.5, linestyle="none")
    ends = (end for strip in strips for spread in strip.spreads.values() for end in spread)
    axes.set_xlim(*drawing.padded_limits([0.0, *ends]))
    axes.set_xlabel("nats")
    legend.add_above(
        figure, [kinds.score_legend_entry(score, linestyle="-", linewidth=1.8, markersize=4.5) for score in scores]
    )
    return drawing.svg(figure, name)
