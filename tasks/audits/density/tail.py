"""How many observations are memorised beyond chance, from their p-values; and how much memory of one would be found.

Where nothing is memorised by more than is negligible, each p-value is at most t in a share t of cases or fewer
(tasks.audits.density.reassignment). **With folds the p-values of observations that are not memorised are independent**,
but for folds being of equal sizes: given what the models answer, chance is in an observation's own folds alone.
Benjamini & Hochberg's procedure then keeps its rate of false discoveries, and of n p-values no more than a binomial
number is at most t. Rows that are left out one by one share the models of all data, and their p-values rise and fall
together: there Benjamini & Yekutieli's procedure stands, whatever the dependence, and nothing is counted together.

p-values that are from draws depend on these, too, which observations share: where few are drawn all p-values of
observations on which models differ alike are too small, or too large, at once. With `LEAST_DRAWS` the number of those
at most 5 % of 1,024 observations has a standard deviation 1.05 times that of a binomial number at worst (the draws'
share at most 5 % has one of sqrt(0.05 * 0.95 / draws)); with fewer nothing is counted together. Where all assignments
are looked at nothing is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.contract.summaries import Estimate
from tasks.numerics.ranks import false_discovery_control

Array = NDArray[np.float64]

LEVEL = 0.05  # of false discoveries, and of the p-values that are counted together
LEAST_DRAWS = 9_999  # of a p-value, for p-values to be counted together


@dataclass(frozen=True)
class Beyond:
    """The share of observations that are memorised beyond chance, and the p-value that none is; None without any."""

    share: Estimate
    p_value: float | None


def adjust_p_values(p_values: Array, dependent: bool) -> Array:
    """p-values adjusted for false discoveries, (n,); by Benjamini & Yekutieli where they are `dependent`."""
    return false_discovery_control(p_values, dependent)


def alone(n: int, dependent: bool) -> float:
    """The largest p-value with which one observation of n is called, no other being near."""
    return LEVEL / (n * float(np.sum(1 / np.arange(1, n + 1))) if dependent else n)


def counted_at(smallest: float) -> float:
    """The p-value up to which observations are counted together: 5 %, or the smallest there can be."""
    return max(LEVEL, smallest)


def beyond_chance(p_values: Array, at: float, confidence: float = 0.95) -> Beyond:
    """How many p-values are at most `at` beyond those that chance brings there, as a share of all that there are.

    With n p-values, of which c are at most `at`, (c / n - at) / (1 - at), and 0 at least. Of m observations that are
    not memorised a binomial number (m, 1 - `at`) or more have a larger one: the lower limit is n less the largest m for
    which n - c larger ones are no fewer than so many with a probability above 1 - `confidence`. There is no upper limit
    but 1: memory that is weak leaves p-values anywhere. The p-value is of c or more by chance.
    """
    from scipy import stats

    known = p_values[~np.isnan(p_values)]
    n = len(known)
    if not n:
        return Beyond(Estimate(None, None, None, 0), None)
    count = int((known <= at).sum())
    low, high = n - count, n + 1  # of observations that are not memorised: possible, and not
    while high - low > 1:
        middle = (low + high) // 2
        possible = stats.binom.cdf(n - count, middle, 1 - at) > 1 - confidence
        low, high = (middle, high) if possible else (low, middle)
    share = max(0.0, (count / n - at) / (1 - at)) if at < 1 else 0.0
    return Beyond(Estimate(share, min((n - low) / n, share), 1.0, n), float(stats.binom.sf(count - 1, n, at)))


def found_in(least: Array, share: float, confidence: float = 0.95) -> Estimate:
    """The memory that is found in this share of the observations asked, in nats, with the interval of the quantile.

    `least` is what each of them would have to have to be called alone, inf where nothing is enough, NaN where it was
    not asked. The value is the smallest that is enough for `share` of them, and the interval is between order
    statistics; an end that is inf, and a value that is, are None.
    """
    from scipy import stats

    known = np.sort(least[~np.isnan(least)])
    n = len(known)
    if not n:
        return Estimate(None, None, None, 0)
    places = stats.binom.ppf(((1 - confidence) / 2, (1 + confidence) / 2), n, share)
    ends = (int(np.ceil(share * n)) - 1, max(int(places[0]) - 1, 0), int(places[1]))
    value, low, high = (float(known[end]) if end < n and np.isfinite(known[end]) else None for end in ends)
    return Estimate(value, low, high, n)
