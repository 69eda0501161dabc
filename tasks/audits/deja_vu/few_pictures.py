"""Limits of sums and differences of shares that keep a width where few pictures are asked about.

A bootstrap of pictures none of which is named rightly does not vary, and its interval would have no width. Wilson's
interval of a share has one, and those of several shares combine (MOVER, the method of variance estimates recovery):

    sum_i w_i p_i, from its value - sqrt(sum_i (w_i d_i)^2), d_i the distance of p_i to the limit that lowers the sum

Wilson 1927; Zou & Donner 2008, "Construction of confidence limits about effect measures: a general approach", eqs. 3
and 4, which for the difference of two shares is Newcombe's method 10. Shares are taken as independent: two models that
are right about the same pictures make the sum vary less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Z = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True, eq=False)
class Weighted:
    """Shares (m,) of `counts` pictures each (m,), that enter m sums with this weight."""

    weight: float
    shares: Floats
    counts: NDArray[np.integer]


def wilson(shares: Floats, counts: NDArray[np.integer]) -> tuple[Floats, Floats]:
    """Lower and upper limits of shares of so many, by Wilson's score interval at 95 %."""
    shrunk = 1 + Z**2 / counts
    centre = (shares + Z**2 / (2 * counts)) / shrunk
    half = Z / shrunk * np.sqrt(shares * (1 - shares) / counts + Z**2 / (4 * counts**2))
    return np.maximum(centre - half, 0.0), np.minimum(centre + half, 1.0)  # beyond these by rounding alone


def limits(parts: Sequence[Weighted]) -> tuple[Floats, Floats]:
    """Lower and upper limits, (m,) each, of the sums of the weighted shares."""
    value, below, above = (np.zeros(len(parts[0].shares)) for _ in range(3))
    for part in parts:
        low, high = wilson(part.shares, part.counts)
        down, up = (
            (part.shares - low, high - part.shares) if part.weight > 0 else (high - part.shares, part.shares - low)
        )
        value += part.weight * part.shares
        below += (part.weight * down) ** 2
        above += (part.weight * up) ** 2
    return value - np.sqrt(below), value + np.sqrt(above)
