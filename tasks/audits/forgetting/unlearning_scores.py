"""Published comparisons of unlearned with retrained models: U-LiRA, forgetting quality and PrivLeak.

U-LiRA: the accuracy with which a likelihood ratio of two Gaussians per image distinguishes unlearned from retrained
models.

    ratio(x) = N(log-odds of x; mean, variance over unlearned models) / N(...; over retrained models)

A model is classified as unlearned at x if the ratio is above 1. The accuracy is averaged over unlearned and retrained
models and over the images of D_Q. It is 1/2 if unlearning equals retraining. Each model is judged by Gaussians fitted
to the other models. Hayes et al. 2024, "Inexact unlearning needs more careful evaluations to avoid a false sense of
privacy", who adapt Carlini et al. 2022, "Membership inference attacks from first principles". They have hundreds of
models. With few models all images share one variance, as Carlini et al. advise below 64 models.

Forgetting quality, of the NeurIPS 2023 unlearning challenge: the similarity of R unlearned and R retrained models. For
each image of D_Q, an attacker sees the log-odds of the 2 R models and names the unlearned ones by one or two
thresholds:

    epsilon = max over attacks of max(log((1 - FPR) / FNR), log((1 - FNR) / FPR))
    quality = mean over images of 2^-floor(epsilon / 0.5)

epsilon is infinite for an attack without errors. An attack with only FPR or only FNR at 0 is discarded, as the models
are too few to estimate it. An image whose epsilon is above ceil(log(R - 1)), the most that R models can show, counts 0.
Quality is 1 if no attack succeeds. Triantafillou et al. 2024, "Are we making progress in unlearning? Findings from the
first NeurIPS unlearning competition", section 3, and their released evaluation. Here every threshold is tried in both
directions, and delta is 0. They have R = 512. With few models, attacks succeed by chance, so the quality of retrained
models is far below 1; it is higher if many confidences are equal. `permutation_test` computes it.

PrivLeak of MUSE: the advantage of a model's losses over a retrained model's in separating D_Q from held-out images.

    AUC = P(loss of an image of D_Q > loss of a control image)
    PrivLeak = (AUC of the target - AUC of retrained models) / AUC of retrained models

0 is the value after retraining. Towards -1, the target is more certain about D_Q than about images of the same source
that it never saw, so nothing was forgotten. Above 0 it is less certain, which also separates D_Q. MUSE reports percent.
Shi et al. 2024, "MUSE: Machine unlearning six-way evaluation for language models", section 3. Its loss is the Min-K %
Prob of a text; here it is minus the logarithm of the confidence. A monotone change of confidences changes no AUC.
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
from tasks.numerics.statistics import jackknife, mean, t_quantile

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

# Required models of each kind for U-LiRA and quality: two remain for a Gaussian if one is judged, and epsilons other
# than 0 and infinity are possible.
FEWEST_MODELS = 3
FEWEST_RETRAINED = 2  # required for an interval of PrivLeak
SMALLEST_VARIANCE = 1e-9  # numbers with few decimals may not vary at all
WIDTH = 0.5  # step of epsilon that halves the quality
SPLITS = 400  # maximum number of model splits for a p-value


def u_lira_accuracy(unlearned: Array, retrained: Array) -> Estimate:
    """Compute the accuracy from log-odds (models, images), with Student's interval over pairs of models.

    A pair is one model of each kind, and both kinds contribute the same number of models. Pairs share the models that
    their Gaussians are fitted to; the variance is therefore that of Nadeau & Bengio 2003, "Inference for the
    generalization error", s^2 (1 / pairs + 1 / (pairs - 1)). In 400 simulated nulls of five models of each kind and 100
    images, the interval contained 1/2 in 385. There is no value below FEWEST_MODELS of a kind; n is then 0.
    """
    pairs = min(len(unlearned), len(retrained))
    if pairs < FEWEST_MODELS:
        return Estimate(None, None, None, 0)
    accuracy = mean([_pair_accuracy(unlearned[:pairs], retrained[:pairs], judged) for judged in range(pairs)])
    assert accuracy.value is not None
    assert accuracy.high is not None
    half = (accuracy.high - accuracy.value) * float(np.sqrt(1 + pairs / (pairs - 1)))
    return Estimate(accuracy.value, accuracy.value - half, accuracy.value + half, pairs)


def _pair_accuracy(unlearned: Array, retrained: Array, judged: int) -> float:
    """Compute the accuracy on one model of each kind, judged by Gaussians fitted to all the others."""
    unlearned_fit = gaussian(np.delete(unlearned, judged, 0))
    retrained_fit = gaussian(np.delete(retrained, judged, 0))
    accuracies = []
    for is_unlearned, models in ((True, unlearned), (False, retrained)):
        ratio = log_density(models[judged], *unlearned_fit) - log_density(models[judged], *retrained_fit)
        correct = ratio > 0 if is_unlearned else ratio < 0
        accuracies.append(np.mean(correct) + np.mean(ratio == 0) / 2)
    return float(np.mean(accuracies))


def gaussian(log_odds: Array) -> tuple[Array, float]:
    """Return the mean of each image, (images,), and the variance of a new model around it, shared by all images.

    The variance is the variance within images times 1 + 1 / models, which accounts for the error of the mean.
    """
    models = len(log_odds)
    within = float(log_odds.var(axis=0, ddof=1).mean()) * (1 + 1 / models)
    return log_odds.mean(axis=0), max(within, SMALLEST_VARIANCE)


def log_density(x: Array, centre: Array, variance: float) -> Array:
    """Compute log N(x; centre, variance), up to the common constant."""
    density: Array = -((x - centre) ** 2) / (2 * variance) - np.log(variance) / 2
    return density


def forgetting_quality(unlearned: Array, retrained: Array) -> Estimate:
    """Compute the forgetting quality from log-odds (models, images), with a jackknife interval over model pairs.

    Both kinds contribute the same number of models. The interval is wide: in 400 simulated nulls of five models of each
    kind and 100 images, it always contained the null. There is no value below FEWEST_MODELS of a kind; n is then 0.
    """
    pairs = min(len(unlearned), len(retrained))
    if pairs < FEWEST_MODELS:
        return Estimate(None, None, None, 0)
    unlearned = unlearned[:pairs]
    retrained = retrained[:pairs]
    value = _quality(unlearned, retrained)
    if pairs == FEWEST_MODELS:
        return Estimate(value, None, None, pairs)
    without_pair = []
    for pair in range(pairs):
        without_pair.append(_quality(np.delete(unlearned, pair, 0), np.delete(retrained, pair, 0)))
    # Fewer models allow fewer values of epsilon, so only the spread of the leave-one-pair-out values is used.
    return jackknife(value, without_pair)


def permutation_test(unlearned: Array, retrained: Array) -> tuple[float, float] | None:
    """Average the quality over random splits of the models into two kinds, and compute the p-value of the actual split.

    The mean is the quality that retrained models would have in place of the unlearned ones, including ties. The p-value
    counts the actual split, and is exact if unlearned and retrained models are exchangeable. All splits are used, or
    SPLITS random ones if there are more. None below FEWEST_MODELS of a kind.
    """
    pairs = min(len(unlearned), len(retrained))
    if pairs < FEWEST_MODELS:
        return None
    models = np.concatenate([unlearned[:pairs], retrained[:pairs]])
    if math.comb(2 * pairs, pairs) <= SPLITS:
        splits = np.array(list(itertools.combinations(range(2 * pairs), pairs)))  # the first is the actual split
    else:
        chance = seeds.generator(0, "splits of models")
        permutations = [chance.permutation(2 * pairs)[:pairs] for _ in range(SPLITS - 1)]
        splits = np.array([np.arange(pairs), *permutations])
    is_unlearned = np.zeros((len(splits), 2 * pairs), dtype=bool)
    np.put_along_axis(is_unlearned, splits, True, axis=1)
    order, cuts = sort_models(models)
    qualities = score_epsilons(epsilons(is_unlearned[:, order].swapaxes(0, 1), cuts[:, None]), pairs).mean(axis=1)
    return float(qualities.mean()), float(np.mean(qualities <= qualities[0] + 1e-12))


def _quality(unlearned: Array, retrained: Array) -> float:
    order, cuts = sort_models(np.concatenate([unlearned, retrained]))
    return float(score_epsilons(epsilons(order < len(unlearned), cuts), len(unlearned)).mean())


def sort_models(values: Array) -> tuple[NDArray[np.int64], Mask]:
    """Sort the models of each image by value, (models, images), and return the possible thresholds.

    Thresholds are (models + 1, images), including one below and one above all values. There is none between equal
    values.
    """
    order = values.argsort(axis=0, kind="stable")
    rising = np.diff(np.take_along_axis(values, order, axis=0), axis=0) > 0
    outer_cuts = np.ones((1, values.shape[1]), dtype=bool)
    return order, np.concatenate([outer_cuts, rising, outer_cuts])


def epsilons(is_unlearned: Mask, cuts: Mask) -> Array:
    """Compute the epsilon of each image (...) from the kinds of its models in ascending order, (2 R, ...), and `cuts`.

    An attack names the models between two cuts, or those outside. With u of R unlearned and v of R retrained models
    between the cuts, it shows |log(u / v)| and |log((R - u) / (R - v))|, if the respective errors are above 0.
    """
    models = len(is_unlearned) // 2
    counts = np.concatenate([np.zeros((1, *is_unlearned.shape[1:]), np.int64), is_unlearned.cumsum(axis=0)])
    largest = np.zeros(is_unlearned.shape[1:])
    for low, high in itertools.combinations(range(2 * models + 1), 2):
        u = counts[high] - counts[low]
        attack_epsilons = _epsilon_table(models)[u, high - low - u]
        np.maximum(largest, np.where(cuts[low] & cuts[high], attack_epsilons, 0.0), out=largest)
    return largest


@cache
def _epsilon_table(models: int) -> Array:
    """Tabulate the epsilon of an attack by how many models of each kind it names, (R + 1, R + 1)."""
    table = np.zeros((models + 1, models + 1))
    for u, v in itertools.product(range(models + 1), repeat=2):
        if {u, v} == {0, models}:
            table[u, v] = math.inf
        for named_count, other_count in ((u, v), (v, u)):
            if other_count > 0 and named_count < models:  # FPR and FNR are defined; either kind may be the named one
                ratios = (models - other_count) / (models - named_count), named_count / other_count
                table[u, v] = max(table[u, v], *(math.log(ratio) for ratio in ratios if ratio > 0), 0.0)
    return table


def score_epsilons(epsilon: Array, models: int) -> Array:
    """Return 2^-floor(epsilon / 0.5), or 0 if epsilon is above the maximum for this number of models."""
    buckets = math.ceil(math.log(models - 1)) / WIDTH
    with np.errstate(over="ignore"):
        bucket = np.floor(epsilon / WIDTH)
    scores: Array = np.where(bucket < buckets, 0.5 ** np.minimum(bucket, buckets), 0.0)
    return scores


def privleak(target: Array, retrained: Array, is_control: NDArray[np.bool_]) -> Estimate:
    """Compute PrivLeak from confidences (models, images), with a 95 % interval over models. n counts target models.

    The interval is for a ratio of two means, by the delta method, with Student's t and Satterthwaite's degrees of
    freedom. A single model is assumed to vary like retrained models. In 400 simulated nulls of five models and 100
    images, the interval contained 0 in 384, and in 376 for a single target. There is no value, and n = 0, without
    models or control images, or if retrained models have an AUC of 0.
    """
    if not len(target) or not len(retrained) or not is_control.any() or is_control.all():
        return Estimate(None, None, None, 0)
    target_aucs, retrained_aucs = (
        # P[the loss of an image of D_Q is above that of a control image].
        np.array([area_under_curve(model[is_control], model[~is_control]) for model in models])
        for models in (target, retrained)
    )
    if not retrained_aucs.mean():
        return Estimate(None, None, None, 0)
    value = float(target_aucs.mean() / retrained_aucs.mean() - 1)
    if len(retrained_aucs) < FEWEST_RETRAINED:
        return Estimate(value, None, None, len(target_aucs))
    freedom_of = [max(len(target_aucs) - 1, 0) or len(retrained_aucs) - 1, len(retrained_aucs) - 1]
    spread = [
        float(target_aucs.var(ddof=1)) if len(target_aucs) > 1 else float(retrained_aucs.var(ddof=1)),
        float(retrained_aucs.var(ddof=1)),
    ]
    parts = [
        spread[0] / len(target_aucs) / retrained_aucs.mean() ** 2,
        (1 + value) ** 2 * spread[1] / len(retrained_aucs) / retrained_aucs.mean() ** 2,
    ]
    variance = sum(parts)
    if not variance:
        return Estimate(value, value, value, len(target_aucs))
    freedom = variance**2 / sum(part**2 / df for part, df in zip(parts, freedom_of, strict=True))
    half = t_quantile(0.975, freedom) * math.sqrt(variance)
    return Estimate(value, value - half, value + half, len(target_aucs))
