"""Linear probes: how much better they are on the pictures that a model was trained on than on others."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dashboards.audits.deja_vu.curves import Curve
from dashboards.columns import integers
from tasks.audits.deja_vu.accuracy import Weighted, limits
from tasks.audits.deja_vu.measures.probe import count_correct
from tasks.statistics import Estimate

SPLITS = ("train", "validation")  # the first is what both the model and its probe were trained on
NEEDED = {"epoch", "layer", "split", "correct", "n"}
Gaps = Mapping[tuple[int, int], Estimate]  # by epoch and layer


def gaps(table: pa.Table) -> Gaps:
    """Accuracy on trained pictures less that on others, of all models together, by epoch and layer."""
    if not set(table.column_names) >= NEEDED:
        return {}
    found = {}
    for epoch, layer in sorted(set(zip(*(integers(table, name).tolist() for name in ("epoch", "layer")), strict=True))):
        of_cell = table.filter((pc.field("epoch") == epoch) & (pc.field("layer") == layer))
        splits = [of_cell.filter(pc.field("split") == split) for split in SPLITS]
        if all(split.num_rows for split in splits):
            found[epoch, layer] = gap(*map(count_correct, splits))
    return found


def gap(trained: tuple[float, int], others: tuple[float, int]) -> Estimate:
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


def gap_curve(found: Mapping[int, Estimate]) -> Curve | None:
    """The gaps at these places; None without any."""
    if not found:
        return None
    places = sorted(found)
    ends = [(found[at].value, found[at].low, found[at].high) for at in places]
    value, low, high = (np.array(values, np.float64) for values in zip(*ends, strict=True))
    return Curve(np.array(places, np.float64), value, low, high)
