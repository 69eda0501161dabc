"""The observations that have a score, and which of them are highly memorised: those above the 95 % quantile of M.

From the table of scores, of which log_p_trained (U, in nats) and m_matched are read here: M with as many models on
either side, since the published one is higher wherever models disagree more, memory or no memory.

What is computed of all observations together, such as a correlation or a share, is of the same L K models for all of
them: its unit is the repetition, and its interval the jackknife's. Where nothing is memorised it need not be 0, for M
and whatever goes with how hard an image is both go with how far models disagree on it; its null is what it is on
average where other models hold the observations out, U and M of the same draw: either hangs on which these are.

Van den Burg & Williams 2021, "On memorization in probabilistic deep generative models", section 4.3, where the score is
the published one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.density.memorization import log_mean_but_one, others
from tasks.contract.summaries import Estimate
from tasks.numerics import statistics

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

HIGH = 0.95  # the quantile of M above which an observation is highly memorised


@dataclass(frozen=True, eq=False)
class Scored:
    """The observations that have a score: rows, U and M, each (observations,).

    `u_without` and `m_without` (observations, L) are the same without each repetition, `u_redrawn` and `m_redrawn`
    (observations, draws) had other models held the observations out; without columns where the table does not say.
    """

    rows: NDArray[np.int64]
    u: Array
    m: Array
    u_without: Array
    m_without: Array
    u_redrawn: Array
    m_redrawn: Array

    def select(self, those: Mask) -> Scored:
        """Some of these observations."""
        arrays = self.u_without, self.m_without, self.u_redrawn, self.m_redrawn
        return Scored(self.rows[those], self.u[those], self.m[those], *(each[those] for each in arrays))


@dataclass(frozen=True)
class OfAll:
    """A statistic of all observations with its interval over repetitions, what it is without memory, and the two-tailed
    p-value of that; None where unknown."""

    estimate: Estimate
    null: float | None = None
    p_value: float | None = None


def scored_observations(scores: pa.Table) -> Scored:
    """The observations that have U and M; either may be infinite."""
    rows, u, m = (column(scores, name) for name in ("row", "log_p_trained", "m_matched"))
    trained, m_without = (lists(scores, name) for name in ("trained", "matched_without"))
    u_redrawn, m_redrawn = (lists(scores, name) for name in ("trained_redrawn", "matched_redrawn"))
    there = ~np.isnan(trained)
    u_without = (
        log_mean_but_one(np.where(there, trained, -np.inf), others(there.astype(np.int64))) if trained.size else trained
    )
    known = ~(np.isnan(u) | np.isnan(m))
    every = Scored(rows.astype(np.int64), u, m, u_without, m_without, u_redrawn, m_redrawn)
    return every.select(known)


def statistic_with_interval(statistic: Callable[[Array, Array], float], observations: Scored) -> OfAll:
    """A statistic of U and M of all observations, with its jackknife interval over repetitions, and its null.

    The null is the mean over the redrawings of which models hold the observations out. The p-value is that the
    statistic is one more of these, by Student's t: (value - mean) / (s sqrt(1 + 1 / R)) with R - 1 degrees of freedom
    for R of them.
    """
    value = statistic(observations.u, observations.m)
    both = zip(observations.u_without.T, observations.m_without.T, strict=False)
    estimate = statistics.jackknife(value, [statistic(u, m) for u, m in both])
    redrawn = zip(observations.u_redrawn.T, observations.m_redrawn.T, strict=True)
    drawn = np.array([statistic(u, m) for u, m in redrawn])
    if not len(drawn) or not np.isfinite(drawn).all():
        return OfAll(estimate)
    null, spread = float(drawn.mean()), float(drawn.std(ddof=1)) if len(drawn) > 1 else 0.0
    if not np.isfinite(value) or not spread > 0:
        return OfAll(estimate, null)
    from scipy import stats

    apart = abs(value - null) / (spread * np.sqrt(1 + 1 / len(drawn)))
    return OfAll(estimate, null, float(2 * stats.t.sf(apart, len(drawn) - 1)))


def column(table: pa.Table, name: str) -> Array:
    """A column of numbers, NaN where it is null."""
    return np.asarray(table[name].to_numpy(), np.float64)


def lists(table: pa.Table, name: str) -> Array:
    """A column of lists of one length as (rows, length), NaN where there is none; (rows, 0) of a column of nulls."""
    values = table[name].combine_chunks()
    if values.null_count == len(values):
        return np.empty((len(values), 0))
    flat: Array = values.flatten().to_numpy(zero_copy_only=False)
    return flat.reshape(len(values), -1)


def highly_memorised_mask(m: Array) -> Mask:
    """The mask of the observations whose score is above its 95 % quantile, or +inf.

    The score is +inf where all models that held the observation out call it impossible. The quantile is taken without
    interpolation, which an infinite score would spoil; the same observations are above it.
    """
    if not len(m):
        return np.zeros(0, np.bool_)
    return np.asarray((m > np.quantile(m, HIGH, method="lower")) | (m == np.inf))


def within_central(scores: pa.Table, share: float = 0.9) -> OfAll:
    """The share of the highly memorised whose U lies in the central `share` of U.

    It is 0 where the highly memorised are those with the lowest U, and near `share` where M has nothing to do with U.
    Section 4.3: "more than half" for CelebA.
    """
    return statistic_with_interval(lambda u, m: central_share(u, m, share), scored_observations(scores))


def central_share(u: Array, m: Array, share: float) -> float:
    """The share of those with the highest M whose U lies in the central `share` of U; NaN without any."""
    high = highly_memorised_mask(m)
    if not high.any():
        return np.nan
    tail = (1 - share) / 2
    # Without interpolation, which an infinite U would spoil: the inner neighbours.
    low, top = np.quantile(u, tail, method="higher"), np.quantile(u, 1 - tail, method="lower")
    return float((high & (low <= u) & (u <= top)).sum() / high.sum())
