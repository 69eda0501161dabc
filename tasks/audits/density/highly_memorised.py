"""The observations that have a score, and which of them are highly memorised: those above the 95 % quantile of M.

From the table of scores, whose columns log_p_trained (U, in nats) and m (M) are read here.

Van den Burg & Williams 2021, "On memorization in probabilistic deep generative models", section 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.statistics import Estimate, proportion

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

HIGH = 0.95  # the quantile of M above which an observation is highly memorised


@dataclass(frozen=True, eq=False)
class Scored:
    """The observations that have a score: rows, U and M, each (observations,); and how many have none."""

    rows: NDArray[np.int64]
    u: Array
    m: Array
    without: int


def scored(scores: pa.Table) -> Scored:
    """The observations that have U and M; either may be infinite."""
    rows, u, m = (column(scores, name) for name in ("row", "log_p_trained", "m"))
    known = ~(np.isnan(u) | np.isnan(m))
    return Scored(rows[known].astype(np.int64), u[known], m[known], int((~known).sum()))


def column(table: pa.Table, name: str) -> Array:
    """A column of numbers, NaN where it is null."""
    return np.asarray(table[name].to_numpy(), np.float64)


def highly_memorised(m: Array) -> Mask:
    """The mask of the observations whose score is above its 95 % quantile, or +inf.

    The score is +inf where all models that held the observation out call it impossible. The quantile is taken without
    interpolation, which an infinite score would spoil; the same observations are above it.
    """
    if not len(m):
        return np.zeros(0, np.bool_)
    return np.asarray((m > np.quantile(m, HIGH, method="lower")) | (m == np.inf))


def within_central(scores: pa.Table, share: float = 0.9) -> Estimate:
    """The share of the highly memorised whose U lies in the central `share` of U, with its Wilson interval.

    It is `share` where M has nothing to do with U, and 0 where the highly memorised are those with the lowest U.
    Section 4.3: "more than half" for CelebA. The interval is over observations.
    """
    observations = scored(scores)
    u, high = observations.u, highly_memorised(observations.m)
    if not high.any():
        return proportion(0, 0)
    tail = (1 - share) / 2
    # Without interpolation, which an infinite U would spoil: the inner neighbours.
    low = np.quantile(u, tail, method="higher")
    top = np.quantile(u, 1 - tail, method="lower")
    return proportion(int((high & (low <= u) & (u <= top)).sum()), int(high.sum()))
