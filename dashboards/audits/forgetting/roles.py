"""The roles of models and the decisions of the audit, and how each looks in every figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dashboards import drawing, legend

# Colour, mark and dash. Who has forgotten looks like calibration models, who has not like query models.
ROLES: Mapping[str, legend.Series] = {
    "query": ("canary", "^", (0, (5, 1.5))),
    "calibration": ("twin", "o", (0, (1, 1.2))),
    "partial": ("ochre", "s", (0, (4, 1, 1, 1))),
    "target": ("accent", "D", "-"),
}
DECISIONS = {
    "forgotten": ("twin", "o"),
    "undecided": ("ochre", "s"),
    "not judged": ("violet", "X"),
    "not forgotten": ("canary", "^"),
}
# The line that a decision compares intervals with, and that at what is seen of models trained like the query models.
BOUND: Mapping[str, Any] = {"color": drawing.light("ink"), "linewidth": 1.0, "linestyle": "-"}
FLOOR: Mapping[str, Any] = {"color": drawing.light("muted"), "linewidth": 1.4, "linestyle": (0, (1, 1.5))}


def two_sided_mark(size: float = 5.5) -> dict[str, Any]:
    """The mark of what the published, two-sided distance gives in the same run."""
    return {
        "color": drawing.light("violet"),
        "marker": "v",
        "markersize": size,
        "markerfacecolor": drawing.light("paper"),
    }


def legend_height(legends: int) -> float:
    """The inches over rows of names that hold a legend of so many rows."""
    return 0.21 * legends + 0.18
