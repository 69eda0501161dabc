"""The number of observations memorised beyond chance, from their p-values, and the detection limit of a single one.

Without memorisation beyond the negligible size, a p-value is at most t with a probability of at most t
(tasks.audits.density.reassignment). **With folds, p-values of observations that are not memorised are independent**
except for equal fold sizes: given the models' answers, the only chance is in an observation's own folds. Benjamini &
Hochberg's procedure then keeps its rate of false discoveries, and the number of p-values at most t is at most binomial.
Rows that are held out one by one share the models of all data, so their p-values are dependent: Benjamini & Yekutieli's
procedure applies for any dependence, and p-values are not counted together.

Drawn p-values also depend on the draws, which observations share: with few draws, all p-values of observations on which
models differ similarly are too small, or too large, at once. With `LEAST_DRAWS` draws, the number of p-values at most
5 % among 1,024 observations has a standard deviation of at most 1.05 times that of a binomial number (the share of
draws has one of sqrt(0.05 * 0.95 / draws)); with fewer draws p-values are not counted together. If all assignments are
enumerated, there are no draws.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.contract.summaries import Estimate
from tasks.numerics.ranks import false_discovery_control

Array = NDArray[np.float64]

LEVEL = 0.05  # rate of false discoveries, and the bound of p-values that are counted together
LEAST_DRAWS = 9_999  # for each p-value, if p-values are counted together


@dataclass(frozen=True)
class Beyond:
    """The share of observations memorised beyond chance, and the p-value of none; None without observations."""

    share: Estimate
    p_value: float | None


def adjust_p_values(p_values: Array, dependent: bool) -> Array:
    """Adjust p-values (n,) for false discoveries, by Benjamini & Yekutieli if they are `dependent`."""
    return false_discovery_control(p_values, dependent)


def alone(n: int, dependent: bool) -> float:
    """The largest p-value with which a single observation of n is identified."""
    return LEVEL / (n * float(np.sum(1 / np.arange(1, n + 1))) if dependent else n)


def counted_at(smallest: float) -> float:
    """The bound up to which p-values are counted together: 5 %, or the smallest possible p-value."""
    return max(LEVEL, smallest)


def beyond_chance(p_values: Array, boundary: float, confidence: float = 0.95) -> Beyond:
    """The share of p-values at most `boundary` in excess of chance.

    For n p-values, c of them at most b = `boundary`: (c / n - b) / (1 - b), and at least 0. Of m observations that are
    not memorised, at least a binomial number (m, 1 - b) have a larger p-value: the lower limit is n minus the largest m
    for which P[binomial <= n - c] > 1 - `confidence`. The upper limit is 1, because weak memorisation leaves p-values
    anywhere. The p-value is the probability of c or more by chance.
    """
    from scipy import stats

    defined = p_values[~np.isnan(p_values)]
    n = len(defined)
    if not n:
        return Beyond(Estimate(None, None, None, 0), None)
    count = int((defined <= boundary).sum())
    low, high = n - count, n + 1  # numbers of unmemorised observations: possible, impossible
    while high - low > 1:
        middle = (low + high) // 2
        possible = stats.binom.cdf(n - count, middle, 1 - boundary) > 1 - confidence
        low, high = (middle, high) if possible else (low, middle)
    share = 0.0
    if boundary < 1:
        share = max(0.0, (count / n - boundary) / (1 - boundary))
    return Beyond(Estimate(share, min((n - low) / n, share), 1.0, n), float(stats.binom.sf(count - 1, n, boundary)))


def found_in(rises: Array, share: float, confidence: float = 0.95) -> Estimate:
    """The memorisation that is detected in this share of observations, in nats, and the interval of the quantile.

    `rises` is the memorisation with which each observation would be identified, inf if none suffices, NaN if it was
    not computed. The value is the smallest that suffices for `share` of them, and the interval is between order
    statistics; infinite values and ends are None.
    """
    from scipy import stats

    ascending = np.sort(rises[~np.isnan(rises)])
    n = len(ascending)
    if not n:
        return Estimate(None, None, None, 0)
    places = stats.binom.ppf(((1 - confidence) / 2, (1 + confidence) / 2), n, share)
    ends = (int(np.ceil(share * n)) - 1, max(int(places[0]) - 1, 0), int(places[1]))
    value, low, high = (float(ascending[end]) if end < n and np.isfinite(ascending[end]) else None for end in ends)
    return Estimate(value, low, high, n)
