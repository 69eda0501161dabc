"""Distances between images as the paper takes them: Euclidean, in pixel space, after downsampling by 2.

Van den Burg & Williams 2021, "On memorization in probabilistic deep generative models", section 4.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

PART = 1024  # images downsampled at one time


@dataclass(frozen=True, eq=False)
class Closest:
    """To each image the one closest to it: distances (n,) and rows (n,)."""

    distances: NDArray[np.float64]
    rows: NDArray[np.int64]


def first_images(images: NDArray[Any], count: int) -> NDArray[Any]:
    """The first `count` training images (0: all); ValueError where there are fewer."""
    if count > len(images):
        raise ValueError(f"examples is {count}; it must be at most {len(images)}, the training images there are")
    return images[: count or len(images)]


def halve(images: NDArray[Any]) -> NDArray[np.float32]:
    """The images (n, h, w, c) at half their size as rows (n, h/2 * w/2 * c): means of 2 x 2 pixels, in [0, 1].

    They are bytes, or float32 in [0, 1]; equal images give equal rows, whichever of the two they are. Of an odd height
    or width the last row or column is left out. ValueError for an image of fewer than 2 x 2 pixels.
    """
    count, height, width, channels = images.shape
    if min(height, width) < 2:
        raise ValueError(f"images are {height} x {width}; to be downsampled by 2 they must be at least 2 x 2")
    out = np.empty((count, height // 2, width // 2, channels), np.float32)
    for first in range(0, count, PART):
        part = images[first : first + PART, : height // 2 * 2, : width // 2 * 2]
        part = part / np.float32(255) if part.dtype == np.uint8 else part.astype(np.float32)
        rows = part[:, ::2] + part[:, 1::2]
        out[first : first + PART] = (rows[:, :, ::2] + rows[:, :, 1::2]) / 4
    return out.reshape(count, -1)


def closest(rows: NDArray[np.float32], among: NDArray[np.float32]) -> Closest:
    """The closest of `among` to each row; of equally close ones the first."""
    from tasks.nearest_neighbours import nearest

    neighbours = nearest(rows, among, 1)
    return Closest(neighbours.distances[:, 0], neighbours.rows[:, 0])


def closest_other(rows: NDArray[np.float32]) -> Closest:
    """The closest to each row of the others; of equally close ones the first. ValueError where there is no other."""
    from tasks.nearest_neighbours import nearest

    if len(rows) < 2:
        raise ValueError("there is one image; to have a closest other there must be at least 2")
    neighbours = nearest(rows, rows, 2)
    # Of several equal rows the first two are nearest to all of them, so a row is not always among its own.
    other = (neighbours.rows[:, 0] == np.arange(len(rows))).astype(np.intp)
    every = np.arange(len(rows))
    return Closest(neighbours.distances[every, other], neighbours.rows[every, other])
