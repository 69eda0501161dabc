"""Which pictures are memorised: their label is inferred by the model that was trained on them, and not by the other.

memorised: right by the target alone; misrepresented: by the reference alone, which happens by chance;
correlated: by both; unassociated: by neither. As shares of all pictures that are asked about, of both sets.

Meehan et al. 2023, section 4.2. That misrepresented pictures say how many are memorised by chance is tested here by
McNemar's exact test, picture by picture; the paper compares the two shares by eye.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tasks.audits.deja_vu.accuracy import Way
from tasks.audits.deja_vu.config import About, DejaVu
from tasks.audits.deja_vu.measures import inferences
from tasks.audits.deja_vu.measures.inferences import SETS, Cell, cells
from tasks.audits.deja_vu.trainings import Trainings
from tasks.job import Inputs, Job, task
from tasks.measure import Measure, Tables
from tasks.statistics import Estimate, proportion, proportion_greater
from tasks.summaries import Row, row

BOTH = "both"
NAMES = ("correlated", "memorised", "misrepresented", "unassociated")
ENDS = ("", "_low", "_high")

# One row for each epoch, layer, number of neighbours and way.
CATEGORIES = pa.schema(
    [
        ("epoch", pa.int64()),
        ("layer", pa.int32()),
        ("k", pa.int32()),
        ("way", pa.string()),  # the set whose pictures are asked about; both: all pictures together
        *((f"{name}{end}", pa.float64()) for name in NAMES for end in ENDS),
        ("p_value", pa.float64()),  # that more are memorised than misrepresented
        ("pictures", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Nothing:
    """The categories need no setting."""


@task(version=1, name="deja_vu.categories", gathers=True)
def categories(config: Nothing, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """The four categories (CATEGORIES) by epoch, layer, number of neighbours and way."""
    rows = [each for table in inputs for cell in cells(table) for each in cell_rows(cell)]
    return pa.Table.from_pylist(rows, CATEGORIES)


def cell_rows(cell: Cell) -> Iterator[dict[str, Any]]:
    """The rows of one epoch, layer and number of neighbours: that of both sets first."""
    counted = {name: counts(cell.way(name)) for name in SETS}
    for way, found in {BOTH: {name: sum(each[name] for each in counted.values()) for name in NAMES}, **counted}.items():
        n = sum(found.values())
        if n:
            only = found["memorised"] + found["misrepresented"]
            p = proportion_greater(found["memorised"], only, 0.5)
            about = {"epoch": cell.epoch, "layer": cell.layer, "k": cell.k, "way": way, "pictures": n}
            yield about | shares(found, n) | {"p_value": 1.0 if p is None else p}


def counts(way: Way) -> dict[str, int]:
    """How many pictures are of each category."""
    target, reference = way.target.correct, way.reference.correct
    masks = (target & reference, target & ~reference, ~target & reference, ~target & ~reference)
    return {name: int(np.count_nonzero(mask)) for name, mask in zip(NAMES, masks, strict=True)}


def shares(found: dict[str, int], n: int) -> dict[str, float | None]:
    """The columns of the shares with their intervals (Wilson's)."""
    columns: dict[str, float | None] = {}
    for name, count in found.items():
        share = proportion(count, n)
        columns |= dict(zip((f"{name}{end}" for end in ENDS), (share.value, share.low, share.high), strict=True))
    return columns


def plan(config: DejaVu, trainings: Trainings) -> Job | tuple[()]:
    """None for a given encoder: the reference alone is right of other pictures for being another kind of model."""
    return () if config.given.there else Job(categories, Nothing(), (inferences.plan(config, trainings),))


def rows(tables: Tables, about: About) -> Iterator[Row]:
    """The shares of the decisive epoch, layer and number of neighbours."""
    table = tables.one(CATEGORIES)
    for each in [] if table is None else table.to_pylist():
        decisive = (each["epoch"], each["layer"], each["k"]) == (about.epoch, about.layer, about.k)
        if decisive and each["way"] == BOTH:
            setting = {name: each[name] for name in ("epoch", "k", "layer")}
            for name in ("memorised", "misrepresented", "correlated", "unassociated"):
                share = Estimate(each[name], each[f"{name}_low"], each[f"{name}_high"], each["pictures"])
                p = each["p_value"] if name == "memorised" else None
                yield row(f"share {name}", setting, share, "picture", None, p)


MEASURE = Measure("categories", CATEGORIES, plan, rows)
