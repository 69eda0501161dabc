"""Evidence from the signs of independent comparisons that may be evaluated after every comparison.

Under the null hypothesis, a comparison is positive with a probability of at most 1/2, given the earlier ones. A bettor
who expects positives with probability p multiplies the evidence by 2 p at a positive and by 2 (1 - p) otherwise. With a
uniform prior on p in [1/2, 1], the evidence after k positives in m comparisons is

    e(k, m) = 2 * 2^m * integral of p^k (1 - p)^(m - k) for p from 1/2 to 1
            = sum of C(m + 1, j) for j from 0 to k / ((m + 1) C(m, k))

which is a martingale if the probability is 1/2, and a supermartingale if it is smaller. Ville 1939: the probability
that it ever reaches 1 / level is at most `level`. The same holds for the mean over several sequences, however they
depend on each other, if the null hypothesis holds for all of them.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tasks.numerics.betting import MOST

Array = NDArray[np.float64]
Counts = NDArray[np.int64]
Mask = NDArray[np.bool_]


def sign_evidence(positives: Counts, count: int) -> Array:
    """Return e(k, count) for each number of positives k, but at most MOST."""
    log_sums = np.logaddexp.accumulate(_log_binomials(count + 1)[:-1])
    log_values = log_sums - math.log(count + 1) - _log_binomials(count)
    values: Array = np.exp(np.minimum(log_values, math.log(MOST)))
    return values[positives]


def _log_binomials(count: int) -> Array:
    """Return log C(count, k) for k = 0 .. count."""
    log_factorials = np.array([math.lgamma(number + 1) for number in range(count + 1)])
    log_binomials: Array = log_factorials[count] - log_factorials - log_factorials[::-1]
    return log_binomials


def running_evidence(is_positive: Mask) -> Array:
    """Return the mean evidence over sequences after 1, 2, ... comparisons, (comparisons,).

    `is_positive` has the shape (comparisons, sequences).
    """
    positives = np.cumsum(is_positive, axis=0)
    means = [sign_evidence(counts, number).mean() for number, counts in enumerate(positives, 1)]
    return np.array(means)


def find_by_evidence(evidence: Array, level: float) -> Mask:
    """Return which null hypotheses are rejected at this false discovery rate, however their evidence depends.

    The k hypotheses with the largest evidence are rejected if the smallest of these is at least n / (k level), for the
    largest such k. Wang & Ramdas 2022, "False discovery rate control with e-values", definition 3.
    """
    order = np.sort(evidence)[::-1]
    is_enough = order * np.arange(1, len(order) + 1) * level >= len(order)
    if not is_enough.any():
        return np.zeros(len(evidence), dtype=bool)
    found: Mask = evidence >= order[np.flatnonzero(is_enough)[-1]]
    return found


def adjust_evidence(evidence: Array) -> float:
    """Return the smallest false discovery rate at which `find_by_evidence` rejects a hypothesis, at most 1."""
    order = np.sort(evidence)[::-1]
    return float(min(1.0, len(order) / (order * np.arange(1, len(order) + 1)).max()))
