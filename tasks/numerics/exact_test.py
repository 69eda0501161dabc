"""An exact test, record by record, of whether training on a record changes what models say of it.

The coins are ours: each record is in exactly half of the models, and which half was drawn uniformly of all of them. A
record that has no influence on what models say of it leaves their scores as they are, whichever half had it. So the
place of its observed statistic among those of all halves is a p-value, without any model of the scores.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from tasks.numerics import seeds

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
MOST_HALVES = 20_000  # up to here all of them are counted: those of 16 models are 12,870
AT_ONCE = 2**22  # sums in memory
ROUNDING = 1e-9  # of the sum of absolute scores: sums that differ by less are equal but for rounding


def randomisation_p_values(scores: Array, member: Mask, draws: int, seed: int) -> Array:
    """The p-value of each record that models score it higher where they were trained on it, (records,).

    `scores` and `member` are (models, records). The statistic is the sum of the scores of the models that were trained
    on the record. With k members among M models it is compared with that of all sets of k models, or of `draws` random
    ones and itself where these are more than 20,000: p = share of sets whose sum is at least as large. One-sided. NaN
    where all models, or none, were trained on the record. Fisher 1935; Phipson & Smyth 2010 for the drawn sets.
    """
    models, records = scores.shape
    members = member.sum(axis=0)
    p_values = np.full(records, np.nan)
    for count in np.unique(members):
        if not 0 < count < models:
            continue
        chosen = np.flatnonzero(members == count)
        own = scores[:, chosen] - scores[:, chosen].mean(axis=0)  # the same shift of all sums, and less rounding
        observed = (own * member[:, chosen]).sum(axis=0)
        least = observed - ROUNDING * np.abs(own).sum(axis=0)
        every = comb(models, int(count)) <= MOST_HALVES
        larger, sets = np.zeros(len(chosen), dtype=np.int64), 0
        for some in _sets(models, int(count), 0 if every else draws, seed, max(1, AT_ONCE // max(models, len(chosen)))):
            larger += (some @ own >= least).sum(axis=0)
            sets += len(some)
        p_values[chosen] = larger / sets if every else (1 + larger) / (1 + sets)
    return p_values


def smallest_p_value(models: int, draws: int) -> float:
    """The smallest p-value that a record in half of the models can have."""
    halves = comb(models, models // 2)
    return 1 / halves if halves <= MOST_HALVES else 1 / (1 + draws)


def _sets(models: int, count: int, draws: int, seed: int, at_once: int) -> Iterator[Array]:
    """Sets of `count` models as rows of zeros and ones, (sets, models), some at a time; 0 draws: all sets."""
    if draws:
        stream = seeds.generator(seed, "sets of models", count)
        first = (np.arange(models) < count).astype(np.float64)
        for start in range(0, draws, at_once):
            yield stream.permuted(np.tile(first, (min(at_once, draws - start), 1)), axis=1)
        return
    every = np.array(list(combinations(range(models), count)))
    for start in range(0, len(every), at_once):
        some = every[start : start + at_once]
        sets = np.zeros((len(some), models))
        np.put_along_axis(sets, some, 1.0, axis=1)
        yield sets
