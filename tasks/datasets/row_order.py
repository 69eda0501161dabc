"""The order of rows in a user's data set: random, with every class in every part.

Folders are read class by class, and lists and tables are often sorted. Audits use ranges of rows, such as the first
400, which in a sorted set would contain a few classes only. Every reader of a user's data therefore numbers its rows in
a random order, split by split. Published sets keep the order of their files, which is already random.

The order depends only on the labels, not on the seed of a run. Ranges of different rows are therefore disjoint in every
audit, and a larger range contains each smaller one with the same first row, so that runs share trainings.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tasks.numerics import seeds

Rows = NDArray[np.int64]
SEED = 0


def draw_class_order(labels: ArrayLike, *stream: str) -> Rows:
    """Draw a random order of rows in which any initial part has the classes in proportion, to one row.

    The rows of each class are shuffled, and row j of n, counted from 1, is at the relative position (j - 1/2) / n. For
    equal positions, the class that occurs first in the labels comes first.
    """
    classes = np.asarray(labels)
    _, first, number = np.unique(classes, return_index=True, return_inverse=True)
    places = np.empty(len(classes))
    for label in range(len(first)):
        rows = np.flatnonzero(number == label)
        shuffled = seeds.generator(SEED, "row order", *stream, label).permutation(rows)
        places[shuffled] = (np.arange(len(rows)) + 0.5) / len(rows)
    return np.lexsort((first[number], places))


def draw_group_order(groups: Sequence[Hashable], *stream: str) -> list[int]:
    """Draw a random order of groups; rows of one group stay together, in their original order."""
    rows_of: dict[Hashable, list[int]] = {}
    for row, group in enumerate(groups):
        rows_of.setdefault(group, []).append(row)
    grouped = list(rows_of.values())
    order = seeds.generator(SEED, "row order", *stream).permutation(len(grouped))
    return [row for position in order for row in grouped[position]]
