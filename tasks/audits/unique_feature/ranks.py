"""Where the feature asked about stands among the other features of its family: exact p-values from few models.

Arrays are by model, by member of the family and by class: member 0 is the feature asked about, and L[m, f, y] is the
mean over probe images of log P(y | x_f) of model m. Were the feature drawn at random from its family, and none of them
trained on, every member would stand at every rank equally often; so the share of members that do at least as well is
an exact p-value, whatever the model, and however many there are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tasks.statistics import Estimate

Array = NDArray[np.float64]

LEVEL = 0.05  # at which a rank is called, here and in every measure of the audit


def rank_p_value(scores: Array) -> float:
    """(1 + members that score at least as much as member 0) / members, for scores (members,).

    The p-value of a Monte Carlo test: Davison & Hinkley 1997, "Bootstrap Methods and their Application", eq. 4.11.
    """
    return float(np.count_nonzero(scores >= scores[0]) / len(scores))


def standardise(log_p: Array) -> Array:
    """Each class's deviations from its mean over the family in units of their standard deviation.

    In and out (..., members, classes). All members, the one asked about among them, enter both alike; a class that no
    member moves gives zeros.
    """
    deviations = log_p - log_p.mean(axis=-2, keepdims=True)
    spread = deviations.std(axis=-2, keepdims=True)
    return np.asarray(np.divide(deviations, spread, out=np.zeros_like(deviations), where=spread > 0))


def label_directed_scores(log_p: Array, label: int | None = None) -> Array:
    """The score of every member, (members,), of one or several models (models, members, classes).

    T(f) = mean over models of (L[m, f, y] - mean over f) / (standard deviation over f), y the canary's label; with y
    unknown the place of T(f) in the label in which f stands highest, for every member alike, which is its own
    correction.
    """
    scores = standardise(log_p).mean(axis=0)
    return highest_standing(scores)[0] if label is None else np.asarray(scores[:, label])


def highest_standing(scores: Array) -> tuple[Array, NDArray[np.int64]]:
    """Of scores (members, classes) each member's standing where it stands highest, and the class, (members,) both.

    Members stand by how many of a class they are above, and where these are as many by their scores. The scores
    themselves do not compare between classes: log P has a long tail to one side, so that where models say of most
    images that they are of one class, the largest score over classes belongs to members that the others favour.
    """
    above = (scores[None] < scores[:, None]).sum(axis=1)  # (members, classes)
    place = above.max(axis=1)
    here = np.where(above == place[:, None], scores, -np.inf)
    _, standing = np.unique(np.stack([place, here.max(axis=1)], axis=1), axis=0, return_inverse=True)
    return standing.reshape(-1).astype(np.float64), here.argmax(axis=1)


def favoured_label(log_p: Array, label: int | None = None) -> int:
    """The label towards which the feature asked about pushes most: the known one, where it is known."""
    return int(highest_standing(standardise(log_p).mean(axis=0))[1][0]) if label is None else label


def push(log_p: Array, log_odds: Array, label: int | None = None) -> tuple[Estimate, float]:
    """How much more the feature raises the log odds of a label than its family does, and what an untrained one gives.

    e = mean over models of O[m, 0, y] - mean over f >= 1 of O[m, f, y], O the mean log P / (1 - P) over probe images,
    in nats; both arrays are (models, members, classes). The interval is that of shifts which the family does not
    contradict: e less the 97.5th and the 2.5th percentile of the others' own deviations. Of n others the p-th is the
    (n + 1) p-th in order, so that an untrained feature is as likely below it as p says; with fewer than 39 it is the
    first or the last, and the interval covers (n - 1) / (n + 1).

    With the label unknown y is the favoured one (by log P), and each of the others is given the same choice. The
    second number is the mean deviation of the others, each in the label that it favours: what choosing adds where
    nothing is memorised; with a known label it is 0. A label was chosen because the feature stands high in it, so the
    lower end takes the larger of two 97.5th percentiles: that of the others in the labels that they favour, and that of
    the others in label y, which is right where the push is so large that there was no choice. The upper end takes the
    2.5th of the others in label y. An untrained feature's interval then lies above 0 in at most 2.5 % of cases.
    """
    y = favoured_label(log_p, label)
    mean = log_odds.mean(axis=0)  # (members, classes)
    others = mean[1:] - mean[1:].mean(axis=0)
    effect = float(mean[0, y] - mean[1:, y].mean())
    low, high = np.quantile(others[:, y], (0.025, 0.975), method="weibull")
    null = 0.0
    if label is None:
        chosen = others[np.arange(len(others)), highest_standing(standardise(log_p).mean(axis=0))[1][1:]]
        null = float(chosen.mean())
        high = max(high, np.quantile(chosen, 0.975, method="weibull"))
    return Estimate(effect, effect - float(high), effect - float(low), len(log_p)), null


def mean_push_of_others(log_p: Array, log_odds: Array, label: int | None = None) -> Estimate:
    """The mean push of the others, with the range that holds the central 95 % of them: what an untrained feature does.

    Percentiles as in `push`.
    """
    each = pushes_of_others(log_p, log_odds, label)
    low, high = np.quantile(each, (0.025, 0.975), method="weibull")
    return Estimate(float(each.mean()), float(low), float(high), len(each))


def pushes_of_others(log_p: Array, log_odds: Array, label: int | None = None) -> Array:
    """How much more each of the others raises the log odds of the label than they do on average, (members - 1,), nats.

    With the label unknown, of the one that it favours.
    """
    mean = log_odds.mean(axis=0)[1:]
    deviations = mean - mean.mean(axis=0)
    if label is not None:
        return np.asarray(deviations[:, label])
    return np.asarray(deviations[np.arange(len(mean)), highest_standing(standardise(log_p).mean(axis=0))[1][1:]])


def separation(log_odds: Array) -> float:
    """How far the labels are apart, in nats: the standard deviation over classes of the mean log odds over the family.

    Of several models (models, members, classes) that of the least. It grows with a model's logits as pushes do, so that
    a temperature changes no quotient of the two.
    """
    return float(log_odds.mean(axis=1).std(axis=1).min())


def tied_share(log_odds: Array, y: int) -> float:
    """The largest share of the others of which one model says exactly the same of label y: 1 / others where none ties.

    Where it is large there is hardly a null: so it is where outputs are rounded, or hang on nothing.
    """
    counts = [np.unique(model[1:, y], return_counts=True)[1].max() for model in log_odds]
    return float(max(counts) / (log_odds.shape[1] - 1))


def detectable_share(log_p: Array, log_odds: Array, size: float, label: int | None = None) -> float:
    """The share of the others that would be called at 5 % if they were pushed `size` nats (above 0) towards the label.

    Each of the others in turn is held against the remaining ones, by its log odds in label y (unknown: in the label
    that it favours, as are the remaining). What `push` could have found of the feature, whatever it did find.
    """
    pushes = pushes_of_others(log_p, log_odds, label)
    above = (pushes[None] >= pushes[:, None] + size).sum(axis=1)
    return float(np.mean((1 + above) / (len(pushes) + 1) <= LEVEL))


def twin_difference(canary: Array, twin: Array, label: int) -> Array:
    """D(f) = L[f, y] of the canary's model minus L[f, y] of its twin, for every member: (members,)."""
    return np.asarray(canary[:, label] - twin[:, label])
