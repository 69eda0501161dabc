"""rho, which compares a target with calibration models by how far both lie from query models, with its interval.

    A = mean over i, j of KS(q_i, t_j)    B = mean over i, k of KS(q_i, c_k)    rho = A / B

    rho (1 +- t(df) SE), not below 0
    SE^2 = s^2(u_j) / R_t + s^2(v_k) / R_c + s^2(w_i) / R_q + s^2(images)
    u_j = mean over i of KS(q_i, t_j) / A                v_k = mean over i of KS(q_i, c_k) / B
    w_i = mean over j of KS(q_i, t_j) / A - mean over k of KS(q_i, c_k) / B

A query model is in both the numerator and the denominator, so w is one term. The first three are what a bootstrap over
replicates tends to that draws R - 1 of R (Rao & Wu 1988), without its noise. s^2(images) is the variance of A* / A -
B* / B in resamples of the images, the same for all models; U - 1 of the U units are drawn, which are groups (patients)
where there are such. df is Satterthwaite's, SE^4 / sum of (term^2 / (its number - 1)).

A target that is one given model shows no spread: s^2(v) is taken for its s^2(u). The interval then says where one model
lies that was trained like the calibration models.

How good it is, in 1000 simulated nulls of 200 images (rho = 1; coverage of 95 % intervals, and how often they lie
wholly below 0.9, where a margin of 0.1 would call the target not forgotten), and in 400 targets of rho = 0.76:

    models of each kind          coverage   below 0.9   below 0.9 at rho = 0.76
    3                              97 %       0 %          60 %
    5                              97 %       0 %          88 %
    5, and one given target        95 %       0.1 %        48 %

Both scores are the same there, as wherever the calibration models are the less sure throughout. Where the distribution
functions cross, coverage is 95 to 98 % and at most 0.8 % lie below 0.9, by either score (400 nulls or more); with 3000
images, or 30 groups of 10, it is 96 to 97 % (100 and 200). Percentiles of a bootstrap over images and replicates, with
R and with R - 1 draws of R, fail: they cover 86 to 92 %, with one given target 55 to 58 % (of 400), because so few
replicates vary too little, one not at all, and KS of resampled images is too large where the true one is near 0.

Near 0 the upper end is too low. Of targets that hold the query set (one-sided rho = 0.1) 89 % are covered with 3 models
of each kind, 94 % with 5 and 60 % of single given ones; 67 % of 5 that are so much surer that rho is 0.015. All but
one of these 950 intervals lie below 0.9 none the less. A log scale would cover 94, 98, 68 and 95 %, but a small A
varies so much in parts of itself that a quarter of the intervals with 3 models would reach above 0.9, and at rho = 0.76
there would be 3 to 8 % fewer below.

The audit: Liu & Tsaftaris 2020, "Have you forgotten?", eq. 4; the replicates and the interval are ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.audits.forgetting.kolmogorov_smirnov import Array, Score, distances, resampled
from tasks.statistics import Estimate

BLOCK = 64  # resamples at one time: with 60,000 images 15 MB of weights

Chance = np.random.Generator


@dataclass(frozen=True, eq=False)
class Ratio:
    """rho and what it is made of; each estimate's n is its number of models, of rho those of the target.

    rho has no value where B is 0 or unknown. There is no interval where nothing shows how models vary: fewer than two
    query or calibration models, or a single image (or group).
    """

    rho: Estimate
    target: Estimate  # A
    calibration: Estimate  # B
    to_target: Array  # KS(q_i, t_j), (R_q, R_t)
    to_calibration: Array  # KS(q_i, c_k), (R_q, R_c)
    units: int  # of images: groups where there are such


@dataclass(frozen=True)
class Term:
    """A part of the variance of an estimate, and on how many degrees of freedom it is known."""

    variance: float
    freedom: float


Terms = tuple[Term, ...] | None  # None where a part cannot be known


def ratio(
    query: NDArray[Any],
    calibration: NDArray[Any],
    target: NDArray[Any],
    groups: NDArray[np.int64] | None,
    resamples: int,
    generator: Chance,
    score: Score = "published",
) -> Ratio:
    """rho of a target from confidences (models, images), R_q, R_c and R_t of them, with 95 % intervals.

    `groups` (n,) says which images belong together and are resampled together. There may be no calibration model.
    ValueError without a query or target model.
    """
    if not len(query) or not len(target):
        raise ValueError(f"there are {len(query)} query and {len(target)} target models; rho needs at least 1 of each")
    to_target, at_target = distances(query, target, score)
    to_calibration, at_calibration = distances(query, calibration, score)
    units = np.arange(query.shape[1]) if groups is None else np.unique(groups, return_inverse=True)[1]
    count = int(units.max()) + 1

    def over_images() -> Array:
        """KS of every query model and every other in the resamples, (resamples, R_q, R_t + R_c)."""
        at = np.concatenate((at_target, at_calibration), axis=1)
        drawn = weights(units, resamples, generator)
        return resampled(query, np.concatenate((target, calibration)), drawn, at, score)

    known = resamples > 1 and count > 1 and len(query) > 1 and (len(calibration) > 1 or len(target) > 1)
    spread = over_images() if known else None
    a = None if spread is None else spread[:, :, : len(target)]
    b = None if spread is None else spread[:, :, len(target) :]
    first, second = Part(to_target, a, count), Part(to_calibration, b, count)
    return Ratio(
        rho=quotient(first, second, query.shape[1]),
        target=level(first.mean, first.terms(second), len(target)),
        calibration=level(second.mean, second.terms(second), len(calibration)),
        to_target=to_target,
        to_calibration=to_calibration,
        units=count,
    )


@dataclass(frozen=True, eq=False)
class Part:
    """A mean of KS over query models and others: the distances (R_q, R), these in resamples, and the units drawn."""

    distances: Array
    resampled: Array | None
    units: int

    @property
    def mean(self) -> float | None:
        return float(self.distances.mean()) if self.distances.size else None

    @property
    def by_query(self) -> Array:
        """The mean of each query model, in parts of the mean (R_q,)."""
        return np.asarray(self.distances.mean(axis=1) / self.distances.mean())

    @property
    def by_other(self) -> Array:
        """The mean of each of the others, in parts of the mean (R,)."""
        return np.asarray(self.distances.mean(axis=0) / self.distances.mean())

    @property
    def by_resample(self) -> Array:
        """The mean in each resample of the images, in parts of the mean."""
        assert self.resampled is not None
        return np.asarray(self.resampled.mean(axis=(1, 2)) / self.distances.mean())

    def terms(self, calibration: Part) -> Terms:
        """The variance of the mean in parts of it; a single other model varies as those of the calibration do."""
        if not self.mean or self.resampled is None:
            return None
        like = self if self.distances.shape[1] > 1 else calibration
        if not like.mean or like.distances.shape[1] < 2:
            return None
        others = of_models(like.by_other, self.distances.shape[1])
        return others, of_models(self.by_query), of_images(self.by_resample, self.units)


def quotient(target: Part, calibration: Part, images: int) -> Estimate:
    """rho with its interval.

    Where A is 0 rho is 0, and its interval goes from 0 to the upper end of what the smallest distance above 0, one
    image, would give by the variation of B alone.
    """
    a, b, n = target.mean, calibration.mean, target.distances.shape[1]
    if a is None or not b:
        return Estimate(None, None, None, n)
    below = calibration.terms(calibration)
    if below is None:
        return Estimate(a / b, None, None, n)
    if not a:
        return Estimate(0.0, 0.0, (1 + half(below)) / images / b, n)
    reach = half(together(target, calibration))
    return Estimate(a / b, a / b * max(0.0, 1 - reach), a / b * (1 + reach), n)


def together(target: Part, calibration: Part) -> tuple[Term, ...]:
    """The variance of rho, in parts of rho, term by term."""
    queries = of_models(target.by_query - calibration.by_query)
    images = of_images(target.by_resample - calibration.by_resample, target.units)
    others = of_models(calibration.by_other)
    if len(target.by_other) > 1:
        return of_models(target.by_other), others, queries, images
    # One spread for both, so that its degrees of freedom count once.
    alike = Term(others.variance + of_models(calibration.by_other, 1).variance, others.freedom)
    return alike, queries, images


def level(mean: float | None, terms: Terms, n: int) -> Estimate:
    """A mean of KS, with its interval on the logit scale, which stays within 0 and 1; at these it has none."""
    if mean is None or terms is None or not 0 < mean < 1:
        return Estimate(mean, None, None, n)
    reach = half(terms) / (1 - mean)
    odds = math.log(mean / (1 - mean))
    return Estimate(mean, 1 / (1 + math.exp(reach - odds)), 1 / (1 + math.exp(-reach - odds)), n)


def of_models(values: Array, n: int = 0) -> Term:
    """The variance of a mean of n models (0: of as many as there are) that vary as these do."""
    return Term(float(values.var(ddof=1)) / (n or len(values)), len(values) - 1)


def of_images(values: Array, units: int) -> Term:
    """The variance over resamples. Around their own mean: KS of resamples is larger than KS."""
    return Term(float(values.var(ddof=1)), units - 1)


def half(terms: tuple[Term, ...], confidence: float = 0.95) -> float:
    """Half the width of the t interval; 0 where nothing varies. Satterthwaite 1946, eq. 17."""
    variance = sum(term.variance for term in terms)
    if not variance:
        return 0.0
    from scipy import stats

    freedom = variance**2 / sum(term.variance**2 / term.freedom for term in terms)
    return float(stats.t.ppf((1 + confidence) / 2, freedom) * math.sqrt(variance))


def weights(units: NDArray[np.intp], resamples: int, generator: Chance) -> Iterator[NDArray[np.int32]]:
    """How often each image is in each resample, in blocks (n, at most BLOCK): U - 1 of U units, with replacement.

    U - 1, because U draws vary less than U units do by the factor (U - 1) / U. Rao & Wu 1988.
    """
    count = int(units.max()) + 1
    for first in range(0, resamples, BLOCK):
        size = min(BLOCK, resamples - first)
        drawn = generator.integers(count, size=(size, count - 1)) + count * np.arange(size)[:, None]
        times = np.bincount(drawn.reshape(-1), minlength=size * count).astype(np.int32).reshape(size, count)
        yield np.ascontiguousarray(times.T[units])
