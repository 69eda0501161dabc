"""The exact rank of a glyph among all glyphs of its ink, by counting instead of drawing some.

A glyph inks k of 25 cells, and a score that is a sum over the inked cells has C(25, k) values: 4,457,400 of the letter
A's ink. Were a glyph drawn at random from them, each rank would be equally likely, whatever the cells' values; so the
share of glyphs that score at least as much is an exact p-value, as small as 2.2e-7.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

ROUNDING = 1e-6  # of the sum of absolute values: what float32 outputs cannot resolve; such sums count as equal


def subset_count(cells: int, inked: int) -> int:
    """C(cells, inked): the glyphs of so much ink."""
    return math.comb(cells, inked)


class Subsets:
    """The sums of every choice of cells, held as the sums of two halves, which are 2^12 and 2^13 for 25 cells.

    Horowitz & Sahni 1974, "Computing partitions with applications to the knapsack problem", section 3.
    """

    def __init__(self, values: Array) -> None:
        if len(values) > 40:
            raise ValueError(f"there are {len(values)} cells; the choices of more than 40 cannot be counted")
        self.values = np.asarray(values, np.float64)
        self._slack = ROUNDING * float(np.abs(self.values).sum())
        half = len(values) // 2
        self._first, self._second = sums_by_size(self.values[:half]), sums_by_size(self.values[half:])

    def count_at_least(self, inked: int, least: float) -> int:
        """How many choices of `inked` cells have a sum of at least `least`, or less by no more than rounding."""
        count = 0
        for size, sums in enumerate(self._first):
            if 0 <= inked - size < len(self._second):
                others = self._second[inked - size]
                places = np.searchsorted(others, least - self._slack - sums, side="left")
                count += int((len(others) - places).sum())
        return count

    def p_value(self, chosen: NDArray[np.bool_]) -> float:
        """The share of the choices of as many cells whose sum is at least that of the `chosen` ones, (cells,)."""
        inked = int(np.count_nonzero(chosen))
        count = self.count_at_least(inked, float(self.values[chosen].sum()))
        return count / subset_count(len(self.values), inked)


def sums_by_size(values: Array) -> list[Array]:
    """The sums of every choice of these values, ascending, by how many are chosen: from none to all."""
    sums, sizes = np.zeros(1), np.zeros(1, np.int64)
    for value in values:
        sums, sizes = np.concatenate([sums, sums + value]), np.concatenate([sizes, sizes + 1])
    return [np.sort(sums[sizes == size]) for size in range(len(values) + 1)]


def exposure(p_value: float) -> float:
    """log2 |R| - log2 rank, in bits: by how much the score shortens a search for the feature among the |R| of its kind.

    The rank over |R| is the p-value; 0 bits where the feature is last, log2 |R| where it is first (22.1 among 4,457,400
    glyphs). Carlini et al. 2019, "The Secret Sharer: Evaluating and Testing Unintended Memorization in Neural
    Networks", section 4, the definition of exposure.
    """
    return -math.log2(p_value)
