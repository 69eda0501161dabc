"""Random partitions of a data set's rows into folds, one of which a training leaves out: ours and published ones."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from tasks.numerics import seeds


def fold_of(seed: int, rows: int, folds: int) -> NDArray[np.int32]:
    """The fold of every row, (rows,), each in [0, folds): the partition of this seed.

    Every partition into folds of rows / folds, to within one, is equally likely. ValueError for more folds than rows.
    """
    if not 1 <= folds <= rows:
        raise ValueError(f"folds is {folds}; it must be from 1 to the number of rows, {rows}")
    fold = np.empty(rows, dtype=np.int32)
    fold[seeds.generator(seed, "partition").permutation(rows)] = np.arange(rows) % folds
    return fold


RELEASED_SEED = 42  # of every published result
REPETITIONS = FOLDS = 10
SHUFFLE_SEEDS = 10_000  # of the shuffles

LOW = 2**32 - 1
# Of each word: its first shift, the shift back, the bits that are kept of its lower 32, and their shift; and its factor
# of the seed plus one.
WORDS = (
    (6, 13, 0xFFFFFFFE, 18, 2),
    (2, 27, 0xFFFFFFF8, 2, 8),
    (13, 21, 0xFFFFFFF0, 7, 16),
    (3, 12, 0xFFFFFF80, 13, 128),
)


def sync_rng_numbers(seed: int) -> Iterator[int]:
    """The numbers that the generator of this seed draws, each in [0, 2^32); the seed is in [0, 2^32 - 1).

    It is L'Ecuyer's LFSR113 in the form of the package SyncRNG (1.3.1 to 1.3.4, which draw alike): its four words
    are of 64 bits and keep what is shifted out of the lower 32, so that it draws other numbers than the published
    generator.
    L'Ecuyer 1999, "Tables of maximally equidistributed combined LFSR generators".
    """
    words = [factor * (seed + 1) for *_, factor in WORDS]
    while True:
        drawn = 0
        for place, (up, down, kept, shift, _) in enumerate(WORDS):
            word = words[place]
            # None of the shifts reaches bit 64.
            word = ((word & kept) << shift) ^ (((word << up) ^ word) >> down)
            words[place] = word
            drawn ^= word
        yield drawn & LOW


def number_below(count: int, drawn: Iterator[int]) -> int:
    """A number in [0, count), each equally likely: the first that is no part of an incomplete round of `count`."""
    rounds = 2**32 - 2**32 % count
    return next(number for number in drawn if number < rounds) % count


def shuffle_rows(rows: int, seed: int) -> list[int]:
    """0 to rows - 1, shuffled by the generator of this seed."""
    drawn, order = sync_rng_numbers(seed), list(range(rows))
    for last in range(rows - 1, 0, -1):
        other = number_below(last + 1, drawn)
        order[last], order[other] = order[other], order[last]
    return order


@lru_cache(maxsize=REPETITIONS)  # of 60,000 rows it takes a tenth of a second, and every fold's training asks
def released_fold_of(repetition: int, rows: int, folds: int = FOLDS, seed: int = RELEASED_SEED) -> NDArray[np.int32]:
    """The fold of every row, (rows,), each in [0, folds), in the repetition of this number, from 0. Read-only.

    These are the partitions that the released code of "On memorization in probabilistic deep generative models" draws.
    One generator, of seed 42, gives a number for each repetition; modulo 10,000 it is the seed of another generator,
    which shuffles the rows (Fisher & Yates, from the last place down). The folds are consecutive runs of the shuffled
    rows, and the first rows % folds of them have one row more than the others.

    ValueError for more folds than rows, or a repetition below 0. Van den Burg & Williams 2021,
    github.com/alan-turing-institute/memorization (scripts/seed_generator.py, dataset.py and Makefile: ten repetitions,
    ten folds).
    """
    if not 1 <= folds <= rows:
        raise ValueError(f"folds is {folds}; it must be from 1 to the number of rows, {rows}")
    if repetition < 0:
        raise ValueError(f"repetition is {repetition}; it must be at least 0")
    order = shuffle_rows(rows, next(islice(sync_rng_numbers(seed), repetition, None)) % SHUFFLE_SEEDS)
    size, longer = divmod(rows, folds)
    fold = np.empty(rows, np.int32)
    fold[order] = np.repeat(np.arange(folds), [size + (number < longer) for number in range(folds)])
    fold.flags.writeable = False
    return fold
