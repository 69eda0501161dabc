"""Randomisation test of whether a model distinguishes D_Q from the control set. It is exact for any model.

Chance decided which images of one source are D_Q and which are control images. A model that never saw D_Q cannot know
the outcome, so any statistic of its confidences is equally likely under every other draw, and

    p = (1 + draws whose effect is at least that of the real one) / (1 + draws)

satisfies P[p <= a] <= a. The test is one-sided: the model is more certain about D_Q. The same draws give the p-value of
the other side. The effect is

    (mean score of D_Q - mean score of control) / its standard error

which has mean 0 and standard deviation 1 for a model that never saw D_Q. An image's score reflects the effect of
training on the image and does not depend on the draw:

    score = u / sd(u) + v / sd(v)
    u = h^2 (r - mean r of the 2 x NEIGHBOURS images that are next in difficulty)    r: rank of its confidence, 0 to 1
    v = h min(max(z - TAIL, 0), MAX_TAIL)    z = (m - mean over calibration models) / s
    h = 1 - rank of easiness, 0 to 1     easiness: mean log-odds of the calibration models

u captures small differences on many images, v large ones on few. m is the quantile of the calibration models' log-odds
at the model's rank, so a monotone change of confidences changes no score. With two classes, a temperature is such a
change. With more classes it also depends on the other classes' outputs and changes some ranks. s^2 is the image's
variance over calibration models, averaged with PRIOR times the median variance. Models are certain about easy images
whether or not they saw them, so h gives these no weight. NEIGHBOURS, TAIL, MAX_TAIL, PRIOR and the powers of h were
chosen on one set of trainings and confirmed on another: docs/forgetting_reference.md.

Randomisation tests with covariates: Rosenbaum 2002, "Covariance adjustment in randomized experiments and observational
studies", section 2. z of an image: Carlini et al. 2022, "Membership inference attacks from first principles".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

NEIGHBOURS = 25
TAIL = 1.5
MAX_TAIL = 4.0
PRIOR = 3.0
SMALLEST = 1e-12
NEAREST_ONE = 2.0**-25  # closer values round to 1 in float32
BLOCK = 1 << 22  # random numbers drawn at a time


def scores(confidence: Array, calibration: Array) -> Array:
    """Score each image (n,) from the confidences of the model (n,) and of the calibration models (models, n).

    Raises ValueError if there are no calibration models.
    """
    if not len(calibration):
        raise ValueError("there are no calibration models; scores need at least one to measure the images' difficulty")
    calibration_odds = log_odds(calibration)
    easiness = calibration_odds.mean(axis=0)
    hard = 1 - ranks(easiness)
    shift = hard**2 * neighbour_contrast(ranks(confidence), easiness)
    total = standardise(shift)
    if len(calibration_odds) > 1:
        matched = np.quantile(calibration_odds, ranks(confidence))
        variance = calibration_odds.var(axis=0, ddof=1)
        spread = np.sqrt(
            ((len(calibration_odds) - 1) * variance + PRIOR * np.median(variance)) / (len(calibration_odds) - 1 + PRIOR)
        )
        z = np.divide(matched - easiness, spread, out=np.zeros_like(easiness), where=spread > 0)
        total = total + standardise(hard * np.clip(z - TAIL, 0, MAX_TAIL))
    return total


def ranks(values: Array) -> Array:
    """Return the rank of each value between 0 and 1, (rank - 1/2) / n. Ties get their mean rank."""
    places, counts = np.unique(values, return_inverse=True, return_counts=True)[1:]
    ends = np.cumsum(counts)
    return np.asarray((ends - counts / 2)[places] / len(values))


def neighbour_contrast(values: Array, easiness: Array) -> Array:
    """Subtract the mean of the neighbours in easiness: NEIGHBOURS, or a quarter of all images, on each side."""
    n = len(values)
    reach = min(NEIGHBOURS, max(1, n // 4))
    order = np.argsort(easiness, kind="stable")
    rising = values[order]
    sums = np.concatenate([[0.0], np.cumsum(rising)])
    first = np.maximum(np.arange(n) - reach, 0)
    end = np.minimum(np.arange(n) + reach + 1, n)
    mean = (sums[end] - sums[first] - rising) / np.maximum(end - first - 1, 1)
    contrasts = np.empty(n)
    contrasts[order] = rising - mean
    return contrasts


def standardise(values: Array) -> Array:
    """Scale the values to mean 0 and standard deviation 1. All 0 if the values are equal."""
    centred = values - values.mean()
    spread = float(centred.std())
    return centred / spread if spread > SMALLEST else np.zeros_like(centred)


def unit_scores(
    image_scores: Array, groups: NDArray[np.int64], is_control: NDArray[np.bool_]
) -> tuple[Array, NDArray[np.bool_]]:
    """Average the scores of each group of images drawn together. Returns means and control mask, both (units,)."""
    unit_numbers, first, unit, counts = np.unique(groups, return_index=True, return_inverse=True, return_counts=True)
    means = np.bincount(unit, weights=image_scores, minlength=len(unit_numbers)) / counts
    return means, is_control[first]


def effect(unit_scores: Array, is_control: NDArray[np.bool_]) -> float:
    """Compute the effect from scores (units,). 0 if all scores are equal."""
    spread = float(unit_scores.std(ddof=1)) * np.sqrt(1 / (~is_control).sum() + 1 / is_control.sum())
    difference = float(unit_scores[~is_control].mean() - unit_scores[is_control].mean())
    return difference / float(spread) if spread > SMALLEST else 0.0


class PValues(NamedTuple):
    """P-values of both sides: more certain about D_Q, and more certain about the control set."""

    surer: float
    less_sure: float


def p_values(
    unit_scores: Array, is_control: NDArray[np.bool_], permutations: int, generator: np.random.Generator
) -> PValues:
    """Compute the p-values of the effect on both sides from `permutations` random draws of the control set."""
    count = int((~is_control).sum())
    real = float(unit_scores[~is_control].sum())
    slack = SMALLEST * max(1.0, float(np.abs(unit_scores).sum()))  # summation order changes the last digit
    at_least = at_most = 0
    block = max(1, BLOCK // len(unit_scores))
    for first in range(0, permutations, block):
        size = min(block, permutations - first)
        permuted_scores = generator.permuted(np.broadcast_to(unit_scores, (size, len(unit_scores))), axis=1)
        sums = permuted_scores[:, :count].sum(axis=1)
        at_least += int((sums >= real - slack).sum())
        at_most += int((sums <= real + slack).sum())
    return PValues((1 + at_least) / (1 + permutations), (1 + at_most) / (1 + permutations))


def log_odds(confidences: Array, printed: float = 0.0) -> Array:
    """Compute log(c / (1 - c)) of confidences. `printed` is the unit of their last decimal place (0: float32).

    Confidences of 0 and 1 are moved inwards by half a unit of the last place. On this scale, differences between models
    are well described by one Gaussian per image: Carlini et al. 2022, "Membership inference attacks from first
    principles", section IV-C (logit scaling).
    """
    inside = np.clip(confidences, max(printed / 2, SMALLEST), 1 - max(printed / 2, NEAREST_ONE))
    scaled: Array = np.log(inside) - np.log1p(-inside)
    return scaled
