"""The published score rho: a target's distance from query models, relative to the calibration models' distance.

The distance between two models' confidences is the two-sample Kolmogorov-Smirnov distance, as published and one-sided:

    KS(a, b) = sup over x of |F_a(x) - F_b(x)|,    F_a(x) = share of a that is at most x
    KS below = sup over x of F_b(x) - F_a(x)

The one-sided distance measures how far b lies below a, and is 0 if b is nowhere less confident. KS is the larger of the
two one-sided distances. The supremum is over the pooled support, as in scipy.stats.ks_2samp. Tied values are passed
together, since float32 softmaxes have many values of exactly 1. Liu & Tsaftaris 2020, eqs. 1 to 3, read literally
evaluate each distribution function at its own sorted values; without ties that is i / n for both, and the distance is
0.

The published score compares unrounded confidences. Our one-sided score rounds them to two decimals
(`Forgetting.decimals`), since models that know an image differ in how close to 1 their confidences are.

    A = mean over i, j of KS(q_i, t_j)    B = mean over i, k of KS(q_i, c_k)    rho = A / B
    rho (1 +- t(df) SE), not below 0

    SE^2 = s^2(u_j) / R_t + s^2(v_k) / R_c + s^2(w_i) / R_q
    u_j = mean over i of KS(q_i, t_j) / A                v_k = mean over i of KS(q_i, c_k) / B
    w_i = mean over j of KS(q_i, t_j) / A - mean over k of KS(q_i, c_k) / B

A query model appears in both the numerator and the denominator, so w is one term. df is Satterthwaite's, SE^4 / sum of
(term^2 / (its number - 1)). Images are not resampled, since D_Q is the whole population. A single given model has no
spread: s^2(v) replaces its s^2(u), and the interval describes one model trained like the calibration models.

In 2000 simulated nulls of 100 images, 95 % intervals cover 1, the value of rho over an infinite population of images,
in 96.2 % with 3 models of each kind, 95.5 % with 5, and 94.8 % for single given targets. Near 0 the upper end is too
low. rho decides nothing: it does not determine a share of D_Q, and other data of the domain lower it as well.

The audit: Liu & Tsaftaris 2020, "Have you forgotten?", eq. 4; the replicates and the interval are ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tasks.audits.forgetting.confidence_matrix import ConfidenceMatrix
from tasks.audits.forgetting.trainings import ModelId
from tasks.contract.summaries import Estimate
from tasks.numerics.statistics import t_quantile

Array = NDArray[np.float64]
Score = Literal["published", "one-sided"]
SCORES: tuple[Score, ...] = ("published", "one-sided")
METRIC_PREFIX: Mapping[Score, str] = {"one-sided": "one-sided ", "published": ""}  # in the summary, the answer first


class Farthest(NamedTuple):
    """The distance, and the lowest value at which the distribution functions differ by it."""

    distance: float
    value: float


def ks(first: ArrayLike, second: ArrayLike, score: Score = "published") -> float:
    """Compute the KS distance of two lists, in [0, 1]: 0 for equal distributions, 1 if all of one lie below the other.

    The one-sided distance is 1 if all of the second lie below the first, and 0 if all of the second lie above. This is
    the statistic of scipy.stats.ks_2samp(first, second, alternative="less"), which compares distribution functions.
    Raises ValueError if a list is empty or contains NaN.
    """
    return farthest(_sorted_values(first), _sorted_values(second), score).distance


def distances(first: NDArray[Any], second: NDArray[Any], score: Score) -> tuple[Array, Array]:
    """Compute KS and its position for each row of `first` (a, n) and each row of `second` (b, m), both (a, b)."""
    first_values = [_sorted_values(row) for row in first]
    second_values = [_sorted_values(row) for row in second]
    pairs = np.array(
        [farthest(first_value, second_value, score) for first_value in first_values for second_value in second_values],
        np.float64,
    )
    values = pairs.reshape(len(first), len(second), 2)
    return values[..., 0], values[..., 1]


def pairwise_distances(models: NDArray[Any], score: Score) -> Array:
    """Compute KS for each pair of rows of (r, n), (r, r): 0 on the diagonal, and symmetric for the published score."""
    values = [_sorted_values(row) for row in models]
    matrix = np.zeros((len(values), len(values)))
    for i, first in enumerate(values):
        for j, second in enumerate(values):
            matrix[i, j] = farthest(first, second, score).distance
    return matrix


def _sorted_values(values: ArrayLike) -> Array:
    """Sort the values. Raises ValueError if there are none or one is NaN."""
    rising = np.sort(np.asarray(values, np.float64), axis=None)
    if not len(rising):
        raise ValueError("a list of confidences is empty; KS needs at least one on either side")
    if np.isnan(rising[-1]):  # NaN sorts last
        raise ValueError(f"{np.count_nonzero(np.isnan(rising))} of {len(rising)} confidences are not numbers")
    return rising


def farthest(first: Array, second: Array, score: Score = "published") -> Farthest:
    """Compute KS of two sorted lists, and its position."""
    support = np.concatenate((first, second))
    below = np.searchsorted(first, support, "right") / len(first)
    gaps = _cdf_differences(below, np.searchsorted(second, support, "right") / len(second), score)
    distance = gaps.max()
    return Farthest(float(distance), float(support[gaps == distance].min()))


def _cdf_differences(first: NDArray[Any], second: NDArray[Any], score: Score) -> NDArray[Any]:
    """Subtract distribution functions value by value: second minus first for one-sided, absolute for published."""
    gaps: NDArray[Any] = second - first
    return np.abs(gaps) if score == "published" else gaps


@dataclass(frozen=True, eq=False)
class Ratio:
    """rho and its parts. The n of each estimate is its number of models, for rho the number of target models.

    rho has no value if B is 0 or unknown, and no interval with fewer than two query or calibration models.
    """

    rho: Estimate
    target: Estimate  # A
    calibration: Estimate  # B
    to_target: Array  # KS(q_i, t_j), (R_q, R_t)
    to_calibration: Array  # KS(q_i, c_k), (R_q, R_c)


@dataclass(frozen=True)
class Term:
    """A variance term of an estimate, with its degrees of freedom."""

    variance: float
    freedom: float


Terms = tuple[Term, ...] | None  # None if a term is unknown


def ratio(query: NDArray[Any], calibration: NDArray[Any], target: NDArray[Any], score: Score = "published") -> Ratio:
    """Compute rho of a target from confidences (models, images), with 95 % intervals.

    Calibration models are optional. Raises ValueError without a query model or without a target model.
    """
    if not len(query) or not len(target):
        raise ValueError(f"there are {len(query)} query and {len(target)} target models; rho needs at least 1 of each")
    to_target, _ = distances(query, target, score)
    to_calibration, _ = distances(query, calibration, score)
    first, second = MeanDistance(to_target), MeanDistance(to_calibration)
    return Ratio(
        rho=quotient(first, second, query.shape[1]),
        target=mean_estimate(first.mean, first.terms(second), len(target)),
        calibration=mean_estimate(second.mean, second.terms(second), len(calibration)),
        to_target=to_target,
        to_calibration=to_calibration,
    )


@dataclass(frozen=True, eq=False)
class MeanDistance:
    """Mean KS between query models and other models, from the distances (R_q, R)."""

    distances: Array

    @property
    def mean(self) -> float | None:
        return float(self.distances.mean()) if self.distances.size else None

    @property
    def by_query(self) -> Array:
        """Mean of each query model, relative to the overall mean (R_q,)."""
        return np.asarray(self.distances.mean(axis=1) / self.distances.mean())

    @property
    def by_other(self) -> Array:
        """Mean of each other model, relative to the overall mean (R,)."""
        return np.asarray(self.distances.mean(axis=0) / self.distances.mean())

    def terms(self, calibration: MeanDistance) -> Terms:
        """Return the relative variance of the mean. A single other model is assumed to vary like calibration models."""
        if not self.mean or len(self.distances) < 2:
            return None
        source = self if self.distances.shape[1] > 1 else calibration
        if not source.mean or source.distances.shape[1] < 2:
            return None
        other_term = _variance_term(source.by_other, self.distances.shape[1])
        return other_term, _variance_term(self.by_query)


def quotient(target: MeanDistance, calibration: MeanDistance, images: int) -> Estimate:
    """Compute rho with a 95 % interval.

    If A is 0, rho is 0. The upper end of its interval is then that for the smallest distance above 0, one image, with
    the variation of B alone.
    """
    a = target.mean
    b = calibration.mean
    n = target.distances.shape[1]
    if a is None or not b:
        return Estimate(None, None, None, n)
    below = calibration.terms(calibration)
    if below is None:
        return Estimate(a / b, None, None, n)
    if not a:
        return Estimate(0.0, 0.0, (1 + interval_half_width(below)) / images / b, n)
    reach = interval_half_width(_ratio_terms(target, calibration))
    return Estimate(a / b, a / b * max(0.0, 1 - reach), a / b * (1 + reach), n)


def _ratio_terms(target: MeanDistance, calibration: MeanDistance) -> tuple[Term, ...]:
    """Return the terms of the relative variance of rho."""
    query_term = _variance_term(target.by_query - calibration.by_query)
    calibration_term = _variance_term(calibration.by_other)
    if len(target.by_other) > 1:
        return _variance_term(target.by_other), calibration_term, query_term
    # Both terms use one spread, so its degrees of freedom must count once.
    other_term = Term(
        calibration_term.variance + _variance_term(calibration.by_other, 1).variance, calibration_term.freedom
    )
    return other_term, query_term


def mean_estimate(mean: float | None, terms: Terms, n: int) -> Estimate:
    """Compute an interval for a mean KS on the logit scale, which stays within 0 and 1. No interval at 0 and 1."""
    if mean is None or terms is None or not 0 < mean < 1:
        return Estimate(mean, None, None, n)
    reach = interval_half_width(terms) / (1 - mean)
    odds = math.log(mean / (1 - mean))
    return Estimate(mean, 1 / (1 + math.exp(reach - odds)), 1 / (1 + math.exp(-reach - odds)), n)


def _variance_term(values: Array, n: int = 0) -> Term:
    """Return the variance of a mean of n models that vary like these values (n = 0: as many as there are values)."""
    return Term(float(values.var(ddof=1)) / (n or len(values)), len(values) - 1)


def interval_half_width(terms: tuple[Term, ...]) -> float:
    """Return half the width of the 95 % t interval. 0 without variation. Satterthwaite 1946, eq. 17."""
    variance = sum(term.variance for term in terms)
    if not variance:
        return 0.0
    freedom = variance**2 / sum(term.variance**2 / term.freedom for term in terms)
    return t_quantile(0.975, freedom) * math.sqrt(variance)


@dataclass(frozen=True, eq=False)
class Comparison:
    """rho, and the mean KS between query models (None if there is only one)."""

    ratio: Ratio
    floor: float | None


def _comparable_confidences(matrix: ConfidenceMatrix, score: Score, *parts: Sequence[ModelId]) -> Iterator[Array]:
    """Yield the confidences that a score compares: unrounded for the published score, rounded for ours."""
    if score == "published":
        return matrix.published_confidences(*parts)
    return matrix.rounded_confidences(*parts)


def compare_target(matrix: ConfidenceMatrix, target: Sequence[ModelId], score: Score) -> Comparison:
    """Compare the models of a target with all query and calibration models.

    Raises ValueError if there are no query models.
    """
    parts = matrix.replicates("query"), matrix.replicates("calibration"), target
    query, calibration, models = _comparable_confidences(matrix, score, *parts)
    floor = pairwise_distances(query, score)[~np.eye(len(query), dtype=bool)]
    return Comparison(ratio(query, calibration, models, score), float(floor.mean()) if len(floor) else None)
