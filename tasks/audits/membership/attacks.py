"""Published membership attacks: a score of every record for one target, higher where it is rather a member.

`phi` is the log-odds of the true label, log p_y - log sum over y' != y of p_y', in float64. The target is one of the
models that the audit trains; the references are the others but one. For every record the models that were trained on it
are matched with those that were not, and the target's partner is left out, too. Were the target alone left out, the
numbers of members and of others left among the references would tell its membership.

Partners have the same references. So where a record has no influence, it is as likely that the one that was trained on
it scores higher as that the other does: within pairs the null is exact, record by record. It is not so across the pairs
of one record, whose references hold one another: there the area under the curve is .44 where it should be .5 (online
LiRA, 16 models, simulated), which does not show when records are pooled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.numerics import seeds

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Rows = NDArray[np.int64]
LEAST_VARIANCE = 1e-12  # of scores that are all alike
LEAST_PROBABILITY = 1e-300  # of a label that no reference gives


@dataclass(frozen=True)
class References:
    """What a target says of each record, and the references say by whether they were trained on it.

    `phi` is (records,), the target's; `inside` and `outside` are (models, records), NaN where a model is not of that
    side.
    """

    phi: Array
    inside: Array
    outside: Array


def pair_models(member: Mask, seed: int) -> Rows:
    """The partner of each model for each record, (models, records): members and others are matched at random."""
    stream = seeds.generator(seed, "pairs of models")
    order = np.argsort(stream.random(member.shape) + member, axis=0)  # non-members first, each side at random
    half = len(member) // 2
    partners = np.empty(member.shape, dtype=np.int64)
    np.put_along_axis(partners, order, np.roll(order, half, axis=0), axis=0)
    return partners


def leave_pairs_out(phi: Array, member: Mask, partners: Rows, target: int) -> References:
    """The references of a target, (models, records) each, without the target and its partner for each record."""
    kept = np.ones(member.shape, dtype=bool)
    kept[target] = False
    kept[partners[target], np.arange(member.shape[1])] = False
    inside, outside = (np.where(kept & side, phi, np.nan) for side in (member, ~member))
    return References(phi[target], inside, outside)


def loss(references: References) -> Array:
    """log p_y by the target, without references. Yeom et al. 2018, adversary 1."""
    return log_likelihood(references.phi)


def calibrated_loss(references: References) -> Array:
    """log p_y by the target less its mean over models not trained on the record. Watson et al. 2022, eq. 3."""
    return log_likelihood(references.phi) - _mean(log_likelihood(references.outside))


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
    return log_likelihood(references.phi) - np.log((inside + outside) / 2 + LEAST_PROBABILITY)


def student_ratio(references: References) -> Array:
    """LiRA online with variances shrunk towards those of all records, and the tails of Student's t.

    Each side's variance is the posterior mean under an inverse gamma prior that is fitted to all records (Smyth 2004,
    section 6.2), and phi has the t distribution that this predicts. With few references single variances are noise.
    """
    from scipy import stats

    ratio = np.zeros_like(references.phi)
    for sign, side in ((1.0, references.inside), (-1.0, references.outside)):
        count = (~np.isnan(side)).sum(axis=0)
        freedom = count - 1.0
        variance = np.nanvar(side, axis=0) * count / freedom + LEAST_VARIANCE
        prior_freedom, prior = fit_variance_prior(variance, float(freedom.mean()))
        total = freedom + prior_freedom
        shrunk = (freedom * variance + prior_freedom * prior) / total
        scale = np.sqrt(shrunk * (1 + 1 / count))
        ratio += sign * stats.t.logpdf(references.phi, total, _mean(side), scale)
    return ratio


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


ATTACKS: Mapping[str, Callable[[References], Array]] = {
    "loss": loss,
    "calibrated loss": calibrated_loss,
    "LiRA online": lira_online,
    "LiRA online, fixed variance": lira_fixed,
    "LiRA offline": lira_offline,
    "RMIA": rmia,
    "Student's t": student_ratio,
}


def log_likelihood(phi: Array) -> Array:
    """log p_y of log-odds: -log(1 + exp(-phi))."""
    with np.errstate(invalid="ignore"):  # NaN stands for models of the other side
        return -np.logaddexp(0.0, -phi)


def _mean(side: Array) -> Array:
    """The mean over the models of a side, (records,)."""
    mean: Array = np.nanmean(side, axis=0)
    return mean


def _probability(phi: Array) -> Array:
    return np.exp(log_likelihood(phi))


def _pooled_variance(side: Array) -> Array:
    """The variance about the records' own means, pooled over records, (records,)."""
    deviations = side - _mean(side)
    freedom = (~np.isnan(side)).sum() - side.shape[1]
    return np.full(side.shape[1], np.nansum(deviations**2) / freedom)


def _log_ratio(references: References, variance_in: Array, variance_out: Array) -> Array:
    inside = _log_normal(references.phi, _mean(references.inside), variance_in + LEAST_VARIANCE)
    return inside - _log_normal(references.phi, _mean(references.outside), variance_out + LEAST_VARIANCE)


def _log_normal(values: Array, mean: Array, variance: Array) -> Array:
    return -0.5 * (np.log(2 * np.pi * variance) + (values - mean) ** 2 / variance)
