"""Bins of one width whose edges are whole multiples of it, so that tables of two runs have the same bins."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def bin_of(values: ArrayLike, width: float) -> Array:
    """The bin of each value, a whole number b: value in [b width, (b + 1) width), as these are in float64.

    Infinite values and NaN stay what they are.
    """
    given = np.asarray(values, np.float64)
    with np.errstate(invalid="ignore"):
        number = np.floor(given / width)
        # A quotient that is rounded up to a whole number is one too large, and the other way round.
        number -= given < number * width
        return np.asarray(number + (given >= (number + 1) * width))
