"""Random partitions of a data set's rows into folds, one of which a training leaves out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tasks import seeds


def fold_of(seed: int, rows: int, folds: int) -> NDArray[np.int32]:
    """The fold of every row, (rows,), each in [0, folds): the partition of this seed.

    Every partition into folds of rows / folds, to within one, is equally likely. ValueError for more folds than rows.
    """
    if not 1 <= folds <= rows:
        raise ValueError(f"folds is {folds}; it must be from 1 to the number of rows, {rows}")
    fold = np.empty(rows, dtype=np.int32)
    fold[seeds.generator(seed, "partition").permutation(rows)] = np.arange(rows) % folds
    return fold
