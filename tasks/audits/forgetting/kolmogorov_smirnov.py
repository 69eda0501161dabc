"""How far apart two models' confidences lie: the two-sample Kolmogorov-Smirnov distance, as published and one-sided.

    KS(a, b) = sup over x of |F_a(x) - F_b(x)|,    F_a(x) = share of a that is at most x
    KS below = sup over x of F_b(x) - F_a(x)

The one-sided distance says how far b lies below a, and is 0 where b is nowhere the less confident. KS is the larger of
the two one-sided distances.

The supremum is over the pooled support, as in scipy.stats.ks_2samp, and ties count once all of them are passed: float32
softmaxes have many values that are exactly 1. Liu & Tsaftaris 2020, eqs. 1 to 3, read literally take each distribution
function at its own sorted values; of as many values without ties that is i / n on either side, and 0 always.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Score = Literal["published", "one-sided"]
SCORES: tuple[Score, ...] = ("published", "one-sided")
METRIC_PREFIX: Mapping[Score, str] = {"one-sided": "one-sided ", "published": ""}  # in the summary, the answer's first


class Farthest(NamedTuple):
    """The distance, and the lowest value at which the distribution functions are that far apart."""

    distance: float
    at: float


def ks(first: ArrayLike, second: ArrayLike, score: Score = "published") -> float:
    """KS of two lists of numbers, in [0, 1]: 0 for equal distributions, 1 where all of one lie below the other.

    One-sided, it is 1 where all of the second lie below the first, and 0 where all of them lie above. That is the
    statistic of scipy.stats.ks_2samp(first, second, alternative="less"), whose names are of the distribution functions:
    the first's is the less where its values are the larger.

    ValueError where a list is empty or has a NaN.
    """
    return farthest(sorted_values(first), sorted_values(second), score).distance


def distances(first: NDArray[Any], second: NDArray[Any], score: Score) -> tuple[Array, Array]:
    """KS of each row of `first` (a, n) and each of `second` (b, m), and where it is reached; both (a, b)."""
    ones, others = [sorted_values(row) for row in first], [sorted_values(row) for row in second]
    pairs = np.array([farthest(one, other, score) for one in ones for other in others], np.float64)
    reached = pairs.reshape(len(first), len(second), 2)
    return reached[..., 0], reached[..., 1]


def pairwise_distances(models: NDArray[Any], score: Score) -> Array:
    """KS of each pair of rows of (r, n), (r, r): 0 on the diagonal, and symmetric as published."""
    every = [sorted_values(row) for row in models]
    matrix = np.zeros((len(every), len(every)))
    for i, one in enumerate(every):
        for j, other in enumerate(every):
            matrix[i, j] = farthest(one, other, score).distance
    return matrix


def sorted_values(values: ArrayLike) -> Array:
    """The values in rising order; ValueError where there are none, or one is NaN."""
    rising = np.sort(np.asarray(values, np.float64), axis=None)
    if not len(rising):
        raise ValueError("a list of confidences is empty; KS needs at least one on either side")
    if np.isnan(rising[-1]):  # NaN sorts last
        raise ValueError(f"{np.count_nonzero(np.isnan(rising))} of {len(rising)} confidences are not numbers")
    return rising


def farthest(first: Array, second: Array, score: Score = "published") -> Farthest:
    """KS of two lists in rising order, and where it is reached."""
    support = np.concatenate((first, second))
    below = np.searchsorted(first, support, "right") / len(first)
    gaps = cdf_differences(below, np.searchsorted(second, support, "right") / len(second), score)
    distance = gaps.max()
    return Farthest(float(distance), float(support[gaps == distance].min()))


def cdf_differences(first: NDArray[Any], second: NDArray[Any], score: Score) -> NDArray[Any]:
    """The differences of distribution functions, value by value; one-sided, the second minus the first."""
    gaps: NDArray[Any] = second - first
    return np.abs(gaps) if score == "published" else gaps
