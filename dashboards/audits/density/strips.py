"""Rows of spreads: a median with the middle 90 % of values, of both scores, for things that have names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dashboards import drawing
from dashboards.audits.density import style
from dashboards.audits.density.observed import Array
from dashboards.estimates import fitted

MOST = 40  # rows
LETTERS = 24  # of a row's name


@dataclass(frozen=True)
class Strip:
    """One row: of each score its 5 % quantile, median and 95 % quantile, over so many observations."""

    name: str
    spreads: Mapping[str, tuple[float, float, float]]
    n: int

    @property
    def median(self) -> float:
        """Of the matched score, or of what there is."""
        return next(self.spreads[score][1] for score in style.SCORES if score in self.spreads)

    def said(self) -> str:
        words = [
            f"{style.SCORES[score]} {drawing.number(middle)}, {drawing.number(low)} to {drawing.number(high)}"
            for score, (low, middle, high) in self.spreads.items()
        ]
        return f"{self.name} (n {self.n:,}): {'; '.join(words)}."


def strip(name: str, scores: Mapping[str, Array]) -> Strip | None:
    """The strip of these scores; None where there is no number among them."""
    there = {score: values[~np.isnan(values)] for score, values in scores.items()}
    there = {score: there[score] for score in style.SCORES if score in there and len(there[score])}
    if not there:
        return None
    spreads = {}
    for score, values in there.items():
        low, middle, high = (float(each) for each in np.quantile(values, (0.05, 0.5, 0.95)))
        spreads[score] = (low, middle, high)
    return Strip(name, spreads, max(map(len, there.values())))


def drawn(strips: Sequence[Strip], name: str) -> str:
    """The strips as SVG, one below the other in their order, on one scale with a line at 0."""
    names = [fitted(each.name.split(", "), LETTERS) for each in strips]
    left = 0.25 + 0.085 * max(map(len, names))
    scores = [score for score in style.SCORES if any(score in each.spreads for each in strips)]
    step = 0.3 if len(strips) <= 16 else 0.22
    figure = drawing.canvas(step * len(strips) + style.ROW + 0.58)
    axes = drawing.place(figure, left, 0.5, drawing.WIDTH - left - style.RIGHT, step * len(strips))
    axes.axvline(0, **style.null())
    y = np.arange(len(strips))[::-1]
    for at, score in enumerate(scores):
        colour, marker, _ = style.OF_SCORE[score]
        rows = [index for index, each in enumerate(strips) if score in each.spreads]
        low, middle, high = np.array([strips[index].spreads[score] for index in rows]).T
        height = y[rows] + ((len(scores) - 1) / 2 - at) * 0.36
        across, up = drawing.broken(height, low, high)
        axes.plot(up, across, color=drawing.light(colour), linewidth=1.8, solid_capstyle="butt")
        axes.plot(middle, height, marker, color=drawing.light(colour), markersize=4.5, linestyle="none")
    axes.set_xlim(*drawing.span([0.0, *(end for each in strips for spread in each.spreads.values() for end in spread)]))
    axes.set_ylim(-0.6, len(strips) - 0.4)
    drawing.ticks(axes)
    axes.set_yticks(y, names, color=drawing.light("ink"))
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("nats")
    look = {"linestyle": "-", "linewidth": 1.8, "markersize": 4.5}
    handles = []
    for score in scores:
        handle = style.of_score(score)
        handle.set(**look)
        handles.append(handle)
    style.legend(figure, handles)
    return drawing.svg(figure, name)
