"""U-LiRA: how often a likelihood ratio of two Gaussians for each image tells an unlearned model from a retrained one.

    ratio(x) = N(log-odds of x; mean, variance over unlearned models) / N(...; over retrained models)

A model is called unlearned at x where the ratio is above 1. Accuracy: the mean of how often that is right of unlearned
models and of retrained ones, over the images of D_Q; 1/2 where unlearning is as good as retraining. Each model is
judged by Gaussians of the others.

Hayes et al. 2024, "Inexact unlearning needs more careful evaluations to avoid a false sense of privacy", who adapt
Carlini et al. 2022, "Membership inference attacks from first principles". They have hundreds of models; for few, the
variance is one for all images, as Carlini et al. advise below 64 models.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tasks.statistics import Estimate, mean

Array = NDArray[np.float64]

LEAST = 3  # models of each kind: two are left for a Gaussian when one is judged
NARROWEST = 1e-9  # variance: what is printed with few decimals may not vary at all


def accuracy(unlearned: Array, retrained: Array) -> Estimate:
    """The accuracy from log-odds (models, images), with Student's interval over pairs of the two kinds of models.

    Of both kinds the same number is taken, so that neither is known the better. Pairs share the models that they are
    judged by; their variance is therefore that of Nadeau & Bengio 2003, "Inference for the generalization error",
    s^2 (1 / pairs + 1 / (pairs - 1)). In 400 simulated nulls of five models of each kind and 100 images the interval
    held 1/2 in 385. No value below LEAST models of a kind, and n is then 0.
    """
    pairs = min(len(unlearned), len(retrained))
    if pairs < LEAST:
        return Estimate(None, None, None, 0)
    found = mean([pair_accuracy(unlearned[:pairs], retrained[:pairs], judged) for judged in range(pairs)])
    assert found.value is not None
    assert found.high is not None
    half = (found.high - found.value) * float(np.sqrt(1 + pairs / (pairs - 1)))
    return Estimate(found.value, found.value - half, found.value + half, pairs)


def pair_accuracy(unlearned: Array, retrained: Array, judged: int) -> float:
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
