"""What share of D_Q does a model hold, and is it like the models from whose known shares that is read?

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

Where each model was trained on a share f of D_C, drawn anew, models vary by their data, too, but less than an owner's
whose data are not of D_C: any two of them have a share f of their images in common. If data were all that they vary by,

    variance of one owner's model = sigma^2 / (1 - f)    of the mean over all draws of D_C = sigma^2 f / (1 - f)

so that (1 / R + f) / (1 - f) takes the place of 1 / R. What the seed adds to sigma makes margins too wide, not too
narrow. Cochran 1977, "Sampling techniques", theorem 2.2.

Likeness is asked on the control set, where D_Q plays no part:

    accuracy     share of the control images whose true class the model names
    agreement    Spearman's correlation of its confidences with the mean log-odds of the calibration models

of the target are compared with those of C calibration models, each compared with the others, by a t test that asks
whether the target's R models could be further ones of these:

    t(C - 1) = (mean of the target - mean of the calibration models) / (s sqrt(1 / R + 1 / C))

two-sided, with 1 / R as above; below UNLIKE the target is unlike them. The target's agreement is the mean over the
comparisons with all calibration models but one. Neither changes where confidences are rescaled by a temperature.
Accuracy differs of models that hold other data of the domain, are of another design or were trained for longer;
agreement falls with noise and rises in ensembles. A picture that was handed out twice has to get one answer, to the
last place that was printed or `blinding.SAME` of its log-odds.
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

UNLIKE = 0.01  # of each check of likeness: calibration models that would fail it
ROOM = 1e-9  # what equal numbers may differ by
STEPS = 1000  # between no share and the largest known one


@dataclass(frozen=True, eq=False)
class ShareCurve:
    """The effect of a model over the share of D_Q that it was trained on."""

    shares: Array  # rising, from 0
    means: Array
    sigma: float
    freedom: int
    fewest: int  # models at a share
    drawn: float = 1.0  # the share of D_C that each model was trained on

    def one_sided_margin(self, models: int) -> float:
        """How far the mean effect of so many models lies from the curve at most, on one side (95 %)."""
        from scipy import stats

        return (
            float(stats.t.ppf(0.95, self.freedom))
            * self.sigma
            * math.sqrt(variance_factor(models, self.drawn) + 1 / self.fewest)
        )

    def interval_half_width(self, models: int) -> float:
        """Half the width of the 95 % interval of the mean effect of so many models, over trainings."""
        from scipy import stats

        return float(stats.t.ppf(0.975, self.freedom)) * self.sigma / math.sqrt(models)

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


def variance_factor(models: int, drawn: float) -> float:
    """The variance of a mean of so many models of one owner, in units of that of single models of a share of D_C."""
    return 1 / models if drawn == 1 else (1 / models + drawn) / (1 - drawn)


def share_curve(effects: Mapping[float, Sequence[float]], drawn: float = 1.0) -> ShareCurve | None:
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
    return ShareCurve(np.array(shares), means, sigma, freedom, int(counts.min()), drawn)


@dataclass(frozen=True)
class LikenessCheck:
    """A number of the target, its mean over the calibration models, and the p-value of a difference; None: unknown."""

    value: float | None
    expected: float | None = None
    p: float | None = None

    @property
    def is_alike(self) -> bool | None:
        """Whether the target could be one of the calibration models; None where not known."""
        return None if self.p is None else self.p >= UNLIKE

    @property
    def is_larger(self) -> bool:
        """Whether the target's number is the larger one."""
        assert self.value is not None
        assert self.expected is not None
        return self.value > self.expected


UNKNOWN = LikenessCheck(None)


def likeness_check(
    values: Sequence[float] | None, calibration: Sequence[float] | None, drawn: float = 1.0
) -> LikenessCheck:
    """The mean of the target's models beside single calibration models; no p-value with fewer than two of these."""
    if not values:
        return UNKNOWN
    value = float(np.mean(values))
    if not calibration:
        return LikenessCheck(value)
    expected, count = float(np.mean(calibration)), len(calibration)
    if count < 2:
        return LikenessCheck(value, expected)
    from scipy import stats

    spread = float(np.std(calibration, ddof=1)) * math.sqrt(variance_factor(len(values), drawn) + 1 / count)
    off = abs(value - expected)
    if spread <= ROOM:
        return LikenessCheck(value, expected, float(off <= ROOM))
    return LikenessCheck(value, expected, float(2 * stats.t.sf(off / spread, count - 1)))


def agreement(confidence: Array, calibration: Array) -> float | None:
    """The mean of Spearman's correlations of a model (n,) with all calibration models but one, over the one left out.

    None with fewer than two.
    """
    if len(calibration) < 2:
        return None
    known = log_odds(calibration)
    others = (np.delete(known, left_out, axis=0).mean(axis=0) for left_out in range(len(known)))
    return float(np.mean([correlation(ranks(confidence), ranks(other)) for other in others]))


def calibration_agreements(calibration: Array, said: Array | None = None) -> list[float]:
    """Spearman's correlation of each calibration model with the mean of the others; none with fewer than two.

    `said` (models, n) is what each says in a target's place, rounded as the target is; by default all digits.
    """
    known = log_odds(calibration)
    if len(known) < 2:
        return []
    return [
        correlation(ranks(of), ranks(np.delete(known, left_out, axis=0).mean(axis=0)))
        for left_out, of in enumerate(calibration if said is None else said)
    ]


def correlation(first: Array, second: Array) -> float:
    """Pearson's correlation; 0 where either does not vary."""
    a, b = first - first.mean(), second - second.mean()
    scale = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / scale if scale > 0 else 0.0


def count_disagreements(confidence: Array, again: Array, printed: float) -> tuple[int, int]:
    """Of how many pictures that were handed out twice the answers differ, and how many there are; all (n,)."""
    twice: NDArray[np.bool_] = ~np.isnan(again)
    first, second = confidence[twice], again[twice]
    differ = different((first, log_odds(first)), (second, log_odds(second)), printed)
    return int(differ.sum()), int(twice.sum())
