"""How many observations are memorised beyond chance, from their p-values, and the detection limit for one of them.

Without memorisation beyond the negligible size, a p-value is at most t with a probability of at most t
(tasks.audits.density.reassignment). **With folds, p-values of observations that are not memorised are independent**,
except that folds have equal sizes: given the models' answers, the only randomness is in an observation's own folds.
Benjamini & Hochberg's procedure then controls the false discovery rate, and the number of p-values at most t is at most
binomial. Rows that are held out one by one share the models trained on all data, so their p-values are dependent. For
them Benjamini & Yekutieli's procedure is used, which holds under any dependence, and p-values are not counted together.

Drawn p-values also depend on the draws, which observations share. With few draws, the p-values of all observations on
which models differ similarly are too small, or too large, at once. With `LEAST_DRAWS` draws, the number of p-values at
most 5 % among 1,024 observations has a standard deviation of at most 1.05 times that of a binomial number (the share of
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

LEVEL = 0.05  # false discovery rate, and the bound of p-values that are counted together
LEAST_DRAWS = 9_999  # per p-value, to count p-values together


@dataclass(frozen=True)
class Beyond:
    """The share of observations memorised beyond chance, and the p-value of none being memorised.

    The p-value is None if there are no observations.
    """

    share: Estimate
    p_value: float | None


def adjust_p_values(p_values: Array, dependent: bool) -> Array:
    """Adjust p-values (n,) for false discoveries, using Benjamini & Yekutieli if they are `dependent`."""
    return false_discovery_control(p_values, dependent)


def alone(n: int, dependent: bool) -> float:
    """Return the largest p-value at which a single observation among n is identified."""
    return LEVEL / (n * float(np.sum(1 / np.arange(1, n + 1))) if dependent else n)


def counted_at(smallest: float) -> float:
    """Return the bound up to which p-values are counted together: 5 %, or the smallest possible p-value if larger."""
    return max(LEVEL, smallest)


def beyond_chance(p_values: Array, boundary: float, confidence: float = 0.95) -> Beyond:
    """Estimate the share of p-values at most `boundary` in excess of chance.

    For n p-values, c of them at most b = `boundary`: (c / n - b) / (1 - b), and at least 0. Of m observations that are
    not memorised, at least a binomial number (m, 1 - b) have a larger p-value. The lower limit is therefore n minus the
    largest m for which P[binomial <= n - c] > 1 - `confidence`. The upper limit is 1, because weak memorisation leaves
    p-values anywhere. The p-value is the probability of c or more by chance.
    """
    from scipy import stats

    defined = p_values[~np.isnan(p_values)]
    n = len(defined)
    if not n:
        return Beyond(Estimate(None, None, None, 0), None)
    count = int((defined <= boundary).sum())
    low, high = n - count, n + 1  # numbers of unmemorised observations: low is possible, high is not
    while high - low > 1:
        middle = (low + high) // 2
        possible = stats.binom.cdf(n - count, middle, 1 - boundary) > 1 - confidence
        low, high = (middle, high) if possible else (low, middle)
    share = 0.0
    if boundary < 1:
        share = max(0.0, (count / n - boundary) / (1 - boundary))
    return Beyond(Estimate(share, min((n - low) / n, share), 1.0, n), float(stats.binom.sf(count - 1, n, boundary)))


def found_in(rises: Array, share: float, confidence: float = 0.95) -> Estimate:
    """Return the memorisation, in nats, that is detected in this share of observations, with the quantile's interval.

    `rises` is the memorisation at which each observation would be identified: inf if none suffices, NaN if it was not
    computed. The value is the smallest that suffices for `share` of them. The interval is between order statistics.
    Infinite values and interval ends are None.
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
