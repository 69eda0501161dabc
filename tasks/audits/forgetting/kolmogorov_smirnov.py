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

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Score = Literal["published", "one-sided"]
SCORES: tuple[Score, ...] = ("published", "one-sided")
METRIC_PREFIX: Mapping[Score, str] = {"one-sided": "one-sided ", "published": ""}  # in the summary, the answer's first

POINTS = 256  # quantiles of all confidences at which, and where models differ most, resamples are looked at


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
    return farthest(ordered(first), ordered(second), score).distance


def distances(first: NDArray[Any], second: NDArray[Any], score: Score) -> tuple[Array, Array]:
    """KS of each row of `first` (a, n) and each of `second` (b, m), and where it is reached; both (a, b)."""
    ones, others = [ordered(row) for row in first], [ordered(row) for row in second]
    pairs = np.array([farthest(one, other, score) for one in ones for other in others], np.float64)
    reached = pairs.reshape(len(first), len(second), 2)
    return reached[..., 0], reached[..., 1]


def among(models: NDArray[Any], score: Score) -> Array:
    """KS of each pair of rows of (r, n), (r, r): 0 on the diagonal, and symmetric as published."""
    every = [ordered(row) for row in models]
    matrix = np.zeros((len(every), len(every)))
    for i, one in enumerate(every):
        for j, other in enumerate(every):
            matrix[i, j] = farthest(one, other, score).distance
    return matrix


def ordered(values: ArrayLike) -> Array:
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
    gaps = apart(below, np.searchsorted(second, support, "right") / len(second), score)
    distance = gaps.max()
    return Farthest(float(distance), float(support[gaps == distance].min()))


def apart(first: NDArray[Any], second: NDArray[Any], score: Score) -> NDArray[Any]:
    """The differences of distribution functions, value by value; one-sided, the second minus the first."""
    gaps: NDArray[Any] = second - first
    return np.abs(gaps) if score == "published" else gaps


def resampled(
    first: NDArray[Any], second: NDArray[Any], weights: Iterable[NDArray[np.int32]], at: Array, score: Score
) -> Array:
    """KS of each row of `first` (a, n) and each of `second` (b, n) in resamples of the images: (resamples, a, b).

    `weights` yields blocks (n, resamples): how often each image is in a resample, the same for all models, because they
    were asked about the same images. Distribution functions are taken at all values if these are few, else at POINTS
    quantiles of all and at the values `at`. With the places where KS is reached there, weights of 1 give KS itself.
    """
    points = looked_at(np.concatenate((first, second)), at)
    below = np.searchsorted(points, np.concatenate((first, second)), "left")  # the first point that counts the value
    cells = indicators(below, len(points))
    blocks = [between(cells @ block, block.sum(axis=0), len(first), len(points), score) for block in weights]
    return np.concatenate(blocks)


def looked_at(values: NDArray[Any], at: Array) -> Array:
    """The points, rising, at which distribution functions of the values are compared; the largest value is last."""
    every = np.sort(values, axis=None)
    distinct = every[np.concatenate(([True], every[1:] != every[:-1]))]
    if len(distinct) <= POINTS + at.size:
        return distinct
    quantiles = every[np.linspace(0, len(every) - 1, POINTS).round().astype(np.intp)]
    return np.unique(np.concatenate((quantiles, at.reshape(-1))))


def indicators(below: NDArray[np.intp], points: int) -> Any:
    """The sparse (models * points, n) matrix of which image lies in which cell of which model.

    Its product with weights is a histogram of each model in each resample, several times as fast as counting them.
    """
    from scipy import sparse

    models, images = below.shape
    rows = below + points * np.arange(models)[:, None]
    columns = np.broadcast_to(np.arange(images), below.shape)
    ones = np.ones(below.size, np.int32)
    return sparse.csr_matrix((ones, (rows.reshape(-1), columns.reshape(-1))), (models * points, images))


def between(counts: NDArray[np.int32], totals: NDArray[np.int64], first: int, points: int, score: Score) -> Array:
    """KS between the first models and the others from counts (models * points, resamples): (resamples, a, b)."""
    histograms = counts.reshape(-1, points, counts.shape[1])  # (models, points, resamples)
    functions = histograms.cumsum(axis=1, dtype=np.int32)
    one, other = functions[:first], functions[first:]
    gaps = np.array([[apart(a, b, score).max(axis=0) for b in other] for a in one], np.float64)
    return np.moveaxis(gaps.reshape(first, len(other), -1) / totals, 2, 0)
