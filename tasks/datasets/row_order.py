"""The order in which the rows of a user's data set are numbered: drawn at random, with every class in every part.

Folders are read class by class, and lists and tables are often sorted. Audits take parts of a data set by its rows,
such as the first 400, and such a part of a sorted set would hold a few classes. Every reader of a user's data therefore
numbers its rows in an order that is drawn here, split by split. Published sets keep the order of their files, which is
random already.

The draw depends on the labels alone and not on the seed of a run: parts with different rows are disjoint in every
audit, and a part of more rows contains each smaller one that begins at the same row, so that runs share trainings.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tasks.numerics import seeds

Rows = NDArray[np.int64]
SEED = 0


def draw_class_order(labels: ArrayLike, *stream: str) -> Rows:
    """A random order of rows in which any first part has each class in proportion, to one row.

    Each class's rows are shuffled, and its j-th of n, from 1, stands at the place (j - 1/2) / n of the order. If two
    classes have rows at one place, the class that was met first goes first.
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
    """A random order of groups; rows of one group follow one another, in the order that they had."""
    rows_of: dict[Hashable, list[int]] = {}
    for row, group in enumerate(groups):
        rows_of.setdefault(group, []).append(row)
    grouped = list(rows_of.values())
    order = seeds.generator(SEED, "row order", *stream).permutation(len(grouped))
    return [row for place in order for row in grouped[place]]
