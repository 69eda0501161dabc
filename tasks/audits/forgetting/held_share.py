"""The share of D_Q that a model holds, and how similar it is to the models from which the share is estimated.

    effect of a model with share s: mean mu(s), standard deviation sigma, over trainings

mu is the mean effect at each known share, interpolated linearly. mu(0) is the mean over the calibration models, each
compared with the others. sigma is pooled over the shares. For a target with R models and mean effect e, the shares that
are not excluded at 95 % on one side are

    max(e, mu(0)) >= mu(s) - t sigma sqrt(1 / R + 1 / n)        upper limit: the largest such s
    e <= mu'(s) + t sigma sqrt(1 / R + 1 / n)                   lower limit: the smallest such s

mu' is mu made monotone, which lowers the lower limit. The upper limit uses mu, since mu' would make it too low where mu
is flat. The maximum with mu(0) keeps share 0 possible for a target that is less certain about D_Q than models that
never saw it. t has the degrees of freedom of sigma, and n is the smallest number of models at a share. The effect
beyond the largest known share is unknown, so a limit that is not below this share is set to 1. Images are not
resampled, since all models share D_Q and the control set. Osborne 1991, "Statistical calibration: a review", section
3.1, with means in place of a line.

If each model was trained on its own random share f of D_C, models also vary by their data, but less than the model of
an owner with other data would: any two models have a share f of their images in common. If only the data varied,

    variance of one owner's model = sigma^2 / (1 - f)    of the mean over all draws of D_C = sigma^2 f / (1 - f)

so (1 / R + f) / (1 - f) replaces 1 / R. The part of sigma that comes from the seed makes margins too wide, not too
narrow. Cochran 1977, "Sampling techniques", theorem 2.2.

Likeness is measured on the control set, where D_Q has no effect:

    accuracy     share of the control images that the model classifies correctly
    agreement    Spearman's correlation of its confidences with the mean log-odds of the calibration models

A t test compares the target's R models with C calibration models, each of which is compared with the others:

    t(C - 1) = (mean of the target - mean of the calibration models) / (s sqrt(1 / R + 1 / C))

The test is two-sided, with 1 / R replaced as above. If p is below UNLIKE, the target is unlike the calibration models.
The target's agreement is averaged over comparisons with all calibration models but one. A temperature changes neither
number. Accuracy differs for models with other data of the domain, another design or longer training. Agreement falls
with noise and rises in ensembles. An image that was sent twice must receive the same answer, to the last printed place
or `blinding.SAME` of its log-odds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.audits.forgetting.exchangeability import Array, log_odds, ranks
from tasks.contract.summaries import Estimate
from tasks.external.blinding import different
from tasks.numerics.statistics import t_quantile, t_tail

UNLIKE = 0.01  # significance level of each likeness check
ROOM = 1e-9  # tolerance for equal numbers
STEPS = 1000  # grid points between 0 and the largest known share


@dataclass(frozen=True, eq=False)
class ShareCurve:
    """Effect of a model as a function of the share of D_Q that it was trained on."""

    shares: Array  # ascending, from 0
    means: Array
    sigma: float
    freedom: int
    fewest: int  # smallest number of models at any share
    drawn_share: float = 1.0  # share of D_C that each model was trained on

    def one_sided_margin(self, models: int) -> float:
        """Return the one-sided 95 % margin of the mean effect of this many models around the curve."""
        return (
            t_quantile(0.95, self.freedom)
            * self.sigma
            * math.sqrt(variance_factor(models, self.drawn_share) + 1 / self.fewest)
        )

    def interval_half_width(self, models: int) -> float:
        """Return half the width of the 95 % interval, over trainings, of the mean effect of this many models."""
        return t_quantile(0.975, self.freedom) * self.sigma / math.sqrt(models)

    def estimate_share(self, effect: float, models: int) -> Estimate:
        """Estimate the share with this mean effect, with limits at 95 % on each side. n is the number of models."""
        last = float(self.shares[-1])
        candidates = np.linspace(0, last, STEPS + 1)
        mean = np.interp(candidates, self.shares, self.means)
        rising = np.interp(candidates, self.shares, np.maximum.accumulate(self.means))
        reach = self.one_sided_margin(models)
        high = float(candidates[mean - reach <= max(effect, self.means[0])].max())
        above = candidates[rising + reach >= effect]
        low = float(above.min()) if len(above) else last
        shares_below = candidates[rising <= effect]
        value = float(shares_below.max()) if len(shares_below) else 0.0
        return Estimate(value, low, high if high < last else 1.0, models)


def variance_factor(models: int, drawn_share: float) -> float:
    """Return the variance of the mean of an owner's models, relative to that of one model with its share of D_C."""
    if drawn_share == 1:
        return 1 / models
    return (1 / models + drawn_share) / (1 - drawn_share)


def share_curve(effects: Mapping[float, Sequence[float]], drawn_share: float = 1.0) -> ShareCurve | None:
    """Build the curve from the models' effects at each share.

    None unless there is share 0 and another share, and some share has two models.
    """
    shares = sorted(share for share, share_effects in effects.items() if len(share_effects))
    if len(shares) < 2 or shares[0] != 0:
        return None
    counts = np.array([len(effects[share]) for share in shares])
    freedom = int((counts - 1).sum())
    if not freedom:
        return None
    means = np.array([np.mean(effects[share]) for share in shares])
    squares = sum(
        float(((np.array(effects[share]) - mean) ** 2).sum()) for share, mean in zip(shares, means, strict=True)
    )
    sigma = math.sqrt(squares / freedom)
    return ShareCurve(np.array(shares), means, sigma, freedom, int(counts.min()), drawn_share)


@dataclass(frozen=True)
class LikenessCheck:
    """A number of the target, its mean over the calibration models, and the p-value of the difference."""

    value: float | None
    expected: float | None = None
    p: float | None = None

    @property
    def is_alike(self) -> bool | None:
        """Whether the target could be a calibration model. None if unknown."""
        return None if self.p is None else self.p >= UNLIKE

    @property
    def is_larger(self) -> bool:
        assert self.value is not None
        assert self.expected is not None
        return self.value > self.expected


UNKNOWN = LikenessCheck(None)


def likeness_check(
    values: Sequence[float] | None, calibration: Sequence[float] | None, drawn_share: float = 1.0
) -> LikenessCheck:
    """Compare the mean over the target's models with single calibration models.

    There is no p-value with fewer than two calibration models.
    """
    if not values:
        return UNKNOWN
    value = float(np.mean(values))
    if not calibration:
        return LikenessCheck(value)
    expected = float(np.mean(calibration))
    count = len(calibration)
    if count < 2:
        return LikenessCheck(value, expected)
    spread = float(np.std(calibration, ddof=1)) * math.sqrt(variance_factor(len(values), drawn_share) + 1 / count)
    off = abs(value - expected)
    if spread <= ROOM:
        return LikenessCheck(value, expected, float(off <= ROOM))
    return LikenessCheck(value, expected, 2 * t_tail(off / spread, count - 1))


def agreement(confidence: Array, calibration: Array) -> float | None:
    """Average a model's (n,) Spearman correlation with all calibration models but one, over the one left out.

    None with fewer than two calibration models.
    """
    if len(calibration) < 2:
        return None
    calibration_odds = log_odds(calibration)
    mean_odds = (
        np.delete(calibration_odds, left_out, axis=0).mean(axis=0) for left_out in range(len(calibration_odds))
    )
    return float(np.mean([correlation(ranks(confidence), ranks(mean)) for mean in mean_odds]))


def calibration_agreements(calibration: Array, rounded: Array | None = None) -> list[float]:
    """Compute Spearman's correlation of each calibration model with the mean of the others.

    Empty with fewer than two models. `rounded` (models, n) are the confidences of each model in the role of the target,
    rounded like the target's. They are unrounded by default.
    """
    calibration_odds = log_odds(calibration)
    if len(calibration_odds) < 2:
        return []
    agreements = []
    for left_out, confidence in enumerate(calibration if rounded is None else rounded):
        agreements.append(
            correlation(ranks(confidence), ranks(np.delete(calibration_odds, left_out, axis=0).mean(axis=0)))
        )
    return agreements


def correlation(first: Array, second: Array) -> float:
    """Compute Pearson's correlation. 0 if one of the two is constant."""
    a, b = first - first.mean(), second - second.mean()
    scale = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / scale if scale > 0 else 0.0


def count_disagreements(confidence: Array, repeat: Array, printed: float) -> tuple[int, int]:
    """Count the images with two different answers, and all images that were sent twice. Arrays are (n,)."""
    twice: NDArray[np.bool_] = ~np.isnan(repeat)
    first, second = confidence[twice], repeat[twice]
    differ = different((first, log_odds(first)), (second, log_odds(second)), printed)
    return int(differ.sum()), int(twice.sum())
