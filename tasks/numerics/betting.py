"""Evidence from exact ranks that may be looked at after each of them.

Where nothing is to be found, the rank r of a drawn feature among R is uniform at worst, whatever the ranks before it
were. A bet on it

    e(r) = f(r / R) / mean over s = 1 .. R of f(s / R)         f(p) = k p^(k - 1)

has then an expectation of at most 1, and the product of the bets so far is a test martingale: it ever reaches 1 / level
with a probability of at most `level`, however often one looks (Ville 1939). f is the calibrator of Vovk & Wang 2021,
"E-values: calibration, combination and applications", eq. 1; the mean makes it exact on the grid of ranks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Fixed before any data. A smaller one decides a little earlier where most ranks are small, less often where few are.
EXPONENT = 0.3
MOST = 1e300


def bet(rank: int, size: int) -> float:
    """e(r) of a rank among so many, 1 the first."""
    if not 1 <= rank <= size:
        raise ValueError(f"rank is {rank}; it must be from 1 to {size}")
    return float((rank / size) ** (EXPONENT - 1) / _mean(size))


def _bet_on_p_value(p_value: float) -> float:
    """k p^(k - 1): the bet on any p-value that is at worst uniform. On a grid of ranks it is a little below `bet`."""
    if not 0 < p_value <= 1:
        raise ValueError(f"p is {p_value}; it must be above 0 and at most 1")
    return float(EXPONENT * p_value ** (EXPONENT - 1))


def total_evidence(p_values: Sequence[float]) -> float:
    """The product of the bets on all of these p-values, in any order; at most MOST, where nobody reads its digits."""
    total = sum(math.log(_bet_on_p_value(each)) for each in p_values)
    return math.exp(min(total, math.log(MOST)))


def evidence(ranks: Sequence[int], sizes: Sequence[int]) -> Array:
    """The product of the bets on the first 1, 2, ... ranks; (ranks,)."""
    return np.cumprod([bet(rank, size) for rank, size in zip(ranks, sizes, strict=True)], dtype=np.float64)


def is_decided(value: float, level: float) -> bool:
    """Whether evidence of this value accuses at the level."""
    return value >= 1 / level


@lru_cache(maxsize=64)
def _mean(size: int) -> float:
    """The mean of p^(k - 1) over p = 1 / R .. 1. f's factor k cancels."""
    return float(np.mean((np.arange(1, size + 1) / size) ** (EXPONENT - 1)))
