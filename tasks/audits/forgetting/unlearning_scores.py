"""How the field compares unlearned models with retrained ones: U-LiRA, forgetting quality and PrivLeak.

U-LiRA: how often a likelihood ratio of two Gaussians for each image tells an unlearned model from a retrained one.

    ratio(x) = N(log-odds of x; mean, variance over unlearned models) / N(...; over retrained models)

A model is called unlearned at x where the ratio is above 1. Accuracy: the mean of how often that is right of unlearned
models and of retrained ones, over the images of D_Q; 1/2 where unlearning is as good as retraining. Each model is
judged by Gaussians of the others. Hayes et al. 2024, "Inexact unlearning needs more careful evaluations to avoid a
false sense of privacy", who adapt Carlini et al. 2022, "Membership inference attacks from first principles". They have
hundreds of models; for few, the variance is one for all images, as Carlini et al. advise below 64 models.

Forgetting quality, of the NeurIPS 2023 unlearning challenge: how like retrained models R unlearned ones are. Of each
image of D_Q an attacker sees the log-odds of 2 R models and names those unlearned, by one threshold or two:

    epsilon = max over attacks of max(log((1 - FPR) / FNR), log((1 - FNR) / FPR))
    quality = mean over images of 2^-floor(epsilon / 0.5)

Infinite where an attack makes no error; one with FPR or FNR at 0 alone is discarded, as the models are too few to say.
An image whose epsilon is above ceil(log(R - 1)), the most that R models show, counts 0. 1: no attack gets anywhere.
Triantafillou et al. 2024, "Are we making progress in unlearning? Findings from the first NeurIPS unlearning
competition", section 3, and their released evaluation; here every threshold is tried, either way round, and delta is 0.
They have R = 512. With few models attacks succeed by chance, so that the quality of models that are retrained
themselves is far below 1, and where many confidences are equal above that again: `permutation_test` says what it is.

PrivLeak of MUSE: how much better a model's losses tell D_Q from held-out images than a retrained model's do.

    AUC = P(loss of an image of D_Q > loss of a control image)
    PrivLeak = (AUC of the target - AUC of retrained models) / AUC of retrained models

0: as after retraining. Towards -1: the target is surer of D_Q than of images of the same source that it never saw, so
that nothing was forgotten. Above 0: it is less sure, which tells D_Q apart, too. MUSE gives it in percent. Shi et al.
2024, "MUSE: Machine unlearning six-way evaluation for language models", section 3; its loss is Min-K % Prob of a text,
here it is minus the logarithm of the confidence. A monotone change of confidences changes no AUC.
"""

from __future__ import annotations

import itertools
import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

from tasks.contract.summaries import Estimate
from tasks.numerics import seeds
from tasks.numerics.ranks import area_under_curve
from tasks.numerics.statistics import jackknife, mean

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

LEAST = 3  # models of each kind for U-LiRA and quality: two are left for a Gaussian where one is judged, and epsilons
# other than 0 and infinity are possible
LEAST_RETRAINED = 2  # for an interval of PrivLeak
NARROWEST = 1e-9  # variance: what is printed with few decimals may not vary at all
WIDTH = 0.5  # of epsilon, for half the points
SPLITS = 400  # of the models that a p-value looks at, at most


def u_lira_accuracy(unlearned: Array, retrained: Array) -> Estimate:
    """The accuracy from log-odds (models, images), with Student's interval over pairs of the two kinds of models.

    Of both kinds the same number is taken, so that neither is known the better. Pairs share the models that they are
    judged by; their variance is therefore that of Nadeau & Bengio 2003, "Inference for the generalization error",
    s^2 (1 / pairs + 1 / (pairs - 1)). In 400 simulated nulls of five models of each kind and 100 images the interval
    held 1/2 in 385. No value below LEAST models of a kind, and n is then 0.
    """
    pairs = min(len(unlearned), len(retrained))
    if pairs < LEAST:
        return Estimate(None, None, None, 0)
    found = mean([_pair_accuracy(unlearned[:pairs], retrained[:pairs], judged) for judged in range(pairs)])
    assert found.value is not None
    assert found.high is not None
    half = (found.high - found.value) * float(np.sqrt(1 + pairs / (pairs - 1)))
    return Estimate(found.value, found.value - half, found.value + half, pairs)


def _pair_accuracy(unlearned: Array, retrained: Array, judged: int) -> float:
    """The accuracy on one model of each kind, by Gaussians of all the others."""
    fits = [gaussian(np.delete(models, judged, 0)) for models in (unlearned, retrained)]
    right = [
        np.mean(ratio > 0 if kind == 0 else ratio < 0) + np.mean(ratio == 0) / 2
        for kind, models in enumerate((unlearned, retrained))
        for ratio in [log_density(models[judged], *fits[0]) - log_density(models[judged], *fits[1])]
    ]
    return float(np.mean(right))


def gaussian(log_odds: Array) -> tuple[Array, float]:
    """The mean of each image, (images,), and the variance of a new model about it, one for all images.

    The variance within images, times 1 + 1 / models for the error of the mean.
    """
    models = len(log_odds)
    within = float(log_odds.var(axis=0, ddof=1).mean()) * (1 + 1 / models)
    return log_odds.mean(axis=0), max(within, NARROWEST)


def log_density(x: Array, centre: Array, variance: float) -> Array:
    """log N(x; centre, variance), less the constant that all have."""
    density: Array = -((x - centre) ** 2) / (2 * variance) - np.log(variance) / 2
    return density


def forgetting_quality(unlearned: Array, retrained: Array) -> Estimate:
    """The forgetting quality from log-odds (models, images), with a jackknife interval over pairs of models.

    Of both kinds the same number is taken. The interval is wide: in 400 simulated nulls of five models of each kind and
    100 images it held the null in all. No value below LEAST models of a kind, and n is then 0.
    """
    pairs = min(len(unlearned), len(retrained))
    if pairs < LEAST:
        return Estimate(None, None, None, 0)
    whole = [models[:pairs] for models in (unlearned, retrained)]
    less = (
        [_quality(*(np.delete(models, pair, 0) for models in whole)) for pair in range(pairs)] if pairs > LEAST else []
    )
    value = _quality(*whole)
    if not less:
        return Estimate(value, None, None, pairs)
    # Fewer models allow fewer values of epsilon: only how much the values without a pair differ is used.
    return jackknife(value, less)


def permutation_test(unlearned: Array, retrained: Array) -> tuple[float, float] | None:
    """What models that are split at random into two kinds show: their mean quality, and how often it is as low as this.

    The first is what retrained models would have in place of the unlearned ones, ties of confidences included; the
    second, this split counted, a p-value, exact where unlearned models are exchangeable with retrained ones. Over all
    splits or, above SPLITS, so many drawn ones. None below LEAST models of a kind.
    """
    pairs = min(len(unlearned), len(retrained))
    if pairs < LEAST:
        return None
    models = np.concatenate([unlearned[:pairs], retrained[:pairs]])
    if math.comb(2 * pairs, pairs) <= SPLITS:
        chosen = np.array(list(itertools.combinations(range(2 * pairs), pairs)))  # the first is the split as it is
    else:
        chance = seeds.generator(0, "splits of models")
        drawn = [chance.permutation(2 * pairs)[:pairs] for _ in range(SPLITS - 1)]
        chosen = np.array([np.arange(pairs), *drawn])
    is_unlearned = np.zeros((len(chosen), 2 * pairs), dtype=bool)
    np.put_along_axis(is_unlearned, chosen, True, axis=1)
    order, cuts = sort_models(models)
    found = score_epsilons(epsilons(is_unlearned[:, order].swapaxes(0, 1), cuts[:, None]), pairs).mean(axis=1)
    return float(found.mean()), float(np.mean(found <= found[0] + 1e-12))


def _quality(unlearned: Array, retrained: Array) -> float:
    order, cuts = sort_models(np.concatenate([unlearned, retrained]))
    return float(score_epsilons(epsilons(order < len(unlearned), cuts), len(unlearned)).mean())


def sort_models(values: Array) -> tuple[NDArray[np.int64], Mask]:
    """The models of each image in rising order of their values (models, images); and where a threshold fits between.

    Thresholds are (models + 1, images), the first and the last beyond all: equal values have none between them.
    """
    order = values.argsort(axis=0, kind="stable")
    rising = np.diff(np.take_along_axis(values, order, axis=0), axis=0) > 0
    beyond = np.ones((1, values.shape[1]), dtype=bool)
    return order, np.concatenate([beyond, rising, beyond])


def epsilons(is_unlearned: Mask, cuts: Mask) -> Array:
    """The epsilon of each image: (...) from the kinds of its models in rising order, (2 R, ...), and their `cuts`.

    An attack names the models between two cuts, or those outside. With u of R unlearned models between, and v of R
    retrained ones, it shows |log(u / v)| and |log((R - u) / (R - v))|, whichever of its errors are above 0.
    """
    models = len(is_unlearned) // 2
    counts = np.concatenate([np.zeros((1, *is_unlearned.shape[1:]), np.int64), is_unlearned.cumsum(axis=0)])
    most = np.zeros(is_unlearned.shape[1:])
    for low, high in itertools.combinations(range(2 * models + 1), 2):
        u = counts[high] - counts[low]
        shown = _epsilon_table(models)[u, high - low - u]
        np.maximum(most, np.where(cuts[low] & cuts[high], shown, 0.0), out=most)
    return most


@cache
def _epsilon_table(models: int) -> Array:
    """The epsilon that an attack shows, by how many of the models of each kind it names: (R + 1, R + 1)."""
    table = np.zeros((models + 1, models + 1))
    for u, v in itertools.product(range(models + 1), repeat=2):
        if {u, v} == {0, models}:
            table[u, v] = math.inf
        for named, other in ((u, v), (v, u)):
            if other > 0 and named < models:  # FPR and FNR, by whichever kind is named
                ratios = (models - other) / (models - named), named / other
                table[u, v] = max(table[u, v], *(math.log(ratio) for ratio in ratios if ratio > 0), 0.0)
    return table


def score_epsilons(epsilon: Array, models: int) -> Array:
    """2^-floor(epsilon / 0.5), and 0 where epsilon is above what so many models show."""
    buckets = math.ceil(math.log(models - 1)) / WIDTH
    with np.errstate(over="ignore"):
        bucket = np.floor(epsilon / WIDTH)
    given: Array = np.where(bucket < buckets, 0.5 ** np.minimum(bucket, buckets), 0.0)
    return given


def privleak(target: Array, retrained: Array, is_control: NDArray[np.bool_]) -> Estimate:
    """PrivLeak from confidences (models, images), with its 95 % interval over models; n counts those of the target.

    A ratio of two means, by the delta method, with Student's t and Satterthwaite's degrees of freedom. A single model
    is taken to vary as retrained ones do. In 400 simulated nulls of five models and 100 images the interval held 0 in
    384, and in 376 where the target is a single one. No value without models or control images, or where retrained
    models have an AUC of 0, and n is then 0.
    """
    if not len(target) or not len(retrained) or not is_control.any() or is_control.all():
        return Estimate(None, None, None, 0)
    own, theirs = (
        # P[the loss of an image of D_Q is above that of a control image].
        np.array([area_under_curve(model[is_control], model[~is_control]) for model in models])
        for models in (target, retrained)
    )
    if not theirs.mean():
        return Estimate(None, None, None, 0)
    value = float(own.mean() / theirs.mean() - 1)
    if len(theirs) < LEAST_RETRAINED:
        return Estimate(value, None, None, len(own))
    from scipy import stats

    freedom_of = [max(len(own) - 1, 0) or len(theirs) - 1, len(theirs) - 1]
    spread = [float(own.var(ddof=1)) if len(own) > 1 else float(theirs.var(ddof=1)), float(theirs.var(ddof=1))]
    parts = [spread[0] / len(own) / theirs.mean() ** 2, (1 + value) ** 2 * spread[1] / len(theirs) / theirs.mean() ** 2]
    variance = sum(parts)
    if not variance:
        return Estimate(value, value, value, len(own))
    freedom = variance**2 / sum(part**2 / df for part, df in zip(parts, freedom_of, strict=True))
    half = float(stats.t.ppf(0.975, freedom)) * math.sqrt(variance)
    return Estimate(value, value - half, value + half, len(own))
