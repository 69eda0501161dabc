"""Axis limits that are robust against a few far values, and the values beyond them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from dashboards import drawing

Array = NDArray[np.float64]
TAIL = 0.001  # of the values, at either end, that may lie outside
STRETCHED = 1.5  # times as long as the rest makes it: then an axis is cut


def robust_limits(groups: Iterable[Array], including: Sequence[float] = ()) -> tuple[float, float]:
    """Limits that hold these numbers and each group's values; without its tails if they are far."""
    lows, highs = list(including), list(including)
    for values in groups:
        least, low, high, most = np.quantile(values, (0, TAIL, 1 - TAIL, 1))
        long = STRETCHED * (high - low)
        lows.append(float(least if high - least <= long else low))
        highs.append(float(most if most - low <= long else high))
    return drawing.padded_limits([min(lows), max(highs)], 0.03)


def describe_outside(values: Array, limits: tuple[float, float]) -> str:
    """The number of values beyond the limits, in words; empty if there are none."""
    below, above = int((values < limits[0]).sum()), int((values > limits[1]).sum())
    words = [
        f"{count:,} {name} it, {'down' if name == 'below' else 'up'} to {drawing.format_number(float(end))}"
        for count, name, end in ((below, "below", values.min()), (above, "above", values.max()))
        if count
    ]
    return " and ".join(words)
