"""How many sums of one value from each of several lists are no greater than a bound, without looking at every one.

L lists of K values have K^L sums, 10^10 of ten by ten. All values here are above 0 or 0, so that of any value that is
too large by itself, with the smallest of the other lists, no sum counts. What is left is split into two halves of the
lists (meeting in the middle): every sum of either half is made, at most K^(L/2) of them, and to each of the one half
the number of the other's that fit beside it is found by bisection. That is exact, and takes K^(L/2) log K^(L/2) steps.

Horowitz & Sahni 1974, "Computing partitions with applications to the knapsack problem", section 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

MOST = 2**21  # sums of a half: 16 MiB, a fifth of a second to sort
BINS = 2**14


def share_below(values: Sequence[Array], bound: float, most: int = MOST) -> float:
    """The share of the sums of one of each list's values that are at most `bound`; the values are not negative.

    Exact, but for rounding of the sums (some L 2^-53 of the bound), as long as a half has at most `most` sums. Where it
    has more, it is `binned`: never below the exact share, and of a bound that is larger by at most L / BINS of
    what the bound leaves above the smallest sum. 1 where there are no lists.
    """
    # Above each list's smallest value: what is left of the bound is small where few sums are below it.
    smallest = [each.min() for each in values]
    slack = bound - math.fsum(smallest)
    if slack < 0:
        return 0.0
    # A list of equal values has no say.
    above = [each - least for each, least in zip(values, smallest, strict=True) if (each > least).any()]
    sizes = [len(each) for each in above]
    left = sorted((each[each <= slack] for each in above), key=len, reverse=True)
    halves: list[list[Array]] = [[], []]
    for each in left:  # the longest goes where there are fewer sums so far
        halves[math.prod(map(len, halves[0])) > math.prod(map(len, halves[1]))].append(each)
    first, second = (half_sums(half, slack, most) for half in halves)
    if first is None or second is None:
        return binned_share(left, sizes, slack)
    few, many = sorted((first, second), key=len)
    many.sort()
    below = int(np.searchsorted(many, np.sort(slack - few), side="right").sum())
    return below / math.prod(sizes)  # of whole numbers, so that the quotient is the nearest there is


def half_sums(lists: Sequence[Array], slack: float, most: int) -> Array | None:
    """The sums of one of each list's values that are at most `slack`, (sums,); None where they may be above `most`."""
    sums = np.zeros(1)
    for each in lists:
        if len(sums) * len(each) > most:
            return None
        sums = (sums[:, None] + each).reshape(-1)
        sums = sums[sums <= slack]
    return sums


def binned_share(lists: Sequence[Array], sizes: Sequence[int], slack: float, bins: int = BINS) -> float:
    """The share of sums that are at most `slack` where each value is first rounded down to a multiple of slack / bins.

    `lists` are what of each list's values is at most `slack`, and `sizes` how many values there were. Rounded sums
    are no greater than the sums, so that all of these that fit are counted: the share is no smaller than the exact one.
    A sum of L values loses less than L slack / bins, so that none is counted that is above slack (1 + L / bins). In L K
    `bins` steps, the distribution of the rounded sums list by list.
    """
    shares = np.zeros(bins + 1)
    shares[0] = 1.0
    for each, size in zip(lists, sizes, strict=True):  # in any order: every size divides once
        steps = np.floor(each * (bins / slack)).astype(np.int64) if slack > 0 else np.zeros(len(each), np.int64)
        moved = np.zeros(bins + 1)
        for step in np.minimum(steps, bins).tolist():
            moved[step:] += shares[: bins + 1 - step]
        shares = moved / size
    return float(shares.sum())
