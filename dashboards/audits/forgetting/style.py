"""How roles and decisions look in every figure of the audit, and rows of things that have names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dashboards import drawing
from dashboards.estimates import fitted

LEFT, RIGHT = 0.75, 0.2  # inches beside the axes
ROW = 0.27  # inches of a legend's row
MOST = 40  # rows of things in one figure
LETTERS = 24  # of a row's name
# Colour, mark and dash. Who has forgotten looks like calibration models, who has not like query models.
ROLES: Mapping[str, tuple[str, str, Any]] = {
    "query": ("canary", "^", (0, (5, 1.5))),
    "calibration": ("twin", "o", (0, (1, 1.2))),
    "target": ("accent", "D", "-"),
}
DECISIONS = {"forgotten": ("twin", "o"), "undecided": ("ochre", "s"), "not forgotten": ("canary", "^")}


def null() -> dict[str, Any]:
    """The line at what is seen of models that are trained like the calibration models."""
    return {"color": drawing.light("muted"), "linewidth": 1.2, "linestyle": (0, (4, 3))}


def bound() -> dict[str, Any]:
    """The line that a decision compares intervals with."""
    return {"color": drawing.light("ink"), "linewidth": 1.0, "linestyle": "-"}


def floor() -> dict[str, Any]:
    """The line at what is seen of models that are trained like the query models."""
    return {"color": drawing.light("muted"), "linewidth": 1.4, "linestyle": (0, (1, 1.5))}


def two_sided(size: float = 5.5) -> dict[str, Any]:
    """The mark of what the published, two-sided distance gives in the same run."""
    return {
        "color": drawing.light("violet"),
        "marker": "v",
        "markersize": size,
        "markerfacecolor": drawing.light("paper"),
    }


def of_line(label: str, **look: Any) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, **look)


def legend(figure: Any, handles: Sequence[Any], beside: int = 2) -> None:
    figure.legend(
        handles=list(handles), loc="upper left", ncols=beside, bbox_to_anchor=(0, 1), borderaxespad=0.1,
        columnspacing=1.2,
    )  # fmt: skip


def rows(names: Sequence[str], legends: int, right: float = RIGHT) -> tuple[Any, Any, Any]:
    """A figure with a row for each name, its axes, and how high each row stands, from the top down."""
    short = [fitted(name.split(", "), LETTERS) for name in names]
    left = 0.25 + 0.085 * max(map(len, short))
    step = 0.3 if len(names) <= 16 else 0.22
    figure = drawing.canvas(step * len(names) + 0.21 * legends + 0.68)
    axes = drawing.place(figure, left, 0.5, drawing.WIDTH - left - right, step * len(names))
    y = np.arange(len(names))[::-1]
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.set_yticks(y, short, color=drawing.light("ink"))
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    return figure, axes, y


def named_ticks(axes: Any) -> None:
    """Round ticks across; the rows keep their names."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))


def rest(shown: int, of: int, things: str) -> str:
    """What is left out of a figure, in words; nothing where all is drawn."""
    return f" The first {shown} of {of} {things} are drawn." if of > shown else ""
