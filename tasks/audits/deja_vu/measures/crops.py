"""What is shown of each picture that is attacked: the rectangle without its object, or nothing where it is too small.

Meehan et al. 2023, section 3 and appendix A.2.1; the corner crop, appendix A.8.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from tasks.audits.deja_vu.about import About
from tasks.audits.deja_vu.attack import Attack, attack, crops_of
from tasks.audits.deja_vu.config import DejaVu
from tasks.audits.deja_vu.trainings import Trainings
from tasks.datasets.catalog import load_with_boxes
from tasks.job import Inputs, Job, task
from tasks.measure import Measure, Tables
from tasks.statistics import proportion
from tasks.summaries import Row, row

# One row for each picture of both sets that has boxes, or for a corner crop for each; sorted by set and id.
CROPS = pa.schema(
    [
        ("set", pa.string()),
        ("id", pa.string()),
        ("label", pa.int32()),
        ("left", pa.int32()),  # of the crop, in pixels; null where it is left out
        ("top", pa.int32()),
        ("right", pa.int32()),  # outside, as is the bottom
        ("bottom", pa.int32()),
    ]
)
SIDES = ("left", "top", "right", "bottom")


@task(version=1, name="deja_vu.crops")
def crops(config: Attack, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - crops depend on no table
    """The crops of both sets (CROPS)."""
    pictures = load_with_boxes(config.data, config.correlation)
    found = crops_of(config, pictures)
    windows = {row: [int(side) for side in window] for row, window in zip(found.rows, found.windows, strict=True)}
    return pa.Table.from_pylist(
        [
            {"set": name, "id": pictures.ids[at], "label": int(pictures.labels[at])}
            | dict(zip(SIDES, windows.get(at, [None] * 4), strict=True))
            for name, rows in found.attacked.items()
            for at in rows
        ],
        CROPS,
    )


def plan(config: DejaVu, trainings: Trainings) -> Job:  # noqa: ARG001 - crops depend on no training
    return Job(crops, attack(config))


def rows(tables: Tables, about: About) -> Iterator[Row]:  # noqa: ARG001 - one thing is said of all
    """How many pictures are left out."""
    table = tables.one(CROPS)
    if table is not None and table.num_rows:
        left_out = pc.sum(pc.is_null(table["left"])).as_py()
        yield row("left out", {}, proportion(left_out, table.num_rows), "picture")


MEASURE = Measure("crops", CROPS, plan, rows)
