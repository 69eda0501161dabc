"""Published membership attacks. Each scores every record for one target model, higher for likely members.

`phi` is the log-odds of the true label, log p_y - log sum over y' != y of p_y', in float64. For the label-only attack
it is 1 if the label is correct, else 0. The target is one of the trained models, and the references are all others
except one. For every record, each model trained on it is paired with a model that was not, and the target's partner is
also left out of the references. If only the target were left out, the numbers of members and non-members among the
references would reveal its membership.

Partners have the same references. If the record has no effect, each partner is therefore equally likely to score it
higher: within pairs the null is exact, record by record. This does not hold across the pairs of one record, because
their references overlap. There the area under the curve is .44 instead of .5 (online LiRA, 16 models, simulated), which
goes unnoticed if records are pooled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.numerics import seeds

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Rows = NDArray[np.int64]
LEAST_VARIANCE = 1e-12  # added to avoid zero variance of equal scores
LEAST_EXCESS = 1e-3  # lower bound for the spread of means, in variances, if means differ only by chance
LEAST_PROBABILITY = 1e-300  # probability of a label that no reference predicts


@dataclass(frozen=True)
class References:
    """Scores of a target and of its references.

    `phi` (records,) is the target's score. `inside` and `outside` (references, records) are the scores of references
    that were and were not trained on each record, padded with NaN if records have different numbers of references.
    """

    phi: Array
    inside: Array
    outside: Array


def pair_models(member: Mask, seed: int) -> Rows:
    """Pair members and non-members at random. Returns each model's pair index for each record, from 0.

    Both arrays have shape (models, records).
    """
    stream = seeds.generator(seed, "pairs of models")
    order = np.argsort(stream.random(member.shape) + member, axis=0)  # non-members first, in random order
    numbers = np.arange(len(member))[:, None] % (len(member) // 2)
    pairs = np.empty(member.shape, dtype=np.int64)
    np.put_along_axis(pairs, order, np.broadcast_to(numbers, member.shape), axis=0)
    return pairs


def partners(pairs: Rows, target: int) -> Rows:
    """Return the partner of the target for each record, (records,)."""
    has_same_pair = pairs == pairs[target]
    has_same_pair[target] = False
    rows: Rows = has_same_pair.argmax(axis=0)
    return rows


def leave_pairs_out(phi: Array, member: Mask, pairs: Rows, target: int, max_pairs: int | None = None) -> References:
    """Return the references of a target, (pairs, records) each, without the target and its partner.

    `max_pairs` limits the number of pairs, which are the same for the target and its partner.
    """
    after = (pairs - pairs[target] - 1) % (len(member) // 2)  # the target's own pair comes last
    is_reference = after < (len(member) // 2 - 1 if max_pairs is None else max_pairs)
    inside = _said_by(is_reference & member, phi)
    outside = _said_by(is_reference & (~member), phi)
    return References(phi[target], inside, outside)


def _said_by(models: Mask, phi: Array) -> Array:
    """Return the scores of the marked models, (models, records). Every record must have equally many."""
    of_record, numbers = np.nonzero(models.T)
    scores: Array = phi[numbers, of_record].reshape(models.shape[1], -1).T
    return np.ascontiguousarray(scores)


def loss(references: References) -> Array:
    """Score by the target's log p_y, without references. Yeom et al. 2018, adversary 1."""
    return _log_likelihood(references.phi)


def calibrated_loss(references: References) -> Array:
    """Score by log p_y minus its mean over models not trained on the record. Watson et al. 2022, eq. 3."""
    return _log_likelihood(references.phi) - _mean(_log_likelihood(references.outside))


def lira_online(references: References) -> Array:
    """Score by log N(phi; mean in, variance in) - log N(phi; mean out, variance out). Carlini et al. 2022, alg. 1."""
    return _log_ratio(references, np.nanvar(references.inside, axis=0), np.nanvar(references.outside, axis=0))


def lira_fixed(references: References) -> Array:
    """Score by LiRA online with one variance per side, around each record's mean. Carlini et al. 2022, section VI-C.

    The released code pools phi over records without removing the records' means, and uses the members' variance for
    both sides.
    """
    return _log_ratio(references, *(_pooled_variance(side) for side in (references.inside, references.outside)))


def lira_offline(references: References) -> Array:
    """Score by (phi - mean out) / sd out, the one-sided tail. Carlini et al. 2022, eq. 4; released as a density."""
    variance = np.nanvar(references.outside, axis=0) + LEAST_VARIANCE
    tail: Array = (references.phi - _mean(references.outside)) / np.sqrt(variance)
    return tail


def rmia(references: References) -> Array:
    """Score by log p_y minus the log of the mean of p_y over both sides of the references.

    For one target, the share of other records z with ratio(x) / ratio(z) > gamma (Zarifzadeh et al. 2024, eq. 4)
    depends only on ratio(x), so this score orders records in the same way up to ties.
    """
    inside = _mean(_probability(references.inside))
    outside = _mean(_probability(references.outside))
    return _log_likelihood(references.phi) - np.log((inside + outside) / 2 + LEAST_PROBABILITY)


def bavaria_t(references: References) -> Array:
    """Score by BaVarIA-t: the log ratio of the predictive densities of both sides. Brännvall 2026.

    The normal-inverse-gamma prior of each side is fitted to all records (`fit_prior`), because the mean and variance of
    a single record are noisy with few references.
    """
    from scipy import stats

    inside = posterior(references.inside, fit_prior(references.inside))
    outside = posterior(references.outside, fit_prior(references.outside))
    of_inside = stats.t.logpdf(
        references.phi, 2 * inside.shape, inside.mean, np.sqrt(inside.variance * (1 + 1 / inside.count))
    )
    of_outside = stats.t.logpdf(
        references.phi, 2 * outside.shape, outside.mean, np.sqrt(outside.variance * (1 + 1 / outside.count))
    )
    ratio: Array = of_inside - of_outside
    return ratio


def bavaria_n(references: References) -> Array:
    """Score by BaVarIA-n: the same with normal densities at the posterior mean and variance. Brännvall 2026."""
    return normal_ratio(references, *(fit_prior(side) for side in (references.inside, references.outside)))


@dataclass(frozen=True)
class Prior:
    """Normal-inverse-gamma prior of a record's mean and variance.

    The variance is inverse gamma with this `shape` and scale shape times `variance`. Given the variance, the mean is
    normal around `mean` with variance / `count`. The prior weighs as much as `count` references for the mean and twice
    the shape for the variance. With shape and count 0, only a record's own references count. With an infinite shape,
    all records have one variance.
    """

    mean: float
    count: float
    shape: float
    variance: float


@dataclass(frozen=True)
class Posterior:
    """Posterior of each record, (records,) each. Names are as in Prior."""

    mean: Array
    count: Array
    shape: Array
    variance: Array


def posterior(side: Array, prior: Prior) -> Posterior:
    """Update a prior with references (models, records). Murphy 2007, section 6, eq. 196 to 200."""
    models = (~np.isnan(side)).sum(axis=0)
    mean = _mean(side)
    count = prior.count + models
    squares = np.nansum((side - mean) ** 2, axis=0) + prior.count * models / count * (mean - prior.mean) ** 2
    shape = prior.shape + models / 2
    finite = np.isfinite(prior.shape)
    if finite:
        variance = (prior.shape * prior.variance + squares / 2) / shape
    else:
        variance = np.full(len(mean), prior.variance)
    return Posterior((prior.count * prior.mean + models * mean) / count, count, shape, variance + LEAST_VARIANCE)


def normal_ratio(references: References, prior_in: Prior, prior_out: Prior) -> Array:
    """Return the log ratio of normal densities with the posterior mean and variance of each side."""
    inside = posterior(references.inside, prior_in)
    outside = posterior(references.outside, prior_out)
    of_inside = _log_normal(references.phi, inside.mean, inside.variance)
    return of_inside - _log_normal(references.phi, outside.mean, outside.variance)


def fit_prior(side: Array) -> Prior:
    """Fit the prior of one side to the records' means and variances by the method of moments.

    `count` solves E[(mean of a record - mean of all)^2] = E[variance] (1 / count + 1 / models). With a single
    reference, the variance is 1.
    """
    models = (~np.isnan(side)).sum(axis=0)
    means = _mean(side)
    if models.min() < 2:
        return Prior(float(means.mean()), 0.0, math.inf, 1.0)
    variances = np.nanvar(side, axis=0) * models / (models - 1) + LEAST_VARIANCE
    freedom, variance = fit_variance_prior(variances, float((models - 1).mean()))
    spread = float(((means - means.mean()) ** 2).sum() / max(1, len(means) - 1))
    excess = spread / float(variances.mean()) - float((1 / models).mean())
    return Prior(float(means.mean()), 1 / max(excess, LEAST_EXCESS), freedom / 2, variance)


def fit_variance_prior(variance: Array, freedom: float) -> tuple[float, float]:
    """Fit degrees of freedom and scale of the inverse gamma prior of variances with `freedom` degrees each.

    Uses the mean and variance of the log variances, Smyth 2004, section 6.2. The result is capped at 1,000 degrees of
    freedom, for variances that differ only by chance.
    """
    from scipy import optimize, special

    logs = np.log(variance)
    centred = logs - special.digamma(freedom / 2) + np.log(freedom / 2)
    largest = 1000.0
    excess = 0.0
    if len(logs) > 1:
        excess = float(centred.var(ddof=1) - special.polygamma(1, freedom / 2))
    if excess <= float(special.polygamma(1, largest / 2)):
        prior = largest
    else:
        prior = 2 * float(optimize.brentq(lambda half: float(special.polygamma(1, half)) - excess, 1e-3, largest / 2))
    return prior, float(np.exp(centred.mean() + special.digamma(prior / 2) - np.log(prior / 2)))


def label_ratio(references: References) -> Array:
    """Score by the log ratio of the rates at which models with and without the record agree with the target.

    `phi` is 1 if a label is correct, else 0. If k of n models of a side are correct, the rate is (k + 1) / (n + 2).
    Without references this is the gap attack of Yeom et al. 2018, which calls every correctly labelled record a member.
    The ratio with references is ours.
    """
    rates = []
    for side in (references.inside, references.outside):
        rates.append((np.nansum(side, axis=0) + 1) / ((~np.isnan(side)).sum(axis=0) + 2))
    inside, outside = (np.where(references.phi > 0.5, rate, 1 - rate) for rate in rates)
    ratio: Array = np.log(inside) - np.log(outside)
    return ratio


LABELS = "label only"
ATTACKS: Mapping[str, Callable[[References], Array]] = {
    "loss": loss,
    "calibrated loss": calibrated_loss,
    "LiRA online": lira_online,
    "LiRA online, fixed variance": lira_fixed,
    "LiRA offline": lira_offline,
    "RMIA": rmia,
    "BaVarIA-t": bavaria_t,
    "BaVarIA-n": bavaria_n,
    LABELS: label_ratio,
}


def _log_likelihood(phi: Array) -> Array:
    """Convert log-odds to log p_y: -log(1 + exp(-phi))."""
    with np.errstate(invalid="ignore"):  # NaN marks models of the other side
        return -np.logaddexp(0.0, -phi)


def _mean(side: Array) -> Array:
    """Return the mean over the models of a side, (records,)."""
    mean: Array = np.nanmean(side, axis=0)
    return mean


def _probability(phi: Array) -> Array:
    return np.exp(_log_likelihood(phi))


def _pooled_variance(side: Array) -> Array:
    """Return the variance around the records' own means, pooled over records, (records,). 1 for single references."""
    deviations = side - _mean(side)
    freedom = (~np.isnan(side)).sum() - side.shape[1]
    return np.full(side.shape[1], np.nansum(deviations**2) / freedom if freedom else 1.0)


def _log_ratio(references: References, variance_in: Array, variance_out: Array) -> Array:
    inside = _log_normal(references.phi, _mean(references.inside), variance_in + LEAST_VARIANCE)
    return inside - _log_normal(references.phi, _mean(references.outside), variance_out + LEAST_VARIANCE)


def _log_normal(values: Array, mean: Array, variance: Array) -> Array:
    return -0.5 * (np.log(2 * np.pi * variance) + (values - mean) ** 2 / variance)
