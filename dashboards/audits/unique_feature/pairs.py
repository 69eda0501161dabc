"""The scores of pairs of canary and control models, and the marks for both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from dashboards import drawing, legend
from dashboards.chart import Layer
from dashboards.columns import numbers

Array = NDArray[np.float64]

MODELS = {"canary": "canary model", "twin": "control model, never saw it"}
KIND_NAMES = {"canary": "canary", "twin": "control"}
PREFIXES = {"canary": "", "twin": "twin_"}
MARKS = {"canary": "o", "twin": "^"}
LINES: dict[str, Any] = {"canary": "-", "twin": (0, (4, 2))}
DOTTED: dict[str, Any] = {"color": drawing.light("muted"), "linewidth": 1.2, "linestyle": (0, (1, 2))}


@dataclass(frozen=True)
class Pairs:
    """One row per pair of models and evaluation."""

    table: pa.Table

    def columns(self, *names: str) -> list[Array]:
        """Return these columns without rows that contain a null. The arrays are empty if a column is missing.

        There is one row per pair. Only the first of several evaluations is used, because the others are of the same
        models.
        """
        *columns, evaluation = self.evaluation_columns(*names)
        if len(evaluation):
            return [values[evaluation == evaluation.min()] for values in columns]
        return columns

    def evaluation_columns(self, *names: str) -> list[Array]:
        """Return these columns followed by the evaluation column, with the rows of all evaluations."""
        columns = [numbers(self.table, name) for name in names]
        if any(len(values) != len(columns[0]) for values in columns):
            return [np.empty(0) for _ in (*names, "evaluation")]
        redrawn = numbers(self.table, "evaluation")
        columns.append(redrawn if len(redrawn) else np.zeros(len(columns[0])))
        is_complete = ~np.isnan(columns).any(axis=0)
        return [values[is_complete] for values in columns]


def central_range(values: Array) -> tuple[float, float]:
    """Return the ends of the central 95 % of the values. For few values, these are the smallest and the largest."""
    low, high = np.quantile(values, 0.025, method="lower"), np.quantile(values, 0.975, method="higher")
    return float(low), float(high)


def describe_pairs(pairs: int) -> str:
    """Describe the models in this many pairs."""
    if pairs == 1:
        return "1 canary model and its control model"
    return f"{pairs} canary models and their control models"


def mark(model: str, count: int) -> dict[str, Any]:
    """Return the style of a model's dots, which are smaller if there are many."""
    if count <= 30:
        size = 5.5
    elif count <= 200:
        size = 4.0
    else:
        size = 2.5
    hollow = {}
    if model == "twin" and count <= 200:
        hollow = {"markerfacecolor": drawing.light("paper")}
    return {
        "marker": MARKS[model],
        "markersize": size,
        "color": drawing.light(model),
        "linestyle": "none",
        "markeredgewidth": 1.1 if hollow else 0,
        "alpha": 1.0 if count <= 200 else 0.5,
        **hollow,
    }


def dots(x: ArrayLike, y: ArrayLike, model: str, count: int | None = None, **look: Any) -> Layer:
    """Draw dots for one kind of model, in the style for `count` dots (by default, the number drawn)."""
    return lambda axes: axes.plot(x, y, **mark(model, np.size(x) if count is None else count) | look)


def legend_entries(count: int) -> list[Any]:
    """Return legend entries for the dots of both kinds of models, in the style for `count` dots."""
    look = {"markersize": 5.5, "alpha": 1.0}
    entries = []
    for model, label in MODELS.items():
        entries.append(legend.line(label, **mark(model, count) | look))
    return entries


def line_legend_entries() -> list[Any]:
    """Return legend entries for the lines of both kinds of models."""
    entries = []
    for model, label in MODELS.items():
        entries.append(legend.line(label, color=drawing.light(model), linewidth=2, linestyle=LINES[model]))
    return entries
