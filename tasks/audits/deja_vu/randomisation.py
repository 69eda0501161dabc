"""A randomisation test of the deja vu score: does it matter which pictures a model was trained on?

Pictures are parted into the two sets by chance, equally per class. If neither model keeps anything of single pictures,
their inferences would be the same had the sets been drawn otherwise, so every parting with as many pictures of each
class is equally probable given the inferences, and the score of the true one is one draw among them:

    p = (1 + number of redrawn partings whose score is at least the true one's) / (1 + number of redrawn partings)

p is at most a with probability at most a, for any two models, however different, and any number of pictures (Fisher
1935; Phipson & Smyth 2010, "Permutation p-values should never be zero", for the ones). Nothing is assumed of trainings.
This test is ours; the paper gives scores without an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.audits.deja_vu.accuracy import Inferences, Mask, Way, most_confident

CELLS = 2**24  # pictures times partings at a time, so that memory stays bounded
ROUNDING = 1e-12  # scores that differ by less are equal


@dataclass(frozen=True, eq=False)
class Pooled:
    """Both sets' pictures together: their classes, which are of the first set, and what both models infer of all."""

    labels: NDArray[np.int64]
    first: Mask
    one: Inferences
    other: Inferences


def pool_ways(ways: tuple[Way, Way]) -> Pooled:
    """The pictures of both ways in the order of their ids; the first way's target is the second one's reference.

    Equally confident pictures are taken in this order, which must not know the sets: else the true parting would not be
    one among equals.
    """
    there, back = ways
    n = len(there) + len(back)
    known = there.ids is not None and back.ids is not None
    order = np.argsort(np.concatenate([there.ids, back.ids]), kind="stable") if known else np.arange(n)
    return Pooled(
        np.concatenate([there.labels, back.labels])[order],
        (np.arange(n) < len(there))[order],
        _join_inferences(there.target, back.reference, order),
        _join_inferences(there.reference, back.target, order),
    )


def _join_inferences(first: Inferences, second: Inferences, order: NDArray[np.integer]) -> Inferences:
    correct, confidence = (
        np.concatenate([getattr(first, name), getattr(second, name)])[order] for name in ("correct", "confidence")
    )
    return Inferences(correct, confidence)


def p_value(ways: tuple[Way, Way], percent: int, partings: int, rng: np.random.Generator) -> float | None:
    """The probability of such a mean score of both ways, or a higher one, had the sets been drawn otherwise.

    One-sided, by this many redrawn partings. None where one of the ways has no pictures.
    """
    if not all(len(way) for way in ways):
        return None
    pictures = pool_ways(ways)
    parted = Parted(pictures, percent)
    true = parted.scores(pictures.first[None])[0]
    at_least = sum(int((parted.scores(part) >= true - ROUNDING).sum()) for part in redrawn(pictures, partings, rng))
    return (1 + at_least) / (1 + partings)


def differs(
    labels: NDArray[np.int64], first: Mask, of: Inferences, percent: int, partings: int, rng: np.random.Generator
) -> float | None:
    """The two-sided p of a model's accuracy on the first set against that on the others, had they been drawn otherwise.

    Twice the smaller of the two one-sided ones, at most 1. None where one of the sets has no pictures.
    """
    if not first.any() or first.all():
        return None
    parted = Parted(Pooled(labels, first, of, of), percent)
    true = parted.difference(of, first[None])[0]
    drawn = np.concatenate([parted.difference(of, part) for part in redrawn(parted.pictures, partings, rng)])
    above, below = (drawn >= true - ROUNDING).sum(), (drawn <= true + ROUNDING).sum()
    return min(1.0, 2 * (1 + int(min(above, below))) / (1 + partings))


@dataclass(frozen=True, eq=False)
class Parted:
    """The pictures, to be parted in any way, and the percentage at which the score is taken."""

    pictures: Pooled
    percent: int

    def scores(self, first: Mask) -> NDArray[np.float64]:
        """The mean deja vu score of both ways for each parting, given as masks of the first set (partings, n)."""
        one, other = (self.difference(of, first) for of in (self.pictures.one, self.pictures.other))
        return np.asarray((one - other) / 2)

    def difference(self, of: Inferences, first: Mask) -> NDArray[np.float64]:
        """A model's accuracy on the first set less that on the second, (partings,)."""
        order = of.ranked
        right, members = of.correct[order], first[:, order]
        return np.asarray(self._accuracy(members, right) - self._accuracy(~members, right))

    def _accuracy(self, members: Mask, right: Mask) -> NDArray[np.float64]:
        count = most_confident(int(members[0].sum()), self.percent)
        among = members & (np.cumsum(members, axis=1, dtype=np.int32) <= count)
        return np.asarray((among & right).sum(axis=1) / count)


def redrawn(pictures: Pooled, partings: int, rng: np.random.Generator) -> Iterator[Mask]:
    """Partings drawn anew, each with as many pictures of every class in the first set as the true one."""
    n = len(pictures.labels)
    order = np.argsort(pictures.labels, kind="stable")
    classes = np.split(order, np.flatnonzero(np.diff(pictures.labels[order])) + 1)
    size = max(1, CELLS // n)
    for start in range(0, partings, size):
        drawn = np.zeros((min(size, partings - start), n), bool)
        for rows in classes:
            drawn[:, rows] = rng.permuted(np.broadcast_to(pictures.first[rows], (len(drawn), len(rows))), axis=1)
        yield drawn
