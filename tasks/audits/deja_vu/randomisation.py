"""Randomisation test of the deja vu score that exchanges images between the two sets.

Images are reassigned to the two sets at random, with the number per class held fixed. If neither model memorises single
images, the models' inferences do not depend on the assignment. Given the inferences, every assignment with the same
class counts is then equally likely, and the actual score is one draw among their scores:

    p = (1 + number of drawn divisions whose score is at least the actual one) / (1 + number of drawn divisions)

p is at most a with probability at most a, for any two models and any number of images, without assumptions on training
(Fisher 1935; Phipson & Smyth 2010, "Permutation p-values should never be zero", for the added ones). This test is ours;
the paper reports scores without an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.audits.deja_vu.accuracy import Inferences, Mask, Way, most_confident

CELLS = 2**24  # images times divisions per batch, to bound memory
ROUNDING = 1e-12  # scores that differ by less count as equal


@dataclass(frozen=True, eq=False)
class Pooled:
    """Images of both sets: class labels, a mask of the first set, and both models' inferences."""

    labels: NDArray[np.int64]
    first: Mask
    inferences_a: Inferences
    inferences_b: Inferences


def pool_ways(ways: tuple[Way, Way]) -> Pooled:
    """Pool the images of both directions, sorted by id. The first direction's target is the second's reference.

    Ties in confidence are broken by this order. It must not depend on the sets, or the actual division would not be
    exchangeable with the others.
    """
    first, second = ways
    n = len(first) + len(second)
    has_ids = first.ids is not None and second.ids is not None
    if has_ids:
        order = np.argsort(np.concatenate([first.ids, second.ids]), kind="stable")
    else:
        order = np.arange(n)
    return Pooled(
        np.concatenate([first.labels, second.labels])[order],
        (np.arange(n) < len(first))[order],
        _join_inferences(first.target, second.reference, order),
        _join_inferences(first.reference, second.target, order),
    )


def _join_inferences(first: Inferences, second: Inferences, order: NDArray[np.integer]) -> Inferences:
    correct, confidence = (
        np.concatenate([getattr(first, name), getattr(second, name)])[order] for name in ("correct", "confidence")
    )
    return Inferences(correct, confidence)


def p_value(ways: tuple[Way, Way], percent: int, partings: int, rng: np.random.Generator) -> float | None:
    """Compute the one-sided p-value of the mean score of both directions. None if a direction has no images."""
    if not all(len(way) for way in ways):
        return None
    pictures = pool_ways(ways)
    parted = Parted(pictures, percent)
    true = parted.scores(pictures.first[None])[0]
    at_least = sum(int((parted.scores(part) >= true - ROUNDING).sum()) for part in redrawn(pictures, partings, rng))
    return (1 + at_least) / (1 + partings)


def differs(
    labels: NDArray[np.int64],
    first: Mask,
    inferences: Inferences,
    percent: int,
    partings: int,
    rng: np.random.Generator,
) -> float | None:
    """Compute the two-sided p-value of the difference between a model's accuracies on the two sets.

    It is twice the smaller one-sided p-value, at most 1. None if one of the sets is empty.
    """
    if not first.any() or first.all():
        return None
    parted = Parted(Pooled(labels, first, inferences, inferences), percent)
    true = parted.difference(inferences, first[None])[0]
    differences = np.concatenate(
        [parted.difference(inferences, part) for part in redrawn(parted.pictures, partings, rng)]
    )
    above = (differences >= true - ROUNDING).sum()
    below = (differences <= true + ROUNDING).sum()
    return min(1.0, 2 * (1 + int(min(above, below))) / (1 + partings))


@dataclass(frozen=True, eq=False)
class Parted:
    """Scores of the same images under any division into two sets."""

    pictures: Pooled
    percent: int

    def scores(self, first: Mask) -> NDArray[np.float64]:
        """Compute the deja vu score for each division, a row of `first`, (divisions, n). Mean of both directions."""
        score_a = self.difference(self.pictures.inferences_a, first)
        score_b = self.difference(self.pictures.inferences_b, first)
        return np.asarray((score_a - score_b) / 2)

    def difference(self, inferences: Inferences, first: Mask) -> NDArray[np.float64]:
        """Compute a model's accuracy on the first set minus that on the second, (divisions,)."""
        order = inferences.ranked
        right = inferences.correct[order]
        members = first[:, order]
        return np.asarray(self._accuracy(members, right) - self._accuracy(~members, right))

    def _accuracy(self, members: Mask, right: Mask) -> NDArray[np.float64]:
        count = most_confident(int(members[0].sum()), self.percent)
        among = members & (np.cumsum(members, axis=1, dtype=np.int32) <= count)
        return np.asarray((among & right).sum(axis=1) / count)


def redrawn(pictures: Pooled, partings: int, rng: np.random.Generator) -> Iterator[Mask]:
    """Yield random divisions that keep the number of images per class in the first set."""
    n = len(pictures.labels)
    order = np.argsort(pictures.labels, kind="stable")
    classes = np.split(order, np.flatnonzero(np.diff(pictures.labels[order])) + 1)
    size = max(1, CELLS // n)
    for start in range(0, partings, size):
        divisions = np.zeros((min(size, partings - start), n), bool)
        for rows in classes:
            divisions[:, rows] = rng.permuted(
                np.broadcast_to(pictures.first[rows], (len(divisions), len(rows))), axis=1
            )
        yield divisions
