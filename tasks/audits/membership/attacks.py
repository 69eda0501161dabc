"""Published membership attacks. Each scores every record for one target model, higher for likely members.

`phi` is the log-odds of the true label, log p_y - log sum over y' != y of p_y', in float64. For the label-only attack
it is 1 if the label is correct, else 0. The target is one of the trained models, and the references are all others
except one (`tasks.audits.membership.left_out`). An attack uses only sums over the references on both sides of a record
(`Side`), so that these need not be computed anew for each target.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
LEAST_VARIANCE = 1e-12  # added to avoid zero variance of equal scores
LEAST_EXCESS = 1e-3  # lower bound for the spread of means, in variances, if means differ only by chance
LEAST_PROBABILITY = 1e-300  # probability of a label that no reference predicts
KEPT_BITS = 34  # of the larger term of a difference; rounding errors are about a ten-thousandth of the last bit
SIZE_OF_MEANS = 2.0**-10  # for log of a mean near 1, whose rounding errors are 1e-16 however near it is
STRONGEST_PRIOR = 1000.0  # degrees of freedom of a prior of variances that differ only by chance


@dataclass(frozen=True)
class Prior:
    """Normal-inverse-gamma prior of a record's mean and variance.

    The variance is inverse gamma with this `shape` and scale shape times `variance`. Given the variance, the mean is
    normal around `mean` with variance / `count`. The prior weighs as much as `count` references for the mean and twice
    the shape for the variance. With shape and count 0, only a record's own references count. With an infinite shape,
    all records have one variance. Priors of several targets are columns, (targets, 1).
    """

    mean: float | Array
    count: float | Array
    shape: float | Array
    variance: float | Array


class Side(Protocol):
    """The references on one side of each record: those that were trained on it, or the others.

    Values have the shape of `References.phi` or broadcast to it. Those over all records depend on the target alone.
    """

    @property
    def count(self) -> Array:
        """Number of references."""

    @property
    def total(self) -> Array:
        """Sum of their phi."""

    @property
    def squares(self) -> Array:
        """Sum of the squared deviations of their phi from the record's mean."""

    @property
    def log_likelihood(self) -> Array:
        """Mean of log p_y."""

    @property
    def probability(self) -> Array:
        """Mean of p_y."""

    @property
    def pooled_variance(self) -> Array:
        """Variance around the records' own means, pooled over records. 1 for single references."""

    @property
    def prior(self) -> Prior:
        """Prior that is fitted to all records (`fit_prior`)."""


class References(Protocol):
    """The scores of one or several targets, and their references.

    `phi` is (records,) for one target and (targets, records) for several.
    """

    @property
    def phi(self) -> Array: ...

    @property
    def inside(self) -> Side: ...

    @property
    def outside(self) -> Side: ...


def loss(references: References) -> Array:
    """Score by the target's log p_y, without references. Yeom et al. 2018, adversary 1."""
    return log_likelihood(references.phi)


def calibrated_loss(references: References) -> Array:
    """Score by log p_y minus its mean over models not trained on the record. Watson et al. 2022, eq. 3."""
    return rounded_difference(log_likelihood(references.phi), references.outside.log_likelihood)


def lira_online(references: References) -> Array:
    """Score by log N(phi; mean in, variance in) - log N(phi; mean out, variance out). Carlini et al. 2022, alg. 1."""
    return _log_ratio(references, _variance(references.inside), _variance(references.outside))


def lira_fixed(references: References) -> Array:
    """Score by LiRA online with one variance per side, around each record's mean. Carlini et al. 2022, section VI-C.

    The released code pools phi over records without removing the records' means, and uses the members' variance for
    both sides.
    """
    return _log_ratio(references, references.inside.pooled_variance, references.outside.pooled_variance)


def lira_offline(references: References) -> Array:
    """Score by (phi - mean out) / sd out, the one-sided tail. Carlini et al. 2022, eq. 4; released as a density."""
    outside = references.outside
    deviation = np.sqrt(_variance(outside) + LEAST_VARIANCE)
    return rounded_difference(references.phi / deviation, _mean(outside) / deviation)


def rmia(references: References) -> Array:
    """Score by log p_y minus the log of the mean of p_y over both sides of the references.

    For one target, the share of other records z with ratio(x) / ratio(z) > gamma (Zarifzadeh et al. 2024, eq. 4)
    depends only on ratio(x), so this score orders records in the same way up to ties.
    """
    probability = (references.inside.probability + references.outside.probability) / 2
    log_mean = np.log(probability + LEAST_PROBABILITY)
    return rounded_difference(log_likelihood(references.phi), log_mean, SIZE_OF_MEANS)


def bavaria_t(references: References) -> Array:
    """Score by BaVarIA-t: the log ratio of the predictive densities of both sides. Brännvall 2026.

    The normal-inverse-gamma prior of each side is fitted to all records (`fit_prior`), because the mean and variance of
    a single record are noisy with few references. A new value has a t distribution: Murphy 2007, eq. 206.
    """
    densities = []
    for side in (references.inside, references.outside):
        after = posterior(side, side.prior)
        densities.append(_log_t(references.phi, 2 * after.shape, after.mean, after.variance * (1 + 1 / after.count)))
    inside, outside = densities
    return rounded_difference(inside, outside)


def bavaria_n(references: References) -> Array:
    """Score by BaVarIA-n: the same with normal densities at the posterior mean and variance. Brännvall 2026."""
    return normal_ratio(references, references.inside.prior, references.outside.prior)


@dataclass(frozen=True)
class Posterior:
    """Posterior of each record. Names are as in Prior."""

    mean: Array
    count: Array
    shape: Array
    variance: Array


def posterior(side: Side, prior: Prior) -> Posterior:
    """Update a prior with the references of one side. Murphy 2007, section 6, eq. 196 to 200."""
    models = side.count
    mean = _mean(side)
    count = prior.count + models
    squares = side.squares + prior.count * models / count * (mean - prior.mean) ** 2
    shape = prior.shape + models / 2
    if np.isinf(prior.shape).any():
        variance = np.broadcast_to(prior.variance, mean.shape)
    else:
        variance = (prior.shape * prior.variance + squares / 2) / shape
    return Posterior((prior.count * prior.mean + side.total) / count, count, shape, variance + LEAST_VARIANCE)


def normal_ratio(references: References, prior_in: Prior, prior_out: Prior) -> Array:
    """Return the log ratio of normal densities with the posterior mean and variance of each side."""
    inside = posterior(references.inside, prior_in)
    outside = posterior(references.outside, prior_out)
    of_inside = _log_normal(references.phi, inside.mean, inside.variance)
    return rounded_difference(of_inside, _log_normal(references.phi, outside.mean, outside.variance))


def fit_prior(side: Side) -> Prior:
    """Fit the prior of one side to the records' means and variances (records,) by the method of moments."""
    means = Moments.of(_mean(side))
    count = np.broadcast_to(side.count, side.total.shape)
    if count.min() < 2:
        return prior_of_moments(means, None, None, 1.0, 1.0)
    variances = side.squares / (count - 1) + LEAST_VARIANCE
    logs = Moments.of(np.log(variances))
    freedom = float((count - 1).mean())
    return prior_of_moments(means, Moments.of(variances), logs, freedom, float((1 / count).mean()))


@dataclass(frozen=True)
class Moments:
    """The number of records, and the mean and the sum of squared deviations of their values."""

    count: int
    mean: float
    squares: float

    @staticmethod
    def of(values: Array) -> Moments:
        mean = float(values.mean())
        return Moments(len(values), mean, float(((values - mean) ** 2).sum()))


def prior_of_moments(
    means: Moments, variances: Moments | None, logs: Moments | None, freedom: float, mean_inverse: float
) -> Prior:
    """Fit a prior to the moments of the records' means, variances and log variances (None with single references).

    `count` solves E[(mean of a record - mean of all)^2] = E[variance] (1 / count + 1 / models). `freedom` is the mean
    number of degrees of freedom of a variance, and `mean_inverse` the mean of 1 / models. With a single reference, the
    variance is 1.
    """
    if variances is None or logs is None:
        return Prior(means.mean, 0.0, math.inf, 1.0)
    prior_freedom, variance = fit_variance_prior(logs, freedom)
    spread = means.squares / max(1, means.count - 1)
    excess = spread / variances.mean - mean_inverse
    return Prior(means.mean, 1 / max(excess, LEAST_EXCESS), prior_freedom / 2, variance)


def fit_variance_prior(logs: Moments, freedom: float) -> tuple[float, float]:
    """Fit degrees of freedom and scale of the inverse gamma prior of variances with `freedom` degrees each.

    Uses the mean and variance of the log variances, Smyth 2004, section 6.2. The result is capped at 1,000 degrees of
    freedom, for variances that differ only by chance.
    """
    from scipy import optimize, special

    excess = 0.0
    if logs.count > 1:
        excess = logs.squares / (logs.count - 1) - float(special.polygamma(1, freedom / 2))
    half = STRONGEST_PRIOR / 2
    if excess > float(special.polygamma(1, half)):
        half = float(optimize.brentq(lambda shape: float(special.polygamma(1, shape)) - excess, 1e-3, half))
    centre = logs.mean - special.digamma(freedom / 2) + np.log(freedom / 2)
    return 2 * half, float(np.exp(centre + special.digamma(half) - np.log(half)))


def label_ratio(references: References) -> Array:
    """Score by the log ratio of the rates at which models with and without the record agree with the target.

    `phi` is 1 if a label is correct, else 0. If k of n models of a side are correct, the rate is (k + 1) / (n + 2).
    Without references this is the gap attack of Yeom et al. 2018, which calls every correctly labelled record a member.
    The ratio with references is ours.
    """
    rates = []
    for side in (references.inside, references.outside):
        rates.append((side.total + 1) / (side.count + 2))
    inside, outside = (np.where(references.phi > 0.5, rate, 1 - rate) for rate in rates)
    return rounded_difference(np.log(inside), np.log(outside))


LOSS = "loss"
LABELS = "label only"
ATTACKS: Mapping[str, Callable[[References], Array]] = {
    LOSS: loss,
    "calibrated loss": calibrated_loss,
    "LiRA online": lira_online,
    "LiRA online, fixed variance": lira_fixed,
    "LiRA offline": lira_offline,
    "RMIA": rmia,
    "BaVarIA-t": bavaria_t,
    "BaVarIA-n": bavaria_n,
    LABELS: label_ratio,
}


@dataclass(frozen=True, eq=False)
class ListedSide:
    """The phi of each reference on one side, (references, records).

    It is padded with NaN if records have different numbers of references.
    """

    phi: Array

    @cached_property
    def count(self) -> Array:
        count: Array = (~np.isnan(self.phi)).sum(axis=0).astype(np.float64)
        return count

    @cached_property
    def total(self) -> Array:
        total: Array = np.nansum(self.phi, axis=0)
        return total

    @cached_property
    def squares(self) -> Array:
        squares: Array = np.nansum((self.phi - _mean(self)) ** 2, axis=0)
        return squares

    @cached_property
    def log_likelihood(self) -> Array:
        mean: Array = np.nanmean(log_likelihood(self.phi), axis=0)
        return mean

    @cached_property
    def probability(self) -> Array:
        mean: Array = np.nanmean(np.exp(log_likelihood(self.phi)), axis=0)
        return mean

    @cached_property
    def pooled_variance(self) -> Array:
        freedom = self.count.sum() - len(self.count)
        return np.asarray(self.squares.sum() / freedom if freedom else 1.0)

    @cached_property
    def prior(self) -> Prior:
        return fit_prior(self)


@dataclass(frozen=True, eq=False)
class ListedReferences:
    """The phi of one target (records,), and that of each of its references on both sides."""

    phi: Array
    inside: ListedSide
    outside: ListedSide


def rounded_difference(first: Array, second: Array, least_size: float = 0.0) -> Array:
    """Return first - second, rounded to a multiple of 2^-34 times the size of both terms.

    The size is |first| + |second| + least_size, rounded down to a power of 2. Records with the same values in another
    order have the same score, up to rounding errors, which depend on the processor. With this rounding they are equal,
    unless the errors straddle the border between two multiples.
    """
    size = np.abs(first) + np.abs(second) + least_size
    powers = size.view(np.uint64)
    powers &= np.uint64(0x7FF0_0000_0000_0000)  # keeps the exponent
    size *= 1.5 * 2.0 ** (52 - KEPT_BITS)  # so large that the sum below has no finer digits
    difference: Array = first - second
    difference += size
    difference -= size
    return difference


def log_likelihood(phi: Array) -> Array:
    """Convert log-odds to log p_y: -log(1 + exp(-phi))."""
    likelihood: Array = np.minimum(phi, 0.0) - np.log1p(np.exp(-np.abs(phi)))
    return likelihood


def _mean(side: Side) -> Array:
    return side.total / side.count


def _variance(side: Side) -> Array:
    return side.squares / side.count


def _log_ratio(references: References, variance_in: Array, variance_out: Array) -> Array:
    inside = _log_normal(references.phi, _mean(references.inside), variance_in + LEAST_VARIANCE)
    outside = _log_normal(references.phi, _mean(references.outside), variance_out + LEAST_VARIANCE)
    return rounded_difference(inside, outside)


def _log_normal(values: Array, mean: Array, variance: Array) -> Array:
    return -0.5 * (np.log(2 * np.pi * variance) + (values - mean) ** 2 / variance)


def _log_t(values: Array, freedom: Array, mean: Array, variance: Array) -> Array:
    """Return the log density of a t distribution, whose squared scale is `variance`."""
    from scipy import special

    if np.isinf(freedom).any():
        return _log_normal(values, mean, variance)
    constant = np.log(special.poch(freedom / 2, 0.5)) - 0.5 * np.log(np.pi * freedom)
    density: Array = (
        constant - (freedom + 1) / 2 * np.log1p((values - mean) ** 2 / variance / freedom) - 0.5 * np.log(variance)
    )
    return density
