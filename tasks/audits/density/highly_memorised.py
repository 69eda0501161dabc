"""Observations with a score, and the highly memorised ones: those above the 95 % quantile of M.

Two columns of the score table are used: log_p_trained (U, in nats) and m_matched, which is M with equal numbers of
models on both sides. The published score is not used because it is higher if models disagree more, with or without
memorisation.

A statistic over all observations, such as a correlation or a share, depends on the same L K models for every
observation. Its unit of replication is therefore the repetition, and its interval is the jackknife's. The statistic
need not be 0 without memorisation, since both M and other properties of an image depend on how much models disagree on
it. Its null is the mean under redrawn held-out models, with U and M from the same draw, since both depend on it.

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

HIGH = 0.95  # observations above this quantile of M are highly memorised


@dataclass(frozen=True, eq=False)
class Scored:
    """Observations that have a score: their rows, U and M, each (observations,).

    `u_without` and `m_without` (observations, L) omit each repetition in turn. `u_redrawn` and `m_redrawn`
    (observations, draws) use redrawn held-out models. These arrays have no columns if the table lacks them.
    """

    rows: NDArray[np.int64]
    u: Array
    m: Array
    u_without: Array
    m_without: Array
    u_redrawn: Array
    m_redrawn: Array

    def select(self, mask: Mask) -> Scored:
        """Return the observations selected by the mask."""
        arrays = self.u_without, self.m_without, self.u_redrawn, self.m_redrawn
        return Scored(self.rows[mask], self.u[mask], self.m[mask], *(array[mask] for array in arrays))


@dataclass(frozen=True)
class OfAll:
    """A statistic over all observations with an interval over repetitions, its null and the two-sided p-value.

    The null is the value without memorisation. Unknown values are None.
    """

    estimate: Estimate
    null: float | None = None
    p_value: float | None = None


def scored_observations(scores: pa.Table) -> Scored:
    """Return the observations that have U and M, which may be infinite."""
    rows = column(scores, "row")
    u = column(scores, "log_p_trained")
    m = column(scores, "m_matched")
    log_p_trained = lists(scores, "trained")
    m_without = lists(scores, "matched_without")
    u_redrawn = lists(scores, "trained_redrawn")
    m_redrawn = lists(scores, "matched_redrawn")
    has_model = ~np.isnan(log_p_trained)
    if log_p_trained.size:
        u_without = log_mean_but_one(np.where(has_model, log_p_trained, -np.inf), others(has_model.astype(np.int64)))
    else:
        u_without = log_p_trained
    is_scored = ~(np.isnan(u) | np.isnan(m))
    all_observations = Scored(rows.astype(np.int64), u, m, u_without, m_without, u_redrawn, m_redrawn)
    return all_observations.select(is_scored)


def statistic_with_interval(statistic: Callable[[Array, Array], float], observations: Scored) -> OfAll:
    """Compute a statistic of U and M over all observations, its jackknife interval over repetitions, and its null.

    The null is the mean over R draws of the held-out models. The p-value tests whether the statistic could be another
    of these draws, by Student's t: (value - mean) / (s sqrt(1 + 1 / R)) with R - 1 degrees of freedom.
    """
    value = statistic(observations.u, observations.m)
    columns_without_each = zip(observations.u_without.T, observations.m_without.T, strict=False)
    estimate = statistics.jackknife(value, [statistic(u, m) for u, m in columns_without_each])
    redrawn = zip(observations.u_redrawn.T, observations.m_redrawn.T, strict=True)
    null_values = np.array([statistic(u, m) for u, m in redrawn])
    if not len(null_values) or not np.isfinite(null_values).all():
        return OfAll(estimate)
    null = float(null_values.mean())
    spread = 0.0
    if len(null_values) > 1:
        spread = float(null_values.std(ddof=1))
    if not np.isfinite(value) or not spread > 0:
        return OfAll(estimate, null)
    from scipy import stats

    t = abs(value - null) / (spread * np.sqrt(1 + 1 / len(null_values)))
    return OfAll(estimate, null, float(2 * stats.t.sf(t, len(null_values) - 1)))


def column(table: pa.Table, name: str) -> Array:
    """Return a column of numbers, with NaN for null."""
    return np.asarray(table[name].to_numpy(), np.float64)


def lists(table: pa.Table, name: str) -> Array:
    """Return a column of equally long lists as (rows, length), NaN for null. (rows, 0) if every list is null."""
    values = table[name].combine_chunks()
    if values.null_count == len(values):
        return np.empty((len(values), 0))
    flat: Array = values.flatten().to_numpy(zero_copy_only=False)
    return flat.reshape(len(values), -1)


def highly_memorised_mask(m: Array) -> Mask:
    """Return the mask of observations whose score is above its 95 % quantile, or +inf.

    The score is +inf if all models that held the observation out assign it probability 0. The quantile is taken without
    interpolation, which would fail for infinite scores; it selects the same observations.
    """
    if not len(m):
        return np.zeros(0, np.bool_)
    return np.asarray((m > np.quantile(m, HIGH, method="lower")) | (m == np.inf))


def within_central(scores: pa.Table, share: float = 0.9) -> OfAll:
    """Compute the share of highly memorised observations whose U is in the central `share` of U.

    The result is 0 if the highly memorised observations have the lowest U, and near `share` if M is independent of U.
    Section 4.3: "more than half" for CelebA.
    """
    return statistic_with_interval(lambda u, m: central_share(u, m, share), scored_observations(scores))


def central_share(u: Array, m: Array, share: float) -> float:
    """Return the share of highly memorised observations whose U is in the central `share` of U. NaN without any."""
    high = highly_memorised_mask(m)
    if not high.any():
        return np.nan
    tail = (1 - share) / 2
    # Take the inner neighbours instead of interpolating, which would fail for infinite U.
    low = np.quantile(u, tail, method="higher")
    top = np.quantile(u, 1 - tail, method="lower")
    return float((high & (low <= u) & (u <= top)).sum() / high.sum())
