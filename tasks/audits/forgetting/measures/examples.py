"""One image of each class from each part of the data, with the numbers of images and groups, such as patients.

Images are drawn uniformly from their class and part. Liu & Tsaftaris 2020, "Have you forgotten?", figure 2: ACDC's
groups at both field strengths.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pyarrow as pa

from tasks.audits.forgetting.data_sets import DataSets
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.ranges import AtLeast, Ranged
from tasks.contract.summaries import Row, alone, row
from tasks.datasets.catalog import load
from tasks.datasets.copies import groups_of
from tasks.datasets.mixtures import Part, Remainder
from tasks.numerics import seeds

EXAMPLES = pa.schema(
    [
        ("part", pa.string()),  # query, calibration, outside
        ("data", pa.string()),  # data set name, without folders
        ("label", pa.int32()),
        ("name", pa.string()),  # class name; null if it has none
        ("row", pa.int64()),  # row of the data set's training split
        ("images", pa.int64()),  # images of the class in the part
        ("groups", pa.int64()),  # groups of these images, such as patients; one group per image if there are none
    ]
)


@dataclass(frozen=True)
class Examples(Ranged):
    """The parts from which one image of each class is drawn."""

    query: Part | Remainder
    calibration: Part
    outside: Part | None = None
    seed: Annotated[int, AtLeast(0)] = 0

    @property
    def parts(self) -> dict[str, Part | Remainder]:
        parts = {"query": self.query, "calibration": self.calibration, "outside": self.outside}
        return {name: part for name, part in parts.items() if part is not None}


@task(version=2, name="forgetting.examples")
def examples(config: Examples, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """Draw one image per class from each part (EXAMPLES), uniformly. Empty classes have none."""
    images = [image for name, part in config.parts.items() for image in _draw_examples(name, part, config.seed)]
    return pa.Table.from_pylist(images, EXAMPLES)


def _draw_examples(name: str, part: Part | Remainder, seed: int) -> Iterator[dict[str, Any]]:
    """Yield the part's rows of the table, in class order."""
    images = load(part.data)
    indices = part.rows(images)
    labels = images.train.labels[indices]
    groups = groups_of(images, indices)
    for label in np.unique(labels).tolist():
        class_rows = indices[labels == label]
        yield {
            "part": name,
            "data": part.data.named().name,
            "label": label,
            "name": images.names[label] if images.names else None,
            "row": int(seeds.generator(seed, name, label).choice(class_rows)),
            "images": len(class_rows),
            "groups": len(np.unique(groups[labels == label])),
        }


def plan(data: DataSets, _scoring: object) -> Job:
    seed = seeds.derive(data.seed, "examples")
    return Job(examples, Examples(data.query_part, data.calibration, data.outside, seed))


def rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    """Yield the numbers of images and groups per class and part."""
    for image in tables.rows(EXAMPLES):
        setting = {"part": image["part"], "class": image["name"] or image["label"]}
        yield row("images", setting, alone(float(image["images"]), image["groups"]), "group")


MEASURE = Measure("examples", EXAMPLES, plan, rows)
