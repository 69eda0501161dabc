"""The table of canary scores as columns of numbers, and the marks by which a canary's model and its twin are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dashboards import drawing
from dashboards.columns import numbers

Array = NDArray[np.float64]

MODELS = {"canary": "canary model", "twin": "twin, never saw it"}
PREFIXES = {"canary": "", "twin": "twin_"}
MARKS = {"canary": "o", "twin": "^"}
LINES: dict[str, Any] = {"canary": "-", "twin": (0, (4, 2))}


@dataclass(frozen=True)
class Pairs:
    """One row per pair of a canary's model and its twin of the same seed, and per evaluation of theirs."""

    table: pa.Table

    def columns(self, *names: str) -> list[Array]:
        """These columns, each with the rows in which all of them have a number; empty where one is not there.

        One row a pair: of several evaluations, the first. Another one of the same models is no further sample.
        """
        *found, evaluation = self.evaluated(*names)
        return [values[evaluation == evaluation.min()] for values in found] if len(evaluation) else found

    def evaluated(self, *names: str) -> list[Array]:
        """These columns and then that of the evaluation, as above, but with the rows of all evaluations."""
        found = [numbers(self.table, name) for name in names]
        if any(len(values) != len(found[0]) for values in found):
            return [np.empty(0) for _ in (*names, "evaluation")]
        redrawn = numbers(self.table, "evaluation")
        found.append(redrawn if len(redrawn) else np.zeros(len(found[0])))
        there = ~np.isnan(found).any(axis=0)
        return [values[there] for values in found]


def middle(values: Array) -> tuple[float, float]:
    """The ends of the middle 95 % of these values; of a few of them, the smallest and the largest."""
    low, high = np.quantile(values, 0.025, method="lower"), np.quantile(values, 0.975, method="higher")
    return float(low), float(high)


def counted(pairs: int) -> str:
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


def key(models: dict[str, str] = MODELS, count: int = 1) -> list[Any]:
    """Entries of a legend, one for each kind of model."""
    from matplotlib.lines import Line2D

    look = {"markersize": 5.5, "alpha": 1.0}
    return [Line2D([], [], label=label, **mark(model, count) | look) for model, label in models.items()]
