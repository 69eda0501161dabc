"""Find near-duplicate images, such as one photograph compressed twice, in time linear in the number of images.

Each image is reduced to a grey 8 x 8 grid of means. Two images are near copies if no mean differs by more than NEAR of
255 levels and the means are not all equal. To find candidates, the image mean is subtracted from a 4 x 4 grid of means,
and the results are sorted into bins of STEP levels, in TABLES tables with shifted bins. Candidates share all bins in at
least one table. Two images whose means differ by one level share a table with a probability of 99.9 %. Within a table,
an image is compared only with its neighbours, so if there are several near copies, every image is found, but not every
pair.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tasks.datasets.picture_rows import Sliceable, gather, reshape_images
from tasks.numerics import seeds

NEAR = 4  # grey levels
FLAT = 8.0  # standard deviation of the means, in levels; flatter images are not compared
STEP = 32  # grey levels
TABLES = 8
NEXT = 4  # images of the same bin that each image is compared with

Pairs = list[tuple[int, int]]


def find_near_copies(images: Sliceable) -> Pairs:
    """Return pairs of rows of near-duplicate images (n, h, w, c), ascending, excluding exact copies."""
    means = gather([reshape_images(images, (8, 8, 1))]).reshape(-1, 64).astype(np.int16)
    coarse = means.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16)
    coarse -= coarse.mean(axis=1, keepdims=True)
    rows = np.flatnonzero(means.std(axis=1) >= FLAT)
    pairs: set[tuple[int, int]] = set()
    for table in range(TABLES):
        offsets = seeds.generator(0, "near copies", table).uniform(0, STEP, coarse.shape[1])
        steps = np.floor((coarse[rows] + offsets) / STEP).astype(np.int8)
        order = np.lexsort(steps.T)
        for shift in range(1, NEXT + 1):
            first_rows = order[:-shift]
            second_rows = order[shift:]
            is_same_cell = (steps[first_rows] == steps[second_rows]).all(axis=1)
            pairs |= _near_pairs(means, rows[first_rows[is_same_cell]], rows[second_rows[is_same_cell]])
    return sorted(pair for pair in pairs if not _are_equal(images, *pair))


def _are_equal(images: Sliceable, first: int, second: int) -> bool:
    return np.array_equal(images[first : first + 1], images[second : second + 1])


def _near_pairs(
    means: NDArray[np.int16], first_rows: NDArray[np.int64], second_rows: NDArray[np.int64]
) -> set[tuple[int, int]]:
    """Return the pairs whose means differ by at most NEAR, smaller row first."""
    is_near = np.abs(means[first_rows] - means[second_rows]).max(axis=1, initial=0) <= NEAR
    first, second = (
        np.minimum(first_rows[is_near], second_rows[is_near]),
        np.maximum(first_rows[is_near], second_rows[is_near]),
    )
    return set(zip(first.tolist(), second.tolist(), strict=True))
