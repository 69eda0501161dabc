"""Means, proportions, correlations and tests.

Each function documents what it returns if there are too few data. Values that are not finite raise an error, so that a
failed computation does not disappear in a mean.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence, Sized
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tasks.contract.summaries import Estimate

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Comparison:
    """Test of whether one mean is greater than another: the statistic and its one-tailed p-value.

    Both are None for fewer than two values. Without variance, the statistic is its limit: p is 0 if the difference is
    positive, and 1 if it is zero or negative.
    """

    statistic: float | None
    p_value: float | None


@dataclass(frozen=True)
class Correlation:
    """A correlation with its interval over pairs, and the two-tailed p-value. None if undefined."""

    estimate: Estimate
    p_value: float | None


def mean(values: ArrayLike, confidence: float = 0.95) -> Estimate:
    """Return the mean and its t interval: mean +- t(n - 1) s / sqrt(n). No interval for n = 1, no value for n = 0."""
    sample = _finite(values)
    n = len(sample)
    if n < 2:
        return Estimate(float(sample[0]) if n else None, None, None, n)
    centre = float(sample.mean())
    half = float(t_quantile((1 + confidence) / 2, n - 1) * _standard_error(sample))
    return Estimate(centre, centre - half, centre + half, n)


def jackknife(value: float, without: Sequence[float], confidence: float = 0.95) -> Estimate:
    """Return a statistic of n units and its jackknife interval, from the values without each unit in turn.

        value +- t(n - 1) sqrt((n - 1) / n sum over units of (without the unit - mean of these)^2)

    The value is not corrected for bias. It is None if it is NaN. There is no interval for n = 1, or if one of the
    values is not finite. Tukey 1958; Efron & Stein 1981: on average, the variance is at least that of n - 1 units.
    """
    n = len(without)
    if np.isnan(value):
        return Estimate(None, None, None, n)
    values = np.asarray(without, dtype=np.float64)
    if n < 2 or not np.isfinite([value, *values]).all():
        return Estimate(value, None, None, n)
    error = np.sqrt((n - 1) / n * np.sum((values - values.mean()) ** 2))
    half = float(t_quantile((1 + confidence) / 2, n - 1) * error)
    return Estimate(value, value - half, value + half, n)


def proportion(successes: int, n: int, confidence: float = 0.95) -> Estimate:
    """Return successes / n with the Wilson score interval. No value for n = 0.

    Wilson 1927. Unlike the normal interval, it keeps its coverage near 0 and 1 and never leaves [0, 1].
    """
    _counts(successes, n)
    if n == 0:
        return Estimate(None, None, None, 0)
    return Estimate(successes / n, *_wilson_of_counts(successes, n, confidence), n)


def clustered_proportion(rates: ArrayLike, per_cluster: int, confidence: float = 0.95) -> Estimate:
    """Return the mean of cluster rates, with `per_cluster` answers each, and its Wilson interval. n counts clusters.

    Answers in the same cluster are not independent. The interval is that of an effective number of independent answers
    whose mean has the same variance as the mean over clusters, p (1 - p) / (s^2 / n). This number is at most the number
    of all answers and at least one per cluster; it is one per cluster if the rates are equal. Korn & Graubard 1998,
    "Confidence intervals for proportions with small expected number of positive counts estimated from survey data",
    section 2.
    """
    sample = _finite(rates)
    n = len(sample)
    if n == 0:
        return Estimate(None, None, None, 0)
    rate = float(sample.mean())
    variance = float(sample.var(ddof=1)) / n if n > 1 else 0.0
    effective = rate * (1 - rate) / variance if variance > 0 else float(n)
    low, high = _wilson(rate, min(max(effective, float(n)), float(n * per_cluster)), confidence)
    return Estimate(rate, low, high, n)


def crossed_mean(first: ArrayLike, second: ArrayLike, confidence: float = 0.95) -> Estimate:
    """Return the mean over two crossed samples, such as models and documents, and its interval.

    n counts the first sample. `first` contains, for each member of the first sample, the mean over the second sample,
    and `second` the reverse, so both have the same mean. The interval is Student's, with the sum of the variances of
    both means, which is at least the variance of a mean over random rows and columns. Owen 2007, "The pigeonhole
    bootstrap", theorem 4, for two factors.
    """
    first_values = _finite(first)
    second_values = _finite(second)
    if not len(first_values) or not len(second_values):
        return Estimate(None, None, None, len(first_values))
    value = float(first_values.mean())
    freedom = min(len(first_values), len(second_values)) - 1
    if not freedom:
        return Estimate(value, None, None, len(first_values))
    error = float(np.hypot(_standard_error(first_values), _standard_error(second_values)))
    reach = t_quantile(0.5 + confidence / 2, freedom) * error
    return Estimate(value, value - reach, value + reach, len(first_values))


def crossed_proportion(first: ArrayLike, second: ArrayLike, confidence: float = 0.95) -> Estimate:
    """Return a proportion over two crossed samples, with the wider of the intervals over either sample's clusters."""
    first_values = _finite(first)
    second_values = _finite(second)
    estimates = [
        clustered_proportion(first_values, len(second_values), confidence),
        clustered_proportion(second_values, len(first_values), confidence),
    ]
    lows = [estimate.low for estimate in estimates if estimate.low is not None]
    highs = [estimate.high for estimate in estimates if estimate.high is not None]
    if len(lows) < len(estimates):
        return Estimate(None, None, None, len(first_values))
    return Estimate(estimates[0].value, min(lows), max(highs), len(first_values))


def within_shares(estimate: Estimate) -> Estimate:
    """Return the estimate of a proportion with its interval clipped to [0, 1]."""
    if estimate.low is None:
        low = None
    else:
        low = min(max(estimate.low, 0.0), 1.0)
    if estimate.high is None:
        high = None
    else:
        high = min(max(estimate.high, 0.0), 1.0)
    return Estimate(estimate.value, low, high, estimate.n)


def difference_of_shares(first: Estimate, second: Estimate) -> Estimate:
    """Return the difference of two proportions, with an interval computed from their intervals.

    The interval has a width even without variance. Newcombe 1998, "Interval estimation for the difference between
    independent proportions", method 10.
    """
    if first.value is None or second.value is None:
        return Estimate(None, None, None, first.n)
    (down, up), (other_down, other_up), value = _reach(first), _reach(second), first.value - second.value
    return Estimate(value, value - float(np.hypot(down, other_up)), value + float(np.hypot(up, other_down)), first.n)


def proportion_greater(successes: int, n: int, than: float) -> float | None:
    """Return the one-tailed exact binomial p-value, P[X >= successes] for X ~ Binomial(n, than). None for n = 0."""
    _counts(successes, n)
    if n == 0:
        return None
    return _binomial_greater(successes, n, than)


def proportion_at_least(successes: int, n: int, confidence: float = 0.95) -> float:
    """Return the exact one-tailed lower limit of a probability, given successes / n. It is 0 without a success.

    Clopper & Pearson 1934.
    """
    _counts(successes, n)
    if not successes:
        return 0.0
    from scipy.special import betaincinv

    return float(betaincinv(successes, n - successes + 1, 1 - confidence))


def exact_interval(successes: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the exact interval of a probability, given successes / n. It has at least its nominal coverage.

    Clopper & Pearson 1934.
    """
    one_sided = (1 + confidence) / 2
    return proportion_at_least(successes, n, one_sided), 1 - proportion_at_least(n - successes, n, one_sided)


def exact_proportion(successes: int, n: int, confidence: float = 0.95) -> Estimate:
    """Return successes / n and its exact interval. There is no estimate if n is 0."""
    _counts(successes, n)
    if n == 0:
        return Estimate(None, None, None, 0)
    low, high = exact_interval(successes, n, confidence)
    return Estimate(successes / n, low, high, n)


def mcnemar_greater(first: Sequence[bool], second: Sequence[bool]) -> float | None:
    """Return the one-tailed exact McNemar p-value for `first` being true more often than `second`, pair by pair.

    Pairs that agree carry no information. Under the null hypothesis, both orders of the other pairs are equally likely.
    None without pairs, 1 if all pairs agree. McNemar 1947, in its exact binomial form.
    """
    _check_pairs(first, second)
    if not first:
        return None
    only_first = sum(a and not b for a, b in zip(first, second, strict=True))
    only_second = sum(b and not a for a, b in zip(first, second, strict=True))
    p_value = proportion_greater(only_first, only_first + only_second, 0.5)
    return 1.0 if p_value is None else p_value


def paired_difference(first: Sequence[bool], second: Sequence[bool], confidence: float = 0.95) -> Estimate:
    """Return the proportion of pairs with a true `first` minus that with a true `second`, and its interval.

    n counts pairs. The interval is from value - sqrt(a^2 - 2 phi a d + d^2) to value + sqrt(b^2 - 2 phi b c + c^2),
    where a and b are the lower and upper widths of the first proportion's Wilson interval, c and d those of the
    second's, and phi is the correlation of the two, reduced by n / 2 if it is positive. No value without pairs.
    Newcombe 1998, "Improved confidence intervals for the difference between binomial proportions based on paired data",
    method 10. Unlike a resampling interval, it keeps its coverage if few pairs differ, and has a width if none do.
    """
    _check_pairs(first, second)
    n = len(first)
    if n == 0:
        return Estimate(None, None, None, 0)
    both_true = sum(bool(first_value and second_value) for first_value, second_value in zip(first, second, strict=True))
    first_true = sum(map(bool, first))
    second_true = sum(map(bool, second))
    down, up = _reach(proportion(first_true, n, confidence))
    other_down, other_up = _reach(proportion(second_true, n, confidence))
    margins = float(first_true * (n - first_true) * second_true * (n - second_true))
    agreement = both_true * (n - first_true - second_true + both_true) - (first_true - both_true) * (
        second_true - both_true
    )
    if margins == 0:
        phi = 0.0
    else:
        phi = (agreement if agreement < 0 else max(agreement - n / 2, 0)) / float(np.sqrt(margins))
    value = (first_true - second_true) / n
    below = np.sqrt(down**2 - 2 * phi * down * other_up + other_up**2)
    above = np.sqrt(up**2 - 2 * phi * up * other_down + other_down**2)
    return Estimate(value, float(value - below), float(value + above), n)


def proportion_difference(first: int, of_first: int, second: int, of_second: int, confidence: float = 0.95) -> Estimate:
    """Return first / of_first - second / of_second for independent samples, and its interval. n counts both samples.

    Uses `difference_of_shares` with Wilson intervals. No value if a sample is empty.
    """
    first_share = proportion(first, of_first, confidence)
    second_share = proportion(second, of_second, confidence)
    if first_share.value is None or second_share.value is None:
        return Estimate(None, None, None, of_first + of_second)
    (down, up), (other_down, other_up) = _reach(first_share), _reach(second_share)
    value = first_share.value - second_share.value
    low, high = value - math.hypot(down, other_up), value + math.hypot(up, other_down)
    return Estimate(value, low, high, of_first + of_second)


def paired_greater(first: ArrayLike, second: ArrayLike) -> Comparison:
    """Run a one-tailed paired t-test of mean(first) > mean(second), with t(n - 1) for the mean difference."""
    a, b = _finite(first), _finite(second)
    _check_pairs(a, b)
    if len(a) < 2:
        return Comparison(None, None)
    differences = a - b
    return _t_test(float(differences.mean()), _standard_error(differences), len(a) - 1)


def welch_greater(first: ArrayLike, second: ArrayLike) -> Comparison:
    """Run a one-tailed Welch t-test of mean(first) > mean(second), for two independent samples with unequal variances.

    Degrees of freedom after Welch 1947: (v1 + v2)^2 / (v1^2 / (n1 - 1) + v2^2 / (n2 - 1)), v = s^2 / n.
    """
    a, b = _finite(first), _finite(second)
    if len(a) < 2 or len(b) < 2:
        return Comparison(None, None)
    return _t_test(float(a.mean() - b.mean()), *_welch(a, b))


def welch_two_sided(first: ArrayLike, second: ArrayLike) -> Comparison:
    """Run a two-tailed Welch t-test. Returns the statistic and its p-value."""
    statistic, greater = dataclasses.astuple(welch_greater(first, second))
    if greater is None:
        return Comparison(None, None)
    return Comparison(statistic, 1.0 if statistic == 0.0 else min(1.0, 2 * min(greater, 1 - greater)))


def difference(first: ArrayLike, second: ArrayLike, confidence: float = 0.95) -> Estimate:
    """Return mean(first) - mean(second) of two independent samples, with Welch's t interval. n counts both samples.

    There is no value if a sample is empty, and no interval if a sample has a single value.
    """
    a, b = _finite(first), _finite(second)
    n = len(a) + len(b)
    if not len(a) or not len(b):
        return Estimate(None, None, None, n)
    centre = float(a.mean() - b.mean())
    if len(a) < 2 or len(b) < 2:
        return Estimate(centre, None, None, n)
    error, freedom = _welch(a, b)
    half = float(t_quantile((1 + confidence) / 2, freedom) * error)
    return Estimate(centre, centre - half, centre + half, n)


def correlation(first: ArrayLike, second: ArrayLike, confidence: float = 0.95) -> Correlation:
    """Return Pearson's r of pairs, with Fisher's interval tanh(artanh r +- z / sqrt(n - 3)) and the t-test of r = 0.

    There are no values for fewer than four pairs, or without variance. Fisher 1921.
    """
    a, b = _finite(first), _finite(second)
    _check_pairs(a, b)
    n = len(a)
    if n < 4 or a.min() == a.max() or b.min() == b.max():
        return Correlation(Estimate(None, None, None, n), None)
    from scipy import stats

    pearson = stats.pearsonr(a, b)
    interval = pearson.confidence_interval(confidence)
    estimate = Estimate(float(pearson.statistic), float(interval.low), float(interval.high), n)
    return Correlation(estimate, float(pearson.pvalue))


def rank_correlation(first: ArrayLike, second: ArrayLike, confidence: float = 0.95) -> Correlation:
    """Return Spearman's rho of pairs, with ties at their mean rank, an interval and the t-test of rho = 0.

    tanh(artanh rho +- z sqrt((1 + rho^2 / 2) / (n - 3))), since ranks vary more than Fisher's interval allows. There
    are no values for fewer than four pairs, or without variance. Bonett & Wright 2000, "Sample size requirements for
    estimating Pearson, Kendall and Spearman correlations".
    """
    from scipy import stats

    of_ranks = correlation(stats.rankdata(_finite(first)), stats.rankdata(_finite(second)), confidence)
    value = of_ranks.estimate.value
    n = of_ranks.estimate.n
    if value is None:
        return of_ranks
    half = stats.norm.ppf((1 + confidence) / 2) * np.sqrt((1 + value**2 / 2) / (n - 3))
    with np.errstate(divide="ignore"):
        centre = np.arctanh(value)
    estimate = Estimate(value, float(np.tanh(centre - half)), float(np.tanh(centre + half)), n)
    return Correlation(estimate, of_ranks.p_value)


def _finite(values: ArrayLike) -> Array:
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1:
        raise ValueError(f"values must be one list of numbers; these have {sample.ndim} dimensions")
    invalid_count = int(np.count_nonzero(~np.isfinite(sample)))
    if invalid_count:
        raise ValueError(f"{invalid_count} of {len(sample)} values are not finite numbers")
    return sample


def t_quantile(probability: float, freedom: float) -> float:
    """Return a quantile of Student's t. `scipy.stats.t.ppf` returns the same number in thirty times the time."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, probability))


def t_tail(statistic: float, freedom: float) -> float:
    """Return P[T > statistic] of Student's t, the same number as `scipy.stats.t.sf`."""
    from scipy.special import stdtr

    return float(stdtr(freedom, -statistic))


# Cached, since scipy takes nearly a millisecond and an audit needs the same few intervals repeatedly.
@lru_cache(maxsize=4096)
def _wilson_of_counts(successes: int, n: int, confidence: float) -> tuple[float, float]:
    from scipy import stats

    interval = stats.binomtest(successes, n).proportion_ci(confidence, method="wilson")
    return float(interval.low), float(interval.high)


@lru_cache(maxsize=4096)
def _binomial_greater(successes: int, n: int, than: float) -> float:
    from scipy import stats

    return float(stats.binomtest(successes, n, than, alternative="greater").pvalue)


def _reach(estimate: Estimate) -> tuple[float, float]:
    """Return the widths of an interval below and above its value."""
    values = (estimate.value, estimate.low, estimate.high)
    value, low, high = (float("nan") if number is None else number for number in values)
    return value - low, high - value


def _wilson(rate: float, n: float, confidence: float) -> tuple[float, float]:
    """Return Wilson's interval for a rate over n independent answers. n may be fractional."""
    from scipy.special import ndtri

    z = float(ndtri((1 + confidence) / 2))
    centre = (rate + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(rate * (1 - rate) / n + z**2 / (4 * n**2))
    return max(0.0, centre - half), min(1.0, centre + half)


def _check_pairs(first: Sized, second: Sized) -> None:
    if len(first) != len(second):
        raise ValueError(f"pairs need equal numbers of values; here are {len(first)} and {len(second)}")


def _counts(successes: int, n: int) -> None:
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n} cannot be")


def _standard_error(sample: Array) -> float:
    # For equal values, a computed variance is rounding noise, which a t statistic would amplify.
    if sample.min() == sample.max():
        return 0.0
    return float(sample.std(ddof=1) / np.sqrt(len(sample)))


def _welch(a: Array, b: Array) -> tuple[float, float]:
    """Return the standard error of a difference of means, and Welch's degrees of freedom."""
    va = _standard_error(a) ** 2
    vb = _standard_error(b) ** 2
    spread = va**2 / (len(a) - 1) + vb**2 / (len(b) - 1)
    return float(np.sqrt(va + vb)), (va + vb) ** 2 / spread if spread else 1.0


def _t_test(difference: float, error: float, freedom: float) -> Comparison:
    if error == 0.0:
        statistic = 0.0
        if difference:
            statistic = float(np.copysign(np.inf, difference))
        return Comparison(statistic, 0.0 if difference > 0 else 1.0)
    statistic = difference / error
    return Comparison(statistic, t_tail(statistic, freedom))
