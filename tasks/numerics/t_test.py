"""The power of a t-test, integrated over the estimated standard deviation, so that planning does not import SciPy."""

from __future__ import annotations

import math

GRID = 200  # points of the integral over the estimated standard deviation


def _t_tail(t: float, freedom: int, shift: float = 0.0) -> float:
    """Return P(T > t) of Student's t with this noncentrality."""
    total = weights = 0.0
    for step in range(GRID):
        s = 3 * (step + 0.5) / GRID  # the estimated standard deviation divided by the true one
        weight = math.exp((freedom - 1) * math.log(s) - freedom * (s * s - 1) / 2)
        total += weight * 0.5 * math.erfc((t * s - shift) / math.sqrt(2))
        weights += weight
    return total / weights


def t_rate(shift: float, freedom: int, level: float) -> float:
    """Return the power of a one-sided t-test at this level. `shift` is the effect divided by its standard error."""
    low, high = 0.0, 1000.0
    for _ in range(40):
        middle = (low + high) / 2
        if _t_tail(middle, freedom) > level:
            low, high = (middle, high)
        else:
            low, high = (low, middle)
    return _t_tail(high, freedom, shift)
