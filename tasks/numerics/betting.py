"""Evidence from exact ranks that may be evaluated after every rank.

Under the null hypothesis, the rank r of a drawn feature among R features is at worst uniform, given the earlier ranks.
A bet on it

    e(r) = f(r / R) / mean over s = 1 .. R of f(s / R)         f(p) = k p^(k - 1)

then has an expectation of at most 1, and the product of the bets so far is a test martingale: the probability that it
ever reaches 1 / level is at most `level`, for any number of evaluations (Ville 1939). f is the calibrator of Vovk &
Wang 2021, "E-values: calibration, combination and applications", eq. 1; the mean makes it exact on the grid of ranks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Fixed before any data. A smaller value decides slightly earlier if most ranks are small, but less often if few are.
EXPONENT = 0.3
MOST = 1e300


def bet(rank: int, size: int) -> float:
    """Return e(r) for a rank, counted from 1."""
    if not 1 <= rank <= size:
        raise ValueError(f"rank is {rank}; it must be from 1 to {size}")
    return float((rank / size) ** (EXPONENT - 1) / _mean(size))


def _bet_on_p_value(p_value: float) -> float:
    """Return k p^(k - 1), the bet on any p-value that is at worst uniform.

    On a grid of ranks, it is slightly below `bet`.
    """
    if not 0 < p_value <= 1:
        raise ValueError(f"p is {p_value}; it must be above 0 and at most 1")
    return float(EXPONENT * p_value ** (EXPONENT - 1))


def total_evidence(p_values: Sequence[float]) -> float:
    """Return the product of the bets on these p-values, in any order, but at most MOST."""
    total = sum(math.log(_bet_on_p_value(p_value)) for p_value in p_values)
    return math.exp(min(total, math.log(MOST)))


def evidence(ranks: Sequence[int], sizes: Sequence[int]) -> Array:
    """Return the product of the bets on the first 1, 2, ... ranks, (ranks,)."""
    return np.cumprod([bet(rank, size) for rank, size in zip(ranks, sizes, strict=True)], dtype=np.float64)


def is_decided(value: float, level: float) -> bool:
    """Return whether evidence of this value is enough to accuse at this level."""
    return value >= 1 / level


@lru_cache(maxsize=64)
def _mean(size: int) -> float:
    """Return the mean of p^(k - 1) over p = 1 / R .. 1. The factor k of f cancels out."""
    return float(np.mean((np.arange(1, size + 1) / size) ** (EXPONENT - 1)))
