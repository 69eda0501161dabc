"""Whether images drawn from the model lie closer to the training images than others of the same kind do.

    rho_i = min over v in V of d(x_i, v) / min over s in S of d(x_i, s)

V are the images of the test split (which of CelebA are its validation images), S as many images drawn from the model
of all data, d the Euclidean distance between images downsampled by 2. rho above 1 says that the closest sample is
closer than the closest of the images that the model never saw.

Van den Burg & Williams 2021, "On memorization in probabilistic deep generative models", eq. 6. Their released analysis
takes every distance from the first image of each 256; here each is from the image itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.density.closest import Closest, closest, closest_other, halved
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.job import Inputs, task
from tasks.statistics import Estimate, proportion
from tasks.training.density_config import Split

if TYPE_CHECKING:
    from tasks.datasets.images import Images, Pixels

NEIGHBOURS = pa.schema(
    [
        ("row", pa.int64()),
        ("to_validation", pa.float64()),  # distance to the closest image of V, pixels in [0, 1]
        ("to_sample", pa.float64()),  # distance to the closest image of S
        ("ratio", pa.float64()),  # rho; null where the distance to a sample is 0
        ("validation_row", pa.int64()),  # which is closest, in the test split
        ("sample", pa.int64()),  # which is closest, among those drawn
    ]
)


@dataclass(frozen=True)
class Neighbouring:
    """The observations: the first `examples` training images (0: all) or, with test `asked`, all test images."""

    data: Dataset
    examples: int = 0
    asked: Split = "train"

    def __post_init__(self) -> None:
        if self.examples < 0:
            raise ValueError(f"examples is {self.examples}; it must be at least 0")
        if self.asked not in get_args(Split):
            raise ValueError(f"asked is {self.asked!r}; it must be one of {', '.join(get_args(Split))}")


@task(version=1, name="density.neighbours")
def neighbours(config: Neighbouring, inputs: Inputs) -> pa.Table:
    """Every observation's closest validation image and closest sample, and rho (NEIGHBOURS).

    The input is the FITTED table of the model of all data, whose last row holds the samples. A test image that is asked
    about is not compared with itself: its V are the others.
    """
    images = load(config.data)
    samples = halved(drawn(inputs[0], images))
    rows = halved(observed(config, images))
    alone = config.asked == "test"
    validation = closest_other(rows) if alone else closest(rows, halved(images.test_images))
    return table_of(validation, closest(rows, samples))


def drawn(fitted: pa.Table, images: Images) -> NDArray[np.float32]:
    """S, (drawn, h, w, c) in [0, 1]; ValueError unless they are as many as V and of one shape with it."""
    samples = fitted["samples"][-1]
    if not samples.is_valid:
        raise ValueError("no images were drawn from the model of all data; it must draw as many as there are to test")
    values = np.frombuffer(samples.as_buffer(), "<f4")
    expected = len(images.test_images)
    if values.size != expected * np.prod(images.shape):
        count = values.size / np.prod(images.shape)
        raise ValueError(
            f"{count:g} images of shape {images.shape} were drawn; they must be {expected}, as test images"
        )
    return values.reshape(expected, *images.shape)


def observed(config: Neighbouring, images: Images) -> Pixels:
    if config.asked == "test":
        return images.test_images
    there = len(images.train_images)
    if config.examples > there:
        raise ValueError(f"examples is {config.examples}; it must be at most {there}, the training images there are")
    return images.train_images[: config.examples or there]


def table_of(validation: Closest, samples: Closest) -> pa.Table:
    apart = ratio(validation.distances, samples.distances)
    columns = [
        pa.array(np.arange(len(apart))),
        pa.array(validation.distances),
        pa.array(samples.distances),
        pa.array(apart, mask=np.isnan(apart)),
        pa.array(validation.rows),
        pa.array(samples.rows),
    ]
    return pa.Table.from_arrays(columns, schema=NEIGHBOURS)


def ratio(to_validation: NDArray[np.float64], to_sample: NDArray[np.float64]) -> NDArray[np.float64]:
    """rho of each observation; NaN where the closest sample is equal to it, since no number is that large.

    It is 0 where a validation image is equal to it and no sample is. Eq. 6.
    """
    found = np.full(len(to_sample), np.nan)
    np.divide(to_validation, to_sample, out=found, where=to_sample > 0)
    return found


def copied(table: pa.Table) -> Estimate:
    """The share of observations that a sample is equal to, downsampled, with its Wilson interval: those without rho."""
    return proportion(table["ratio"].null_count, table.num_rows)
