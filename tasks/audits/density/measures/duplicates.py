"""The closest pairs of training images: exact or near duplicates, which are memorised because they are repeated.

An image that occurs several times has more weight in training. The score does not measure this kind of memorisation: if
one copy is held out, the model still learns from the others.

Distances between images are the paper's: Euclidean, in pixel space, after downsampling by 2. Van den Burg & Williams
2021, "On memorization in probabilistic deep generative models", sections 2 and 4.4 and figure 6. The authors found
their duplicates by eye; here every training image is compared with all others.

CIFAR-10's 50,000 images take half a minute on one core with AVX-512, and 0.6 GB in addition to the images. Time grows
with the square of the number of images.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

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
from tasks.datasets.dataset import Dataset, is_numbered
from tasks.datasets.images import PictureRows, rows_at_once
from tasks.datasets.picture_rows import Selected, Sliceable, empty_rows, whole_split

PART = 1024  # images to downsample at a time, at most


@dataclass(frozen=True, eq=False)
class Closest:
    """The closest image to each image: distances (n,) and rows (n,)."""

    distances: NDArray[np.float64]
    rows: NDArray[np.int64]


def first_images(split: PictureRows, count: int) -> Selected:
    """Return the first `count` training images, or all if `count` is 0. Raises ValueError if there are fewer."""
    if count > len(split):
        raise ValueError(f"examples is {count}; it must be at most {len(split)}, the number of training images")
    return whole_split(split, count)


def halve(images: Sliceable) -> NDArray[np.float32]:
    """Downsample images (n, h, w, c) by averaging 2 x 2 pixels, to rows (n, h/2 * w/2 * c) in [0, 1].

    Pixels are bytes, or float32 in [0, 1]; equal images give equal rows in both formats. The last row or column of an
    odd height or width is dropped. Raises ValueError for images smaller than 2 x 2 pixels.
    """
    count, height, width, channels = images.shape
    if min(height, width) < 2:
        raise ValueError(f"images are {height} x {width}; to be downsampled by 2 they must be at least 2 x 2")
    out: NDArray[np.float32] = empty_rows((count, height // 2, width // 2, channels), np.float32)
    at_once = rows_at_once((height, width, channels), PART)
    for first in range(0, count, at_once):
        part = images[first : first + at_once][:, : height // 2 * 2, : width // 2 * 2]
        if part.dtype == np.uint8:
            part = part / np.float32(255)
        else:
            part = part.astype(np.float32)
        rows = part[:, ::2] + part[:, 1::2]
        out[first : first + at_once] = (rows[:, :, ::2] + rows[:, :, 1::2]) / 4
    return out.reshape(count, -1)


def closest(rows: NDArray[np.float32], among: NDArray[np.float32]) -> Closest:
    """Find the closest of `among` to each row. Ties go to the first."""
    from tasks.numerics.nearest_neighbours import nearest

    neighbours = nearest(rows, among, 1)
    return Closest(neighbours.distances[:, 0], neighbours.rows[:, 0])


def closest_other(rows: NDArray[np.float32]) -> Closest:
    """Find the closest other row to each row. Ties go to the first. Raises ValueError for a single row."""
    from tasks.numerics.nearest_neighbours import nearest

    if len(rows) < 2:
        raise ValueError("there is one image; to have a closest other there must be at least 2")
    neighbours = nearest(rows, rows, 2)
    # If several rows are equal, all of them find the first two, so a row is not always among its own neighbours.
    column = (neighbours.rows[:, 0] == np.arange(len(rows))).astype(np.intp)
    row_numbers = np.arange(len(rows))
    return Closest(neighbours.distances[row_numbers, column], neighbours.rows[row_numbers, column])


DUPLICATES = pa.schema(
    [
        ("rank", pa.int32()),  # counted from 1, the closest pair
        ("row", pa.int64()),  # the lower row
        ("other", pa.int64()),
        ("distance", pa.float64()),  # Euclidean, pixels in [0, 1]; 0 for exact duplicates
        ("label", pa.int32()),  # null if the data have one class
        ("other_label", pa.int32()),
    ]
)


@dataclass(frozen=True)
class Duplicates(Ranged):
    """Number of pairs to list among the first `examples` training images (0: all)."""

    data: Dataset
    examples: Annotated[int, AtLeast(0)] = 0
    count: Annotated[int, AtLeast(1)] = 20


@task(version=1, name="density.duplicates")
def duplicates(config: Duplicates, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """List the closest pairs of an image and its closest other image, in ascending order of distance (DUPLICATES).

    Each pair is listed once. Of three similar images, the third is paired with the closer of the other two. Every image
    is in some pair, but not every two images form a pair.
    """
    images = load(config.data)
    pairs, distances = closest_pairs(closest_other(halve(first_images(images.train, config.examples))))
    pairs = pairs[: config.count]
    distances = distances[: config.count]
    labels = images.train.labels[pairs]
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
    """Pair every row with its closest row, lower row first. Returns pairs (pairs, 2) and distances (pairs,).

    Pairs are sorted by distance, then by rows.
    """
    row_pairs = np.sort(np.stack([np.arange(len(closest.rows)), closest.rows], axis=1), axis=1)
    pairs, first = np.unique(row_pairs, axis=0, return_index=True)  # sorted by rows
    distances = closest.distances[first]
    order = np.argsort(distances, kind="stable")
    return pairs[order], distances[order]


def plan(config: Density, _: object) -> Job | tuple[()]:
    match config.question:
        case NearDuplicates(data=data, examples=examples):
            if is_numbered(data):
                raise ValueError(f"{data.name} has only row numbers; near duplicates are found in images")
            return Job(duplicates, Duplicates(data, examples))
        case Memorization(data=data, examples=examples) as question:
            if is_numbered(data) or question.measure(DuplicateMeasure) is None:
                return ()
            return Job(duplicates, Duplicates(data, examples))
        case _:
            return ()


def rows(tables: Tables, _: object) -> Iterator[Row]:
    """Yield the distance of the closest pair, and the number of listed pairs of equal images."""
    table = tables.one(DUPLICATES)
    if table is None:
        return
    distances = table["distance"].to_pylist()
    yield row("distance of the closest pair", {}, alone(min(distances, default=None), 1), "pair of images")
    equal = float(sum(distance == 0 for distance in distances))
    yield row("equal pairs", {"listed": len(distances)}, alone(equal, len(distances)), "pair of images")


MEASURE = Measure("duplicates", DUPLICATES, plan, rows)
