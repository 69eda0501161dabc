"""Accuracy of label inference among the most confident pictures, and the deja vu score, which is a difference of two.

acc(p) = share of right labels among the floor(p n / 100), at least one, pictures with the highest confidence
deja vu score(p) = acc of the target model at p - acc of the reference model at p

Both models infer the labels of the same pictures, which one of them was trained on, and each has its own most
confident ones. Of equally confident pictures those that come first are taken, so callers keep them sorted by id.

Meehan et al. 2023, section 4.1, "The deja vu score".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
PERCENTAGES = range(1, 101)


@dataclass(frozen=True, eq=False)
class Inferences:
    """What one model infers of pictures: whether each label is right, and its confidence; both (n,)."""

    correct: Mask
    confidence: Floats

    def __len__(self) -> int:
        return len(self.correct)

    @cached_property
    def ranked(self) -> NDArray[np.intp]:
        """The pictures from the most to the least confident; equally confident ones in their order."""
        return np.argsort(-self.confidence, kind="stable")


def most_confident(n: int, percent: int) -> int:
    """How many of n pictures the most confident percent are: floor(p n / 100), at least one."""
    return max(1, percent * n // 100)


def numbers(n: int, percents: Sequence[int]) -> NDArray[np.int64]:
    """`most_confident` for each percentage."""
    return np.maximum(1, np.asarray(percents, np.int64) * n // 100)


def accuracy(of: Inferences, percents: Sequence[int] = PERCENTAGES) -> Floats:
    """acc(p) for each percentage. NaN where there are no pictures."""
    n = len(of)
    if not n:
        return np.full(len(percents), np.nan)
    right = np.cumsum(of.correct[of.ranked])
    counts = numbers(n, percents)
    return np.asarray(right[counts - 1] / counts)


def resample_accuracy(of: Inferences, copies: NDArray[np.integer], percents: Sequence[int]) -> Floats:
    """acc(p) of a resample in which picture i comes `copies[i]` times, summing to n."""
    order = of.ranked
    taken = np.concatenate([[0], np.cumsum(copies[order])])
    right = np.concatenate([[0], np.cumsum(copies[order] * of.correct[order])])
    counts = numbers(len(of), percents)
    # The copies of a picture at the cut are all right or all wrong, so between pictures the sum is linear.
    return np.asarray(np.interp(counts, taken, right) / counts)


@dataclass(frozen=True, eq=False)
class Way:
    """One of the two ways of a test: pictures that the target was trained on and the reference was not.

    `labels` are the true ones, (n,); `ids` are the pictures', ascending, where ties are to be told by them.
    """

    labels: NDArray[np.int64]
    target: Inferences
    reference: Inferences
    ids: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.labels)


def scores(way: Way, percents: Sequence[int] = PERCENTAGES) -> Floats:
    """The deja vu score at each percentage."""
    return accuracy(way.target, percents) - accuracy(way.reference, percents)


def bootstrap_accuracies(way: Way, percents: Sequence[int], resamples: int, rng: np.random.Generator) -> Floats:
    """Target's and reference's accuracy on resampled pictures, (resamples, 2, percents): both on the same resample."""
    n = len(way)
    if not n:
        return np.full((resamples, 2, len(percents)), np.nan)
    found = np.empty((resamples, 2, len(percents)))
    for each in found:
        copies = np.bincount(rng.integers(n, size=n), minlength=n)
        each[0] = resample_accuracy(way.target, copies, percents)
        each[1] = resample_accuracy(way.reference, copies, percents)
    return found
