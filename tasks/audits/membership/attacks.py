"""Published membership attacks: a score of every record for one target, higher where it is rather a member.

`phi` is the log-odds of the true label, log p_y - log sum over y' != y of p_y', in float64; of the attack that sees
labels alone it is 1 where the label is right, else 0. The target is one of the models that the audit trains; the
references are the others but one. For every record the models that were trained on it are matched with those that were
not, and the target's partner is left out, too. Were the target alone left out, the numbers of members and of others
left among the references would tell its membership.

Partners have the same references. So where a record has no influence, it is as likely that the one that was trained on
it scores higher as that the other does: within pairs the null is exact, record by record. It is not so across the pairs
of one record, whose references hold one another: there the area under the curve is .44 where it should be .5 (online
LiRA, 16 models, simulated), which does not show when records are pooled.
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
LEAST_VARIANCE = 1e-12  # of scores that are all alike
LEAST_EXCESS = 1e-3  # of the spread of means, in variances: records whose means differ by chance alone
LEAST_PROBABILITY = 1e-300  # of a label that no reference gives


@dataclass(frozen=True)
class References:
    """What a target says of each record, and the references say by whether they were trained on it.

    `phi` is (records,), the target's; `inside` and `outside` are (references, records): what models say of each record
    that were trained on it, and others. NaN stands for none, where records have different numbers of references.
    """

    phi: Array
    inside: Array
    outside: Array


def pair_models(member: Mask, seed: int) -> Rows:
    """The number of the pair of each model for each record, from 0: members and others are matched at random.

    Both are (models, records).
    """
    stream = seeds.generator(seed, "pairs of models")
    order = np.argsort(stream.random(member.shape) + member, axis=0)  # non-members first, each side at random
    numbers = np.arange(len(member))[:, None] % (len(member) // 2)
    pairs = np.empty(member.shape, dtype=np.int64)
    np.put_along_axis(pairs, order, np.broadcast_to(numbers, member.shape), axis=0)
    return pairs


def partners(pairs: Rows, target: int) -> Rows:
    """The partner of the target for each record, (records,)."""
    others = pairs == pairs[target]
    others[target] = False
    rows: Rows = others.argmax(axis=0)
    return rows


def leave_pairs_out(phi: Array, member: Mask, pairs: Rows, target: int, most: int | None = None) -> References:
    """The references of a target, (pairs, records) each, without the target and its partner for each record.

    With `most` they are those of so many pairs, which are the same for the target and its partner.
    """
    after = (pairs - pairs[target] - 1) % (len(member) // 2)  # the target's own pair is the last
    kept = after < (len(member) // 2 - 1 if most is None else most)
    inside, outside = (_said_by(kept & side, phi) for side in (member, ~member))
    return References(phi[target], inside, outside)


def _said_by(models: Mask, phi: Array) -> Array:
    """What these models say of each record, (of them, records); they are equally many for each record."""
    of_record, numbers = np.nonzero(models.T)
    said: Array = phi[numbers, of_record].reshape(models.shape[1], -1).T
    return np.ascontiguousarray(said)


def loss(references: References) -> Array:
    """log p_y by the target, without references. Yeom et al. 2018, adversary 1."""
    return _log_likelihood(references.phi)


def calibrated_loss(references: References) -> Array:
    """log p_y by the target less its mean over models not trained on the record. Watson et al. 2022, eq. 3."""
    return _log_likelihood(references.phi) - _mean(_log_likelihood(references.outside))


def lira_online(references: References) -> Array:
    """log N(phi; mean in, variance in) - log N(phi; mean out, variance out). Carlini et al. 2022, algorithm 1."""
    return _log_ratio(references, np.nanvar(references.inside, axis=0), np.nanvar(references.outside, axis=0))


def lira_fixed(references: References) -> Array:
    """LiRA online with one variance a side, about each record's own mean. Carlini et al. 2022, section VI-C.

    The released code pools phi over records without removing the records' means, and takes the members' for both sides.
    """
    return _log_ratio(references, *(_pooled_variance(side) for side in (references.inside, references.outside)))


def lira_offline(references: References) -> Array:
    """(phi - mean out) / sd out: the one-sided tail Phi of it. Carlini et al. 2022, eq. 4; released as a density."""
    variance = np.nanvar(references.outside, axis=0) + LEAST_VARIANCE
    tail: Array = (references.phi - _mean(references.outside)) / np.sqrt(variance)
    return tail


def rmia(references: References) -> Array:
    """log p_y by the target less the log of its mean over both sides of the references.

    The share of other records z with ratio(x) / ratio(z) > gamma (Zarifzadeh et al. 2024, eq. 4) rises with ratio(x)
    alone for one target, so it orders records as this does but for ties.
    """
    inside, outside = (_mean(_probability(side)) for side in (references.inside, references.outside))
    return _log_likelihood(references.phi) - np.log((inside + outside) / 2 + LEAST_PROBABILITY)


def bavaria_t(references: References) -> Array:
    """BaVarIA-t: the log ratio of what a normal-inverse-gamma prior predicts of either side. Brännvall 2026.

    The prior of each side is fitted to all records (`fit_prior`), so nothing is left to choose. With few references
    single means and variances are noise.
    """
    from scipy import stats

    inside, outside = (posterior(side, fit_prior(side)) for side in (references.inside, references.outside))
    of_inside, of_outside = (
        stats.t.logpdf(references.phi, 2 * side.shape, side.mean, np.sqrt(side.variance * (1 + 1 / side.count)))
        for side in (inside, outside)
    )
    ratio: Array = of_inside - of_outside
    return ratio


def bavaria_n(references: References) -> Array:
    """BaVarIA-n: the same by normal densities of the posterior's means and variances. Brännvall 2026."""
    return normal_ratio(references, *(fit_prior(side) for side in (references.inside, references.outside)))


@dataclass(frozen=True)
class Prior:
    """A normal-inverse-gamma prior of a record's mean and variance.

    The variance is inverse gamma with this `shape` and with shape times `variance` as its scale; given it, the mean is
    normal about `mean` with variance / `count`. So it counts as much as `count` references for the mean, and as twice
    the shape for the variance. A shape and a count of 0 leave each record to its own references; an infinite shape
    gives all records one variance.
    """

    mean: float
    count: float
    shape: float
    variance: float


@dataclass(frozen=True)
class Posterior:
    """What a prior and the references of a side say of each record, (records,) each; names as in Prior."""

    mean: Array
    count: Array
    shape: Array
    variance: Array


def posterior(side: Array, prior: Prior) -> Posterior:
    """The conjugate update by a side's references, (models, records). Murphy 2007, section 6, eq. 196 to 200."""
    models = (~np.isnan(side)).sum(axis=0)
    mean, count = _mean(side), prior.count + models
    squares = np.nansum((side - mean) ** 2, axis=0) + prior.count * models / count * (mean - prior.mean) ** 2
    shape = prior.shape + models / 2
    finite = np.isfinite(prior.shape)
    variance = (prior.shape * prior.variance + squares / 2) / shape if finite else np.full(len(mean), prior.variance)
    return Posterior((prior.count * prior.mean + models * mean) / count, count, shape, variance + LEAST_VARIANCE)


def normal_ratio(references: References, prior_in: Prior, prior_out: Prior) -> Array:
    """The log ratio of normal densities of either side's posterior mean and variance."""
    inside, outside = posterior(references.inside, prior_in), posterior(references.outside, prior_out)
    of_inside = _log_normal(references.phi, inside.mean, inside.variance)
    return of_inside - _log_normal(references.phi, outside.mean, outside.variance)


def fit_prior(side: Array) -> Prior:
    """The prior of a side's means and variances over records, by their moments.

    `count` comes from E[(mean of a record - mean of all)^2] = E[variance] (1 / count + 1 / models). A side with a
    single reference tells no variance: it is 1 then.
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
    """Degrees of freedom and scale of the inverse gamma prior of variances that have `freedom` degrees each.

    By the mean and the variance of log variances, Smyth 2004, section 6.2. At most 1,000 degrees of freedom, which
    stand for variances that differ by chance alone.
    """
    from scipy import optimize, special

    logs = np.log(variance)
    centred = logs - special.digamma(freedom / 2) + np.log(freedom / 2)
    most = 1000.0
    excess = float(centred.var(ddof=1) - special.polygamma(1, freedom / 2)) if len(logs) > 1 else 0.0
    if excess <= float(special.polygamma(1, most / 2)):
        prior = most
    else:
        prior = 2 * float(optimize.brentq(lambda half: float(special.polygamma(1, half)) - excess, 1e-3, most / 2))
    return prior, float(np.exp(centred.mean() + special.digamma(prior / 2) - np.log(prior / 2)))


def label_ratio(references: References) -> Array:
    """The log ratio of how often models with the record, and without it, say what the target says: right or wrong.

    `phi` is 1 where a label is right, else 0. With n models of a side, k of them right, the rate is (k + 1) / (n + 2).
    Without references it is the gap attack of Yeom et al. 2018, which calls whatever is right a member; the ratio with
    references is ours.
    """
    rates = [
        (np.nansum(side, axis=0) + 1) / ((~np.isnan(side)).sum(axis=0) + 2)
        for side in (references.inside, references.outside)
    ]
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
    """log p_y of log-odds: -log(1 + exp(-phi))."""
    with np.errstate(invalid="ignore"):  # NaN stands for models of the other side
        return -np.logaddexp(0.0, -phi)


def _mean(side: Array) -> Array:
    """The mean over the models of a side, (records,)."""
    mean: Array = np.nanmean(side, axis=0)
    return mean


def _probability(phi: Array) -> Array:
    return np.exp(_log_likelihood(phi))


def _pooled_variance(side: Array) -> Array:
    """The variance about the records' own means, pooled over records, (records,); 1 of single references."""
    deviations = side - _mean(side)
    freedom = (~np.isnan(side)).sum() - side.shape[1]
    return np.full(side.shape[1], np.nansum(deviations**2) / freedom if freedom else 1.0)


def _log_ratio(references: References, variance_in: Array, variance_out: Array) -> Array:
    inside = _log_normal(references.phi, _mean(references.inside), variance_in + LEAST_VARIANCE)
    return inside - _log_normal(references.phi, _mean(references.outside), variance_out + LEAST_VARIANCE)


def _log_normal(values: Array, mean: Array, variance: Array) -> Array:
    return -0.5 * (np.log(2 * np.pi * variance) + (values - mean) ** 2 / variance)
