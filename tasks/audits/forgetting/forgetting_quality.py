"""Forgetting quality of the NeurIPS 2023 unlearning challenge: how like retrained models R unlearned ones are.

Of each image of D_Q an attacker sees the log-odds of 2 R models and names those unlearned, by one threshold or two:

    epsilon = max over attacks of max(log((1 - FPR) / FNR), log((1 - FNR) / FPR))
    quality = mean over images of 2^-floor(epsilon / 0.5)

Infinite where an attack makes no error; one with FPR or FNR at 0 alone is discarded, as the models are too few to say.
An image whose epsilon is above ceil(log(R - 1)), the most that R models show, counts 0. 1: no attack gets anywhere.

Triantafillou et al. 2024, "Are we making progress in unlearning? Findings from the first NeurIPS unlearning
competition", section 3, and their released evaluation; here every threshold is tried, either way round, and delta is 0.
They have R = 512. With few models attacks succeed by chance, so that the quality of models that are retrained
themselves is far below 1, and where many confidences are equal above that again: `permutation_test` says what it is.
"""

from __future__ import annotations

import itertools
import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

from tasks import seeds
from tasks.statistics import Estimate, jackknife

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

LEAST = 3  # models of each kind: below, no epsilon but 0 and infinity is possible
WIDTH = 0.5  # of epsilon, for half the points
SPLITS = 400  # of the models that a p-value looks at, at most


def quality(unlearned: Array, retrained: Array) -> Estimate:
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
