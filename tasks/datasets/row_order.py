"""Draw a random order for the rows of a user's data set in which every part contains every class.

Folders are read class by class, and lists and tables are often sorted. Audits use ranges of rows, such as the first
400, which would cover only a few classes of a sorted data set. Every reader of users' data therefore numbers rows in
random order, split by split. Published data sets keep the order of their files, which is already random.

The order depends only on the labels, not on the seed of a run. Ranges of different rows are therefore disjoint in every
audit, and a larger range contains every smaller one with the same first row, so that runs can share trained models.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tasks.numerics import seeds

Rows = NDArray[np.int64]
SEED = 0


def draw_class_order(labels: ArrayLike, *stream: str) -> Rows:
    """Draw a random row order in which every prefix contains the classes in proportion, to within one row.

    The rows of each class are shuffled, and row j of n, counted from 1, is put at relative position (j - 1/2) / n. At
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
    """Draw a random order of groups. The rows of a group stay together, in their original order."""
    rows_of: dict[Hashable, list[int]] = {}
    for row, group in enumerate(groups):
        rows_of.setdefault(group, []).append(row)
    grouped = list(rows_of.values())
    order = seeds.generator(SEED, "row order", *stream).permutation(len(grouped))
    return [row for position in order for row in grouped[position]]
