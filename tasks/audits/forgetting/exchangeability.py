"""Are D_Q and the control set alike to a model? A test that is exact for any model, and the effect that it rests on.

Which images of one source are D_Q and which are control was drawn by chance. A model that never saw D_Q, whatever else
it holds, cannot know; so any statistic of its confidences is as likely under every other draw, and

    p = (1 + draws whose effect is at least that of the real one) / (1 + draws)

has P[p <= a] <= a. One-sided: the model is the surer of D_Q; the same draws say the other side, too. The effect is

    (mean score of D_Q - mean score of control) / its standard error

in units of chance: of a model that never saw D_Q it has mean 0 and standard deviation 1. An image's score is made for
what training on an image does, and looks at nobody's membership:

    score = u / sd(u) + v / sd(v)
    u = h^2 (r - mean r of the 2 x NEIGHBOURS images that are next in difficulty)    r: rank of its confidence, 0 to 1
    v = h min(max(z - TAIL, 0), MOST)    z = (m - mean over calibration models) / s
    h = 1 - rank of easiness, 0 to 1     easiness: mean log-odds of the calibration models

u is a little on many images, v much on a few. m is the model's rank read off the calibration models' log-odds, so that
a monotone change of confidences changes no score. A temperature is one where there are two classes. Where there are
more, it moves an image's confidence by what its other classes have, too, and so some ranks. s^2 is the image's variance
over calibration models, weighted with PRIOR times the median one. Easy images, of which every model is sure, show
nothing: h leaves them out. NEIGHBOURS, TAIL, MOST, PRIOR and the powers of h were chosen on one set of trainings and
confirmed on another: docs/forgetting_reference.md.

Randomisation tests with covariates: Rosenbaum 2002, "Covariance adjustment in randomized experiments and observational
studies", section 2; a model's z of an image: Carlini et al. 2022, "Membership inference attacks from first principles".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

NEIGHBOURS, TAIL, MOST, PRIOR = 25, 1.5, 4.0, 3.0
LEAST = 1e-12
NEAREST_ONE = 2.0**-25  # float32 says 1 of all that is nearer to 1
BLOCK = 1 << 22  # numbers that are drawn at one time


def scores(confidence: Array, calibration: Array) -> Array:
    """The score of each image (n,) from the model's confidences (n,) and those of calibration models (models, n).

    ValueError without a calibration model.
    """
    if not len(calibration):
        raise ValueError("there are no calibration models; scores need at least one to know how difficult images are")
    known = log_odds(calibration)
    easiness = known.mean(axis=0)
    hard = 1 - ranks(easiness)
    shift = hard**2 * neighbour_contrast(ranks(confidence), easiness)
    total = standardise(shift)
    if len(known) > 1:
        matched = np.quantile(known, ranks(confidence))
        variance = known.var(axis=0, ddof=1)
        spread = np.sqrt(((len(known) - 1) * variance + PRIOR * np.median(variance)) / (len(known) - 1 + PRIOR))
        z = np.divide(matched - easiness, spread, out=np.zeros_like(easiness), where=spread > 0)
        total = total + standardise(hard * np.clip(z - TAIL, 0, MOST))
    return total


def ranks(values: Array) -> Array:
    """The rank of each value among all, from 0 to 1, equal values at their mean: (rank - 1/2) / n."""
    places, counts = np.unique(values, return_inverse=True, return_counts=True)[1:]
    ends = np.cumsum(counts)
    return np.asarray((ends - counts / 2)[places] / len(values))


def neighbour_contrast(values: Array, easiness: Array) -> Array:
    """Each value less the mean of its neighbours' in easiness, on either side NEIGHBOURS or a quarter of all images."""
    n = len(values)
    reach = min(NEIGHBOURS, max(1, n // 4))
    order = np.argsort(easiness, kind="stable")
    rising = values[order]
    sums = np.concatenate([[0.0], np.cumsum(rising)])
    first, end = np.maximum(np.arange(n) - reach, 0), np.minimum(np.arange(n) + reach + 1, n)
    mean = (sums[end] - sums[first] - rising) / np.maximum(end - first - 1, 1)
    left = np.empty(n)
    left[order] = rising - mean
    return left


def standardise(values: Array) -> Array:
    """The values with mean 0 and standard deviation 1; all 0 where they do not differ."""
    centred = values - values.mean()
    spread = float(centred.std())
    return centred / spread if spread > LEAST else np.zeros_like(centred)


def unit_scores(
    of_images: Array, groups: NDArray[np.int64], is_control: NDArray[np.bool_]
) -> tuple[Array, NDArray[np.bool_]]:
    """The mean score of each group of images that were drawn together, and whether it is control; both (units,)."""
    there, first, unit, counts = np.unique(groups, return_index=True, return_inverse=True, return_counts=True)
    means = np.bincount(unit, weights=of_images, minlength=len(there)) / counts
    return means, is_control[first]


def effect(of_units: Array, is_control: NDArray[np.bool_]) -> float:
    """The effect of scores (units,): 0 where no two differ."""
    spread = float(of_units.std(ddof=1)) * np.sqrt(1 / (~is_control).sum() + 1 / is_control.sum())
    difference = float(of_units[~is_control].mean() - of_units[is_control].mean())
    return difference / float(spread) if spread > LEAST else 0.0


class PValues(NamedTuple):
    """The chance of an effect as large, that a model is the surer of D_Q, and of one as small, of the control set."""

    surer: float
    less_sure: float


def p_values(
    of_units: Array, is_control: NDArray[np.bool_], permutations: int, generator: np.random.Generator
) -> PValues:
    """The chance of an effect as far out where who is control is drawn anew, on each side, from so many draws."""
    count = int((~is_control).sum())
    real = float(of_units[~is_control].sum())
    slack = LEAST * max(1.0, float(np.abs(of_units).sum()))  # sums in another order differ in their last place
    at_least = at_most = 0
    block = max(1, BLOCK // len(of_units))
    for first in range(0, permutations, block):
        size = min(block, permutations - first)
        drawn = generator.permuted(np.broadcast_to(of_units, (size, len(of_units))), axis=1)
        sums = drawn[:, :count].sum(axis=1)
        at_least += int((sums >= real - slack).sum())
        at_most += int((sums <= real + slack).sum())
    return PValues((1 + at_least) / (1 + permutations), (1 + at_most) / (1 + permutations))


def log_odds(confidences: Array, printed: float = 0.0) -> Array:
    """log(c / (1 - c)) of confidences, whose last printed place is `printed` (0: float32).

    In log-odds per-image Gaussians are a fair description of how models differ.

    Confidences of 0 and 1 are taken for half a last place more, or less. Carlini et al. 2022, "Membership inference
    attacks from first principles", section IV-C, call it logit scaling.
    """
    inside = np.clip(confidences, max(printed / 2, LEAST), 1 - max(printed / 2, NEAREST_ONE))
    scaled: Array = np.log(inside) - np.log1p(-inside)
    return scaled
