"""Distances from the clean image to probe images with the feature and with a random patch: one row per image.

    |x_u - x_c|  and  |x_r - x_c|, Euclidean, pixels in [0, 1]

If the feature changes an image by more than a random patch does, M is above 0 for that reason alone. The distances are
ours; Figure 2 of Hartley & Tsaftaris 2022 shows such images.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.unique_feature.config import ProbeSplit, Shape
from tasks.audits.unique_feature.design import Design
from tasks.audits.unique_feature.evaluation import Burning, probe_images, probe_set_triples
from tasks.audits.unique_feature.questions import ProbePictures
from tasks.audits.unique_feature.trainings import Trainings
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.schemas import make_table
from tasks.contract.summaries import Row, row
from tasks.datasets.dataset import Dataset
from tasks.datasets.picture_rows import Sliceable, slices
from tasks.numerics.statistics import mean, paired_greater

CONTRAST = pa.schema(
    [
        ("image", pa.int64()),  # row in the probe set
        ("unique", pa.float32()),  # |x_u - x_c|, Euclidean, pixels in [0, 1]
        ("random", pa.float32()),  # |x_r - x_c|
    ]
)


@dataclass(frozen=True)
class Contrast:
    """The probe images in the shape of the training images, and their patches."""

    probe: Dataset
    probe_split: ProbeSplit
    shape: Shape
    burning: Burning


@task(version=1, name="unique_feature.contrast")
def contrast(config: Contrast, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - it reads no tables
    """Compute the distance of every probe image from itself with the feature, and with its random patch (CONTRAST)."""
    triples = probe_set_triples(probe_images(config.probe, config.probe_split, config.shape), config.burning)
    return make_table(
        CONTRAST,
        image=triples.rows,
        unique=distance(triples.clean, triples.unique),
        random=distance(triples.clean, triples.random),
    )


def distance(clean: Sliceable, changed: Sliceable) -> NDArray[np.float64]:
    distances = []
    for part, pixels in slices(clean):
        difference = (changed[part].astype(np.float64) - pixels) / 255
        distances.append(np.sqrt(np.square(difference).sum(axis=(1, 2, 3))))
    return np.concatenate(distances)


def plan(design: Design, trainings: Trainings) -> tuple[Job, ...]:
    if not isinstance(design.question, ProbePictures):
        return ()
    return (Job(contrast, Contrast(design.probe, design.probe_split, trainings.shape, design.burning)),)


def rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    """Yield the mean distance of probe images with the feature from the clean ones; the null uses a random patch
    instead.
    """
    metric = "change of a probe image"
    unit = "probe image"
    for table in tables.select(CONTRAST):
        unique = table["unique"].to_numpy().astype(np.float64)
        random = table["random"].to_numpy().astype(np.float64)
        p_value = paired_greater(unique, random).p_value
        yield row(metric, {"by": "feature"}, mean(unique), unit, mean(random).value, p_value)
        yield row(metric, {"by": "random patch"}, mean(random), unit)


MEASURE = Measure("contrast", CONTRAST, plan, rows)
