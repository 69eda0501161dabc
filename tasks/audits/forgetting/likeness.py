"""Is a target like the calibration models where D_Q plays no part, on the control set?

    accuracy     share of the control images whose true class the model names
    agreement    Spearman's correlation of its confidences with the mean log-odds of the calibration models

of the target are compared with those of C calibration models, each compared with the others, by a t test that asks
whether the target's R models could be further ones of these:

    t(C - 1) = (mean of the target - mean of the calibration models) / (s sqrt(1 / R + 1 / C))

two-sided; below LEVEL the target is unlike them. The target's agreement is the mean over the comparisons with all
calibration models but one. Neither changes where confidences are rescaled by a temperature. Accuracy differs of models
that hold other data of the domain, are of another design or were trained for longer; agreement falls with noise and
rises in ensembles. A picture that was handed out twice has to get one answer, to the last place that was printed or
`blinding.SAME` of its log-odds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.audits.forgetting.exchangeability import Array, ranks
from tasks.audits.forgetting.log_odds import log_odds
from tasks.external.blinding import different

LEVEL = 0.01  # of each check: calibration models that would fail it
ROOM = 1e-9  # what equal numbers may differ by


@dataclass(frozen=True)
class LikenessCheck:
    """A number of the target, its mean over the calibration models, and the p-value of a difference; None: unknown."""

    value: float | None
    expected: float | None = None
    p: float | None = None

    @property
    def is_alike(self) -> bool | None:
        """Whether the target could be one of the calibration models; None where not known."""
        return None if self.p is None else self.p >= LEVEL


UNKNOWN = LikenessCheck(None)


def likeness_check(values: Sequence[float] | None, calibration: Sequence[float] | None) -> LikenessCheck:
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

    spread = float(np.std(calibration, ddof=1)) * math.sqrt(1 / len(values) + 1 / count)
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
