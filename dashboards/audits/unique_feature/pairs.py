"""The scores of pairs of a canary's model and its twin, and the marks of both."""

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

MODELS = {"canary": "canary model", "twin": "twin, never saw it"}
PREFIXES = {"canary": "", "twin": "twin_"}
MARKS = {"canary": "o", "twin": "^"}
LINES: dict[str, Any] = {"canary": "-", "twin": (0, (4, 2))}
DOTTED: dict[str, Any] = {"color": drawing.light("muted"), "linewidth": 1.2, "linestyle": (0, (1, 2))}


@dataclass(frozen=True)
class Pairs:
    """One row per pair of a canary's model and its twin of the same seed, and per evaluation of theirs."""

    table: pa.Table

    def columns(self, *names: str) -> list[Array]:
        """These columns, with the rows in which none is null; empty if one is missing.

        One row per pair: of several evaluations only the first, since others are of the same models.
        """
        *columns, evaluation = self.evaluation_columns(*names)
        return [values[evaluation == evaluation.min()] for values in columns] if len(evaluation) else columns

    def evaluation_columns(self, *names: str) -> list[Array]:
        """These columns followed by that of the evaluation, with the rows of all evaluations."""
        columns = [numbers(self.table, name) for name in names]
        if any(len(values) != len(columns[0]) for values in columns):
            return [np.empty(0) for _ in (*names, "evaluation")]
        redrawn = numbers(self.table, "evaluation")
        columns.append(redrawn if len(redrawn) else np.zeros(len(columns[0])))
        there = ~np.isnan(columns).any(axis=0)
        return [values[there] for values in columns]


def central_range(values: Array) -> tuple[float, float]:
    """The ends of the middle 95 % of these values; of a few of them, the smallest and the largest."""
    low, high = np.quantile(values, 0.025, method="lower"), np.quantile(values, 0.975, method="higher")
    return float(low), float(high)


def describe_pairs(pairs: int) -> str:
    """The models of so many pairs in words."""
    return "1 canary model and its twin" if pairs == 1 else f"{pairs} canary models and the twin of each"


def mark(model: str, count: int) -> dict[str, Any]:
    """How a model's dots look; smaller where there are many."""
    size = 5.5 if count <= 30 else 4.0 if count <= 200 else 2.5
    hollow = {"markerfacecolor": drawing.light("paper")} if model == "twin" and count <= 200 else {}
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
    """The dots of a model's kind, which look as where there are `count` of them: these, unless given."""
    return lambda axes: axes.plot(x, y, **mark(model, np.size(x) if count is None else count) | look)


def legend_entries(count: int) -> list[Any]:
    """The legend's entries of the dots of both kinds of models, where there are so many of each."""
    look = {"markersize": 5.5, "alpha": 1.0}
    return [legend.line(label, **mark(model, count) | look) for model, label in MODELS.items()]


def line_legend_entries() -> list[Any]:
    """The legend's entries of the lines of both kinds of models."""
    return [
        legend.line(label, color=drawing.light(model), linewidth=2, linestyle=LINES[model])
        for model, label in MODELS.items()
    ]
