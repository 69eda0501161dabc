"""What share of D_Q does a model hold? Read off models that were trained on known shares of it.

    effect of a model with share s: mean mu(s), standard deviation sigma, over trainings

mu is the mean effect at each known share, straight between them; at 0 it is that of the calibration models, each
compared with the others. sigma is pooled over the shares. Of a target with R models and the mean effect e, the shares
that are not excluded at 95 % on one side are

    max(e, mu(0)) >= mu(s) - t sigma sqrt(1 / R + 1 / n)        upper limit: the largest such s
    e <= mu'(s) + t sigma sqrt(1 / R + 1 / n)                   lower limit: the smallest such s

where mu' is mu made not to fall, which moves the lower limit down; an upper limit by mu' would be too low where mu is
flat. A target that is less sure of D_Q than models that never saw it shows no smaller share than these do: hence the
maximum with mu(0), without which no share might be left.

with t at the degrees of freedom of sigma, and n the fewest models at a share. Beyond the largest known share nothing is
known: a limit that is not below it is 1. Images are not resampled: D_Q and the control set are the same to all models.

Osborne 1991, "Statistical calibration: a review", section 3.1, with means in place of a line.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.statistics import Estimate

Array = NDArray[np.float64]
STEPS = 1000  # between no share and the largest known one


@dataclass(frozen=True, eq=False)
class ShareCurve:
    """The effect of a model over the share of D_Q that it was trained on."""

    shares: Array  # rising, from 0
    means: Array
    sigma: float
    freedom: int
    fewest: int  # models at a share

    def one_sided_margin(self, models: int, confidence: float = 0.95) -> float:
        """How far the mean effect of so many models lies from the curve at most, on one side."""
        from scipy import stats

        return float(stats.t.ppf(confidence, self.freedom)) * self.sigma * math.sqrt(1 / models + 1 / self.fewest)

    def interval_half_width(self, models: int, confidence: float = 0.95) -> float:
        """Half the width of the interval of the mean effect of so many models, over trainings."""
        from scipy import stats

        return float(stats.t.ppf((1 + confidence) / 2, self.freedom)) * self.sigma / math.sqrt(models)

    def estimate_share(self, effect: float, models: int) -> Estimate:
        """The share whose mean effect this is, with its limits (each of 95 % on its side); n is the models."""
        last = float(self.shares[-1])
        tried = np.linspace(0, last, STEPS + 1)
        mean = np.interp(tried, self.shares, self.means)
        rising = np.interp(tried, self.shares, np.maximum.accumulate(self.means))
        reach = self.one_sided_margin(models)
        high = float(tried[mean - reach <= max(effect, self.means[0])].max())
        above = tried[rising + reach >= effect]
        low = float(above.min()) if len(above) else last
        like = tried[rising <= effect]
        value = float(like.max()) if len(like) else 0.0
        return Estimate(value, low, high if high < last else 1.0, models)


def share_curve(effects: Mapping[float, Sequence[float]]) -> ShareCurve | None:
    """The curve from the effects of models by share; None without share 0 and another, or where no share has two."""
    shares = sorted(share for share, of in effects.items() if len(of))
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
    return ShareCurve(np.array(shares), means, sigma, freedom, int(counts.min()))
