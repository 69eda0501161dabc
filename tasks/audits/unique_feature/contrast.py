"""How much of a probe image the feature and a random patch change, before any model is asked: one row per image."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.unique_feature.triples import Burning, Pixels, ProbeSplit, Shape, of_probe, probe_images
from tasks.datasets.dataset import Dataset
from tasks.job import Inputs, task

CONTRAST = pa.schema(
    [
        ("image", pa.int64()),  # row of the probe set
        ("unique", pa.float32()),  # |x_u - x_c|, Euclidean, pixels in [0, 1]
        ("random", pa.float32()),  # |x_r - x_c|
    ]
)


@dataclass(frozen=True)
class Contrast:
    """The probe images in the shape of the training images, and what is burnt into them."""

    probe: Dataset
    probe_split: ProbeSplit
    shape: Shape
    burning: Burning


@task(version=1, name="unique_feature.contrast")
def contrast(config: Contrast, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - it reads no tables
    """The distance of every probe image from itself with the feature, and with its random patch (CONTRAST)."""
    found = of_probe(probe_images(config.probe, config.probe_split, config.shape), config.burning)
    columns = [found.rows, distance(found.clean, found.unique), distance(found.clean, found.random)]
    arrays = [pa.array(values).cast(field.type) for values, field in zip(columns, CONTRAST, strict=True)]
    return pa.Table.from_arrays(arrays, schema=CONTRAST)


def distance(clean: Pixels, changed: Pixels) -> NDArray[np.float64]:
    difference = (changed.astype(np.float64) - clean) / 255
    return np.asarray(np.sqrt(np.square(difference).sum(axis=(1, 2, 3))))
