"""Linear probes: how much better they are on the pictures that a model was trained on than on others."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from dashboards.audits.deja_vu.courses import Course
from dashboards.columns import integers, texts
from tasks.audits.deja_vu.few_pictures import Weighted, limits
from tasks.statistics import Estimate

TRAIN = "train"  # the split that both the model and its probe were trained on
NEEDED = {"epoch", "layer", "split", "correct", "n"}
Gaps = Mapping[tuple[int, int], Estimate]  # by epoch and layer


def gaps(table: pa.Table) -> Gaps:
    """Accuracy on trained pictures less that on others, of all models together, by epoch and layer."""
    if not set(table.column_names) >= NEEDED:
        return {}
    counts: dict[tuple[int, int], dict[bool, tuple[int, int]]] = {}
    columns = [integers(table, name).tolist() for name in ("epoch", "layer", "correct", "n")]
    for split, epoch, layer, correct, n in zip(texts(table, "split").tolist(), *columns, strict=True):
        of_cell = counts.setdefault((epoch, layer), {})
        right, asked = of_cell.get(split == TRAIN, (0, 0))
        of_cell[split == TRAIN] = (right + correct, asked + n)
    return {
        cell: gap(of_cell[True], of_cell[False])
        for cell, of_cell in sorted(counts.items())
        if all(of_cell.get(trained, (0, 0))[1] for trained in (True, False))
    }


def gap(trained: tuple[int, int], others: tuple[int, int]) -> Estimate:
    """The difference of two shares, each (right, asked), of different pictures, with its 95 % interval.

    Newcombe 1998, "Interval estimation for the difference between independent proportions", method 10.
    """
    parts = [
        Weighted(weight, np.array([right / asked]), np.array([asked]))
        for weight, (right, asked) in ((1, trained), (-1, others))
    ]
    low, high = limits(parts)
    value = trained[0] / trained[1] - others[0] / others[1]
    return Estimate(value, float(low[0]), float(high[0]), trained[1] + others[1])


def as_course(found: Mapping[int, Estimate]) -> Course | None:
    """The gaps at these places; None without any."""
    if not found:
        return None
    places = sorted(found)
    ends = [(found[at].value, found[at].low, found[at].high) for at in places]
    value, low, high = (np.array(values, np.float64) for values in zip(*ends, strict=True))
    return Course(np.array(places, np.float64), value, low, high)
