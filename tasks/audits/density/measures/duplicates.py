"""The closest pairs of training images: exact or near duplicates, which are memorised because they are repeated.

An image that occurs several times has more weight in training. The score does not measure this kind of memorisation:
if one copy is held out, the model still learns from the others.

Distances between images are the paper's: Euclidean, in pixel space, after downsampling by 2. Van den Burg & Williams
2021, "On memorization in probabilistic deep generative models", sections 2 and 4.4 and figure 6. They found their
duplicates by eye; here every training image is compared with all others.

CIFAR-10's 50,000 images take half a minute of one core with AVX-512, and 0.6 GB in addition to the images; the time
grows with the square of their number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.density.config import Density, DuplicateMeasure, Memorization, NearDuplicates
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.ranges import AtLeast, Ranged
from tasks.contract.schemas import make_table
from tasks.contract.summaries import Row, alone, row
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset

PART = 1024  # images downsampled at a time


@dataclass(frozen=True, eq=False)
class Closest:
    """The closest image to each image: distances (n,) and rows (n,)."""

    distances: NDArray[np.float64]
    rows: NDArray[np.int64]


def first_images(images: NDArray[Any], count: int) -> NDArray[Any]:
    """The first `count` training images (0: all). Raises ValueError if there are fewer."""
    if count > len(images):
        raise ValueError(f"examples is {count}; it must be at most {len(images)}, the number of training images")
    return images[: count or len(images)]


def halve(images: NDArray[Any]) -> NDArray[np.float32]:
    """The images (n, h, w, c) at half their size as rows (n, h/2 * w/2 * c): means of 2 x 2 pixels, in [0, 1].

    Pixels are bytes, or float32 in [0, 1]; equal images give equal rows in both formats. The last row or column of an
    odd height or width is dropped. Raises ValueError for images of fewer than 2 x 2 pixels.
    """
    count, height, width, channels = images.shape
    if min(height, width) < 2:
        raise ValueError(f"images are {height} x {width}; to be downsampled by 2 they must be at least 2 x 2")
    out = np.empty((count, height // 2, width // 2, channels), np.float32)
    for first in range(0, count, PART):
        part = images[first : first + PART, : height // 2 * 2, : width // 2 * 2]
        if part.dtype == np.uint8:
            part = part / np.float32(255)
        else:
            part = part.astype(np.float32)
        rows = part[:, ::2] + part[:, 1::2]
        out[first : first + PART] = (rows[:, :, ::2] + rows[:, :, 1::2]) / 4
    return out.reshape(count, -1)


def closest(rows: NDArray[np.float32], among: NDArray[np.float32]) -> Closest:
    """The closest of `among` to each row; the first of equally close ones."""
    from tasks.numerics.nearest_neighbours import nearest

    neighbours = nearest(rows, among, 1)
    return Closest(neighbours.distances[:, 0], neighbours.rows[:, 0])


def closest_other(rows: NDArray[np.float32]) -> Closest:
    """The closest other row to each row; the first of equally close ones. Raises ValueError for a single row."""
    from tasks.numerics.nearest_neighbours import nearest

    if len(rows) < 2:
        raise ValueError("there is one image; to have a closest other there must be at least 2")
    neighbours = nearest(rows, rows, 2)
    # Of several equal rows the first two are nearest to all, so a row is not always among its own neighbours.
    column = (neighbours.rows[:, 0] == np.arange(len(rows))).astype(np.intp)
    row_numbers = np.arange(len(rows))
    return Closest(neighbours.distances[row_numbers, column], neighbours.rows[row_numbers, column])


DUPLICATES = pa.schema(
    [
        ("rank", pa.int32()),  # from 1, the closest pair
        ("row", pa.int64()),  # the lower row
        ("other", pa.int64()),
        ("distance", pa.float64()),  # Euclidean, pixels in [0, 1]; 0 for exact duplicates
        ("label", pa.int32()),  # null if the data have one class
        ("other_label", pa.int32()),
    ]
)


@dataclass(frozen=True)
class Duplicates(Ranged):
    """The number of listed pairs among the first `examples` training images (0: all)."""

    data: Dataset
    examples: Annotated[int, AtLeast(0)] = 0
    count: Annotated[int, AtLeast(1)] = 20


@task(version=1, name="density.duplicates")
def duplicates(config: Duplicates, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """The closest pairs of an image and its closest other image, in ascending order of distance (DUPLICATES).

    Each pair is listed once. Of three similar images, the third is paired with the closer of the others: every image
    is in some pair, but not every two images form a pair.
    """
    images = load(config.data)
    pairs, distances = closest_pairs(closest_other(halve(first_images(images.train_images, config.examples))))
    pairs = pairs[: config.count]
    distances = distances[: config.count]
    labels = images.train_labels[pairs]
    is_labelled = images.classes > 1
    return make_table(
        DUPLICATES,
        rank=range(1, len(pairs) + 1),
        row=pairs[:, 0],
        other=pairs[:, 1],
        distance=distances,
        label=labels[:, 0] if is_labelled else None,
        other_label=labels[:, 1] if is_labelled else None,
    )


def closest_pairs(closest: Closest) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The pairs (pairs, 2) of every row and its closest row, the lower row first, and their distances (pairs,).

    Sorted by distance, then by rows.
    """
    row_pairs = np.sort(np.stack([np.arange(len(closest.rows)), closest.rows], axis=1), axis=1)
    pairs, first = np.unique(row_pairs, axis=0, return_index=True)  # in the order of rows
    distances = closest.distances[first]
    order = np.argsort(distances, kind="stable")
    return pairs[order], distances[order]


def plan(config: Density, _: object) -> Job | tuple[()]:
    match config.question:
        case NearDuplicates(data=data, examples=examples):
            return Job(duplicates, Duplicates(data, examples))
        case Memorization(data=data, examples=examples) as question if question.measure(DuplicateMeasure) is not None:
            return Job(duplicates, Duplicates(data, examples))
        case _:
            return ()


def rows(tables: Tables, _: object) -> Iterator[Row]:
    """The distance of the closest pair, and the number of listed pairs of equal images."""
    table = tables.one(DUPLICATES)
    if table is None:
        return
    distances = table["distance"].to_pylist()
    yield row("distance of the closest pair", {}, alone(min(distances, default=None), 1), "pair of images")
    equal = float(sum(distance == 0 for distance in distances))
    yield row("equal pairs", {"listed": len(distances)}, alone(equal, len(distances)), "pair of images")


MEASURE = Measure("duplicates", DUPLICATES, plan, rows)
