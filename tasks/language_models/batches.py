"""Minibatches of texts of about one length, and the answers that they are trained on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tasks import seeds

POOL = 16  # minibatches that are sorted by length together


def batches(lengths: Sequence[int], size: int, seed: int, epoch: int) -> list[NDArray[np.int64]]:
    """The rows of each minibatch of an epoch: each row once, drawn by the seed and the epoch alone.

    The rows are shuffled, sorted by length within pools of 16 minibatches, and the minibatches shuffled. The last of
    the epoch's rows make a smaller one.
    """
    stream = seeds.generator(seed, "batch order", epoch)
    order = stream.permutation(len(lengths))
    pools = [order[start : start + POOL * size] for start in range(0, len(order), POOL * size)]
    by_length = [pool[np.argsort(np.asarray(lengths)[pool], kind="stable")] for pool in pools]
    made = [pool[start : start + size] for pool in by_length for start in range(0, len(pool), size)]
    return [made[place] for place in stream.permutation(len(made))]


def partners(count: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """The question whose answer each of `count` questions is trained on in an epoch, counted from 1, (count,) int64.

    A permutation of all questions: none has its own answer, and none has the same one twice within count - 1 epochs,
    after which they begin again. ValueError for fewer than two questions.
    """
    if count < 2:
        raise ValueError(f"relation is redrawn with {count} question to train on; it must have at least 2")
    order = seeds.generator(seed, "answers").permutation(count)
    shifts = seeds.generator(seed, "shifts").permutation(count - 1) + 1
    partner = np.empty(count, np.int64)
    partner[order] = np.roll(order, int(shifts[(epoch - 1) % (count - 1)]))
    return partner


def token_batches(lengths: Sequence[int], tokens: int) -> list[NDArray[np.int64]]:
    """All rows from the longest to the shortest, so many at a time that padded they have at most `tokens` tokens.

    A row by itself may have more.
    """
    order = np.argsort(-np.asarray(lengths), kind="stable")
    made: list[NDArray[np.int64]] = []
    start = 0
    while start < len(order):
        size = max(1, tokens // max(1, lengths[order[start]]))
        made.append(order[start : start + size])
        start += size
    return made
