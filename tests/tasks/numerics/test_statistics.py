import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
from scipy import stats

from tasks.contract.summaries import Estimate
from tasks.numerics.ranks import area_under_curve, exposure, false_discovery_control, rank_p_value
from tasks.numerics.statistics import (
    Comparison,
    Correlation,
    clustered_proportion,
    correlation,
    difference,
    exact_proportion,
    jackknife,
    mcnemar_greater,
    mean,
    paired_difference,
    paired_greater,
    proportion,
    proportion_at_least,
    proportion_greater,
    rank_correlation,
    welch_greater,
    welch_two_sided,
)
from tests.support.calibration import DRAWS, assert_rate, bounds


def test_mean_has_its_t_interval() -> None:
    # 1, 2, 3: s = 1, standard error 1 / sqrt(3), t(2) at 97.5 % is 4.30265.
    half = 4.302652729749464 / math.sqrt(3)
    estimate = mean([1, 2, 3])
    assert estimate.value == 2.0
    assert estimate.n == 3
    assert [2 - half, 2 + half] == pytest.approx([estimate.low, estimate.high])


def test_one_value_has_no_interval_none_no_mean() -> None:
    assert Estimate(5.0, None, None, 1) == mean([5])
    assert Estimate(None, None, None, 0) == mean([])


def test_equal_values_have_interval_of_zero_width() -> None:
    assert Estimate(0.25, 0.25, 0.25, 3) == mean([0.25, 0.25, 0.25])


@pytest.mark.parametrize("invalid", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("function", [mean, lambda x: paired_greater(x, [1, 2, 3]), lambda x: welch_greater([1, 2], x)])
def test_value_that_is_not_finite_is_refused(function: Callable[[Any], Any], invalid: float) -> None:
    with pytest.raises(ValueError, match="1 of 3 values are not finite numbers"):
        function([1.0, invalid, 2.0])


def test_proportion_has_its_wilson_interval() -> None:
    # Wilson by hand for 8 of 10: (p + z^2/2n +- z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n).
    z = 1.959963984540054
    p = 0.8
    n = 10
    centre = p + z * z / (2 * n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    estimate = proportion(8, 10)
    assert [estimate.value, estimate.low, estimate.high] == pytest.approx(
        [0.8, (centre - half) / scale, (centre + half) / scale]
    )


def test_jackknife_of_a_mean_is_its_t_interval() -> None:
    sample = [3.1, -2.0, 5.5, 0.25, 7.0]
    without = [float(np.mean(np.delete(sample, index))) for index in range(5)]
    expected = mean(sample)
    actual = jackknife(float(np.mean(sample)), without)
    assert [expected.value, expected.low, expected.high] == pytest.approx([actual.value, actual.low, actual.high])
    assert actual.n == 5
    # sqrt(1 / 2 (1 + 1)) is 1
    two = jackknife(2.0, [1.0, 3.0])
    half = stats.t.ppf(0.975, 1)
    assert [2 - half, 2 + half] == pytest.approx([two.low, two.high])


def test_jackknife_needs_two_finite_units() -> None:
    assert Estimate(2.0, None, None, 1) == jackknife(2.0, [3.0])
    assert Estimate(2.0, None, None, 2) == jackknife(2.0, [3.0, float("nan")])
    assert Estimate(float("inf"), None, None, 2) == jackknife(float("inf"), [3.0, 1.0])
    assert Estimate(None, None, None, 2) == jackknife(float("nan"), [3.0, 1.0])


def test_proportion_at_its_ends_has_an_interval() -> None:
    none = proportion(0, 12)
    all_successes = proportion(12, 12)
    assert 0.0 == none.low == none.value
    assert none.high == pytest.approx(0.2425, abs=1e-4)
    assert 1.0 == all_successes.high == all_successes.value
    assert Estimate(None, None, None, 0) == proportion(0, 0) == exact_proportion(0, 0)


def test_impossible_counts_are_refused() -> None:
    for refused in (
        proportion,
        exact_proportion,
        proportion_at_least,
        lambda count, n: proportion_greater(count, n, 0.5),
    ):
        with pytest.raises(ValueError, match="4 successes of 3 cannot be"):
            refused(4, 3)
        with pytest.raises(ValueError, match="-1 successes of 3 cannot be"):
            refused(-1, 3)


def test_proportion_is_tested_by_the_exact_binomial() -> None:
    # P[X >= 3] of 3 at 1/2, and P[X >= 1] of 2 at 0.05.
    assert proportion_greater(3, 3, 0.5) == 0.125
    assert proportion_greater(1, 2, 0.05) == pytest.approx(1 - 0.95**2)
    assert proportion_greater(0, 0, 0.05) is None


def test_mcnemar_counts_only_pairs_that_differ() -> None:
    first = [True, True, True, True, False, True]
    second = [False, False, False, True, False, True]
    assert mcnemar_greater(first, second) == 0.125
    assert mcnemar_greater(second, first) == 1.0
    assert mcnemar_greater([True, False], [True, False]) == 1.0
    assert mcnemar_greater([], []) is None


def pairs(in_both: int, only_first: int, only_second: int, neither: int) -> tuple[list[bool], list[bool]]:
    first = [True] * (in_both + only_first) + [False] * (only_second + neither)
    second = [True] * in_both + [False] * only_first + [True] * only_second + [False] * neither
    return first, second


def test_difference_of_paired_shares_by_hand() -> None:
    # Shares of 1 and 0 have no correlation, and Wilson's bounds z^2 / (n + z^2) from 1 and from 0.
    reach = stats.norm.ppf(0.975) ** 2 / (30 + stats.norm.ppf(0.975) ** 2)
    estimate = paired_difference(*pairs(0, 30, 0, 0))
    assert estimate.value == 1.0
    assert estimate.n == 30
    assert [estimate.low, estimate.high] == pytest.approx([1 - math.sqrt(2) * reach, 1])
    # 48 and 38 of 50: phi is (36 x 0 - 12 x 2) / sqrt(48 x 2 x 38 x 12).
    first = stats.binomtest(48, 50).proportion_ci(method="wilson")
    second = stats.binomtest(38, 50).proportion_ci(method="wilson")
    phi = -24 / math.sqrt(48 * 2 * 38 * 12)
    a = 0.96 - first.low
    b = first.high - 0.96
    c = 0.76 - second.low
    d = second.high - 0.76
    estimate = paired_difference(*pairs(36, 12, 2, 0))
    assert estimate.value == pytest.approx(0.2)
    assert estimate.low == pytest.approx(0.2 - math.sqrt(a * a - 2 * phi * a * d + d * d))
    assert estimate.high == pytest.approx(0.2 + math.sqrt(b * b - 2 * phi * b * c + c * c))


def test_correlation_of_pairs_is_corrected_towards_0() -> None:
    # 20 x 20 - 5 x 5 = 375, less 25 of n / 2, over 25 x 25.
    first = stats.binomtest(25, 50).proportion_ci(method="wilson")
    reach = 0.5 - first.low
    half = math.sqrt(2 * reach**2 - 2 * (350 / 625) * reach**2)
    assert paired_difference(*pairs(20, 5, 5, 20)) == Estimate(0.0, pytest.approx(-half), pytest.approx(half), 50)


def test_equal_pairs_have_interval_and_no_pairs_none() -> None:
    estimate = paired_difference(*pairs(0, 0, 0, 20))
    assert estimate.low is not None
    assert estimate.value == 0
    assert estimate.low < -0.1
    assert Estimate(None, None, None, 0) == paired_difference([], [])
    with pytest.raises(ValueError, match="pairs need equal numbers of values; here are 1 and 2"):
        paired_difference([True], [True, False])


@pytest.mark.parametrize("probabilities", [(0.1, 0.1, 0.1, 0.7), (0.5, 0.2, 0.05, 0.25), (0.02, 0.02, 0.02, 0.94)])
def test_interval_of_paired_difference_has_stated_coverage(
    probabilities: tuple[float, ...],
) -> None:
    stream = np.random.default_rng(0)
    truth = probabilities[1] - probabilities[2]
    covered = 0
    for counts in stream.multinomial(40, probabilities, 1000).tolist():
        estimate = paired_difference(*pairs(*counts))
        assert estimate.low is not None
        assert estimate.high is not None
        covered += estimate.low <= truth <= estimate.high
    assert covered >= 930  # of 950, less three standard errors


def test_paired_test_is_t_test_of_differences() -> None:
    # Differences 1, 2, 3: t = 2 sqrt(3), two degrees of freedom: p = (1 - t / sqrt(t^2 + 2)) / 2.
    t = 2 * math.sqrt(3)
    comparison = paired_greater([2, 4, 6], [1, 2, 3])
    assert comparison.statistic == pytest.approx(t)
    assert comparison.p_value == pytest.approx((1 - t / math.sqrt(t * t + 2)) / 2)


@pytest.mark.parametrize("shift", [-0.5, 0.0, 0.3])
def test_both_t_tests_agree_with_scipy(shift: float) -> None:
    rng = np.random.default_rng(4)
    a, b = rng.normal(shift, 1, 30), rng.normal(0, 3, 30)
    paired = paired_greater(a, b)
    welch = welch_greater(a, b)
    assert tuple(stats.ttest_rel(a, b, alternative="greater")) == pytest.approx((paired.statistic, paired.p_value))
    assert tuple(stats.ttest_ind(a, b, equal_var=False, alternative="greater")) == pytest.approx(
        (welch.statistic, welch.p_value)
    )


@pytest.mark.parametrize("test", [paired_greater, welch_greater])
def test_without_variance_takes_its_limit(test: Callable[[Any, Any], Comparison]) -> None:
    assert Comparison(math.inf, 0.0) == test([0.3, 0.3, 0.3], [0.1, 0.1, 0.1])
    assert Comparison(-math.inf, 1.0) == test([0.1, 0.1, 0.1], [0.3, 0.3, 0.3])
    assert Comparison(0.0, 1.0) == test([0.1, 0.1, 0.1], [0.1, 0.1, 0.1])


@pytest.mark.parametrize("test", [paired_greater, welch_greater])
def test_fewer_than_two_values_give_no_test(test: Callable[[Any, Any], Comparison]) -> None:
    assert Comparison(None, None) == test([1.0], [0.0])
    assert Comparison(None, None) == test([], [])
    assert test([1.0, 3.0], [0.0, 0.5]).p_value is not None


def test_samples_of_one_value_give_no_test() -> None:
    for sample, other_sample in (([1.0], [0.0, 2.0]), ([0.0, 2.0], [1.0])):
        assert Comparison(None, None) == welch_greater(sample, other_sample) == welch_two_sided(sample, other_sample)
        assert Estimate(0.0, None, None, 3) == difference(sample, other_sample)
    assert Estimate(None, None, None, 1) == difference([], [1.0]) == difference([1.0], [])


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.99])
def test_interval_width_follows_the_confidence(confidence: float) -> None:
    sample = [3.1, -2.0, 5.5, 0.25, 7.0]
    other_sample = [0.5, 1.5, -4.0]
    interval = stats.ttest_1samp(sample, 0).confidence_interval(confidence)
    without = [float(np.mean(np.delete(sample, index))) for index in range(5)]
    for actual in (mean(sample, confidence), jackknife(float(np.mean(sample)), without, confidence)):
        assert [interval.low, interval.high] == pytest.approx([actual.low, actual.high])
    interval = stats.ttest_ind(sample, other_sample, equal_var=False).confidence_interval(confidence)
    actual = difference(sample, other_sample, confidence)
    assert [interval.low, interval.high] == pytest.approx([actual.low, actual.high])
    z = stats.norm.ppf((1 + confidence) / 2)
    ranks = rank_correlation(range(5), [1, 3, 2, 5, 4], confidence)
    pearson = correlation(range(5), sample, confidence)
    half = z * math.sqrt(1.32 / 2)
    assert [math.tanh(math.atanh(0.8) - half), math.tanh(math.atanh(0.8) + half)] == pytest.approx(
        [ranks.estimate.low, ranks.estimate.high]
    )
    interval = stats.pearsonr(range(5), sample).confidence_interval(confidence)
    assert [interval.low, interval.high] == pytest.approx([pearson.estimate.low, pearson.estimate.high])
    interval = stats.binomtest(8, 10).proportion_ci(confidence, method="wilson")
    assert dataclasses.astuple(proportion(8, 10, confidence)) == (0.8, interval.low, interval.high, 10)
    for count in (0, 8, 10):
        interval = stats.binomtest(count, 10).proportion_ci(confidence, method="exact")
        exact = exact_proportion(count, 10, confidence)
        assert exact.value == count / 10
        assert exact.n == 10
        assert [interval.low, interval.high] == pytest.approx([exact.low, exact.high])
    # Uncorrelated shares: the widths of the shares' own intervals.
    paired = paired_difference(*pairs(0, 10, 0, 0), confidence)
    assert [paired.low, paired.high] == pytest.approx([1 - math.sqrt(2) * z**2 / (10 + z**2), 1])


def test_one_of_two_samples_may_be_constant() -> None:
    varied = [1.0, 2.0, 4.0]
    fixed = [3.0, 3.0]
    expected = stats.ttest_1samp(varied, 3.0)
    comparison = welch_two_sided(varied, fixed)
    assert [expected.statistic, expected.pvalue] == pytest.approx([comparison.statistic, comparison.p_value])
    assert Comparison(math.inf, 0.0) == welch_two_sided([3.0, 3.0], [1.0, 1.0])
    assert Comparison(-math.inf, 0.0) == welch_two_sided([1.0, 1.0], [3.0, 3.0])
    assert Estimate(2.0, 2.0, 2.0, 4) == difference([3.0, 3.0], [1.0, 1.0])


def test_pairs_of_unequal_length_are_refused() -> None:
    with pytest.raises(ValueError, match="here are 2 and 3"):
        paired_greater([1, 2], [1, 2, 3])


def test_rank_counts_scores_at_least_as_high() -> None:
    assert rank_p_value(np.array([2.0, 3.0, 1.0, 2.0])) == 3 / 4
    assert rank_p_value(np.array([4.0, 3.0, 1.0, 2.0])) == 1 / 4
    assert rank_p_value(np.array([0.0, 3.0, 1.0, 2.0])) == 1.0
    assert exposure(1 / 8) == 3.0
    assert exposure(1.0) == 0.0


def test_p_values_are_adjusted_by_benjamini_hochberg() -> None:
    # m = 4, rising: .01 * 4, .02 * 2, .03 * 4/3, .5; the running minimum from above makes the first two .04.
    assert false_discovery_control([0.5, 0.01, 0.03, 0.02]).tolist() == pytest.approx([0.5, 0.04, 0.04, 0.04])
    assert false_discovery_control([0.9, 0.8]).tolist() == pytest.approx([0.9, 0.9])
    assert false_discovery_control([]).tolist() == []


@pytest.mark.parametrize(("dependent", "method"), [(False, "bh"), (True, "by")])
def test_adjusted_p_values_equal_scipys(dependent: bool, method: Literal["bh", "by"]) -> None:
    p_values = np.random.default_rng(7).uniform(size=40).round(1)  # with ties, and with 1 after the adjustment
    expected = stats.false_discovery_control(p_values, method=method)
    assert false_discovery_control(p_values, dependent).tolist() == expected.tolist()


def test_missing_tests_do_not_count() -> None:
    adjusted = false_discovery_control([0.02, math.nan, 0.5])
    assert math.isnan(adjusted[1])
    assert adjusted[[0, 2]].tolist() == pytest.approx([0.04, 0.5])
    assert np.isnan(false_discovery_control([math.nan])).all()


def test_p_value_outside_0_to_1_is_refused() -> None:
    with pytest.raises(ValueError, match="p-values must lie between 0 and 1"):
        false_discovery_control([0.5, 1.5])
    with pytest.raises(ValueError, match="p-values must lie between 0 and 1"):
        false_discovery_control([-0.5, math.nan, 0.5])
    assert false_discovery_control([0.0, 1.0]).tolist() == [0.0, 1.0]


def test_two_dimensional_values_are_refused() -> None:
    with pytest.raises(ValueError, match="values must be one list of numbers; these have 2 dimensions"):
        mean([[1.0, 2.0]])


def test_dependent_p_values_are_scaled_by_harmonic_number() -> None:
    # The case above, times 1 + 1/2 + 1/3 + 1/4, and at most 1.
    adjusted = false_discovery_control([0.5, 0.01, 0.03, 0.02, math.nan], dependent=True)
    assert pytest.approx(adjusted[:4].tolist()) == [1.0, 1 / 12, 1 / 12, 1 / 12]


def test_correlation_has_fishers_interval_and_t_test() -> None:
    # Deviations -2 -1 0 1 2 and -2 0 -1 2 1: r = 8 / 10, artanh .8 = log(9) / 2, standard error 1 / sqrt(2).
    actual = correlation([1, 2, 3, 4, 5], [10, 30, 20, 50, 40])
    half = 1.959963984540054 / math.sqrt(2)
    expected = [math.tanh(math.log(9) / 2 - half), math.tanh(math.log(9) / 2 + half)]
    assert pytest.approx(actual.estimate.value) == 0.8
    assert actual.estimate.n == 5
    assert expected == pytest.approx([actual.estimate.low, actual.estimate.high])
    # t = r sqrt(3 / (1 - r^2)) = 2.3094 with 3 degrees of freedom, two-tailed.
    assert 2 * stats.t.sf(0.8 * math.sqrt(3 / 0.36), 3) == pytest.approx(actual.p_value)


def test_perfect_correlation_has_an_interval_of_no_width() -> None:
    actual = correlation([1, 2, 3, 4], [8, 6, 4, 2])
    assert pytest.approx([actual.estimate.value, actual.estimate.low, actual.estimate.high]) == [-1.0, -1.0, -1.0]
    assert actual.p_value == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("first", "second"), [([], []), ([1, 2, 3], [3, 1, 2]), ([0.1] * 5, [1, 2, 3, 4, 5]), ([1, 2, 3, 4], [7] * 4)]
)
def test_few_pairs_and_equal_values_have_no_correlation(first: list[float], second: list[float]) -> None:
    assert Correlation(Estimate(None, None, None, len(first)), None) == correlation(first, second)


def test_values_without_partners_have_no_correlation() -> None:
    with pytest.raises(ValueError, match="here are 4 and 5"):
        correlation([1, 2, 3, 4], [1, 2, 3, 4, 5])
    with pytest.raises(ValueError, match="1 of 4 values are not finite numbers"):
        correlation([1, 2, 3, 4], [1, 2, math.nan, 4])


def test_rank_correlation_is_spearmans_with_wider_interval() -> None:
    # Ranks 1 2 3 4 5 and 1 3 2 5 4: rho = 1 - 6 * 4 / (5 * 24) = .8; standard error sqrt((1 + .32) / 2).
    actual = rank_correlation([1, 10, 20, 30, 1000], [10, 30, 20, 500, 40])
    half = 1.959963984540054 * math.sqrt(1.32 / 2)
    expected = [math.tanh(math.log(9) / 2 - half), math.tanh(math.log(9) / 2 + half)]
    assert pytest.approx(actual.estimate.value) == 0.8
    assert actual.estimate.n == 5
    assert expected == pytest.approx([actual.estimate.low, actual.estimate.high])
    assert stats.spearmanr([1, 2, 3, 4, 5], [1, 3, 2, 5, 4]).pvalue == pytest.approx(actual.p_value)
    tied = rank_correlation([1, 1, 2, 3, 3], [2, 1, 2, 5, 4])
    assert stats.spearmanr([1, 1, 2, 3, 3], [2, 1, 2, 5, 4]).statistic == pytest.approx(tied.estimate.value)


def test_perfect_rank_correlation_has_interval_of_zero_width() -> None:
    actual = rank_correlation([1, 2, 3, 4], [1, 8, 9, 100])
    assert pytest.approx([actual.estimate.value, actual.estimate.low, actual.estimate.high]) == [1.0, 1.0, 1.0]
    assert Correlation(Estimate(None, None, None, 3), None) == rank_correlation([1, 2, 3], [3, 1, 2])
    with pytest.raises(ValueError, match="1 of 4 values are not finite numbers"):
        rank_correlation([1, 2, 3, 4], [1, 2, math.nan, 4])


def test_wrong_rates_are_detected() -> None:
    assert bounds(0.05) == (192, 312)
    for count in (0, 150, 400):
        with pytest.raises(AssertionError, match=r"is not 5\.000%"):
            assert_rate(0.05, count)
    assert_rate(0.05, 250)


def covers(estimate: Estimate, value: float) -> bool:
    return estimate.low is not None and estimate.high is not None and estimate.low <= value <= estimate.high


def is_called(p_value: float | None, level: float = 0.05) -> bool:
    return p_value is not None and p_value <= level


def test_interval_of_a_mean_has_stated_coverage() -> None:
    samples = np.random.default_rng(0).normal(0, 1, (DRAWS, 6))
    assert_rate(0.95, sum(covers(mean(sample), 0.0) for sample in samples))
    assert_rate(0.8, sum(covers(mean(sample, 0.8), 0.0) for sample in samples))


def test_jackknife_interval_of_mean_has_stated_coverage() -> None:
    samples = np.random.default_rng(6).normal(0, 1, (DRAWS, 6))
    without = (samples.sum(axis=1, keepdims=True) - samples) / 5
    intervals = []
    for sample, rest in zip(samples, without, strict=True):
        intervals.append(jackknife(float(sample.mean()), rest.tolist()))
    assert_rate(0.95, sum(covers(interval, 0.0) for interval in intervals))


def test_interval_and_tests_of_difference_have_stated_level() -> None:
    # Equal numbers and spreads, where Welch's degrees of freedom err by less than 0.1 % of 5 %.
    first, second = np.random.default_rng(2).normal(0, 1, (2, DRAWS, 12))
    pairs = list(zip(first, second, strict=True))
    assert_rate(0.05, sum(is_called(paired_greater(a, b).p_value) for a, b in pairs))
    assert_rate(0.05, sum(is_called(welch_greater(a, b).p_value) for a, b in pairs))
    assert_rate(0.05, sum(is_called(welch_two_sided(a, b).p_value) for a, b in pairs))
    assert_rate(0.95, sum(covers(difference(a, b), 0.0) for a, b in pairs))


def test_welchs_test_keeps_level_for_unequal_samples() -> None:
    # A test that took the spreads for equal would reject 16 % here.
    rng = np.random.default_rng(5)
    p_values = []
    for _ in range(DRAWS):
        p_values.append(welch_greater(rng.normal(0, 3, 6), rng.normal(0, 1, 24)).p_value)
    assert_rate(0.05, sum(map(is_called, p_values)))


def test_paired_test_keeps_level_for_correlated_pairs() -> None:
    rng = np.random.default_rng(7)
    shared = rng.normal(0, 5, (DRAWS, 8))
    first, second = shared + rng.normal(0, 1, (2, DRAWS, 8))
    assert_rate(0.05, sum(is_called(paired_greater(a, b).p_value) for a, b in zip(first, second, strict=True)))


@pytest.mark.parametrize(("n", "than"), [(12, 0.5), (12, 0.05), (40, 0.05)])
def test_exact_binomial_test_has_largest_attainable_level(n: int, than: float) -> None:
    null = stats.binom(n, than).pmf(np.arange(n + 1))
    p_values = [proportion_greater(count, n, than) for count in range(n + 1)]
    assert [null[count:].sum() for count in range(n + 1)] == pytest.approx(p_values)
    level = sum(null[count] for count in range(n + 1) if is_called(p_values[count]))
    attainable = np.cumsum(null[::-1])
    assert attainable[attainable <= 0.05].max() == pytest.approx(level)


def test_mcnemars_test_has_largest_attainable_level() -> None:
    # Of twelve pairs that differ: 10 or more one way, 79 of 4,096; of the pairs that agree none counts.
    for agree in (0, 7):
        rejected = 0.0
        for only_first in range(13):
            first = [True] * only_first + [False] * (12 - only_first) + [True] * agree
            second = [False] * only_first + [True] * (12 - only_first) + [True] * agree
            rejected += stats.binom.pmf(only_first, 12, 0.5) * is_called(mcnemar_greater(first, second))
        assert pytest.approx(rejected) == 79 / 4096


def test_wilsons_interval_has_its_known_coverage() -> None:
    # Exact, over all counts: no level of a discrete interval is 95 % throughout. Around it on average, and no less than
    # 83.8 % anywhere but at the very ends (Brown, Cai & DasGupta 2001).
    intervals = [proportion(count, 12) for count in range(13)]

    def coverage(p: float) -> float:
        return float(
            sum(stats.binom.pmf(count, 12, p) * covers(interval, p) for count, interval in enumerate(intervals))
        )

    rates = [coverage(p) for p in np.linspace(0.01, 0.99, 197)]
    assert pytest.approx(np.mean(rates), abs=0.005) == 0.95
    assert min(rates) > 0.838
    assert max(rates) < 0.997
    assert pytest.approx(coverage(0.25), abs=1e-4) == 0.9139


def test_fishers_interval_and_t_test_keep_their_levels() -> None:
    first, second = np.random.default_rng(4).normal(0, 1, (2, DRAWS, 12))
    correlations = [correlation(a, b) for a, b in zip(first, second, strict=True)]
    # Fisher's is an approximation: r beyond tanh(1.96 / 3) has 5.1 % by the exact t of 10 degrees of freedom.
    edge = math.tanh(stats.norm.ppf(0.975) / 3)
    outside = 2 * stats.t.sf(edge * math.sqrt(10 / (1 - edge**2)), 10)
    assert pytest.approx(outside, abs=1e-4) == 0.0510
    assert_rate(1 - outside, sum(covers(correlation_of_draw.estimate, 0.0) for correlation_of_draw in correlations))
    assert_rate(0.05, sum(is_called(correlation_of_draw.p_value) for correlation_of_draw in correlations))


def test_spearmans_interval_over_all_orders_of_seven() -> None:
    # Exact, over all 5,040 orders: rho is discrete, and both the interval and the t-test are approximations.
    orders = np.array(list(itertools.permutations(range(7))))
    squares = ((orders - np.arange(7)) ** 2).sum(axis=1)
    values, first, counts = np.unique(squares, return_index=True, return_counts=True)
    correlations = [rank_correlation(np.arange(7), orders[result]) for result in first]
    assert (1 - values / 56).tolist() == pytest.approx([result.estimate.value for result in correlations])
    share = counts / len(orders)
    covered = float(sum(part for part, result in zip(share, correlations, strict=True) if covers(result.estimate, 0.0)))
    rejected = float(sum(part for part, result in zip(share, correlations, strict=True) if is_called(result.p_value)))
    assert pytest.approx([covered, rejected], abs=1e-4) == [0.9659, 0.0480]


def test_false_discoveries_follow_the_level() -> None:
    rng = np.random.default_rng(3)
    # Of twenty nulls any at all in exactly 5 % (Simes); with fifteen nulls of twenty a share of 5 % of 15 / 20.
    adjusted = []
    for p_values in rng.uniform(size=(DRAWS, 20)):
        adjusted.append(false_discovery_control(p_values))
    assert_rate(0.05, sum(bool((p_values <= 0.05).any()) for p_values in adjusted))
    mixed = rng.uniform(size=(DRAWS, 20)) * np.where(np.arange(20) < 15, 1.0, 1e-3)
    is_called = np.array([false_discovery_control(p_values) <= 0.05 for p_values in mixed])
    shares = is_called[:, :15].sum(axis=1) / np.maximum(is_called.sum(axis=1), 1)
    assert pytest.approx(shares.mean(), abs=3.9 * shares.std() / math.sqrt(DRAWS)) == 0.05 * 15 / 20


def test_difference_of_means_has_welchs_interval_and_test() -> None:
    rng = np.random.default_rng(11)
    first, second = rng.normal(0.5, 1, 12), rng.normal(0, 3, 7)
    expected = stats.ttest_ind(first, second, equal_var=False)
    interval = expected.confidence_interval(0.95)
    actual = difference(first, second)
    assert [actual.value, actual.low, actual.high, actual.n] == pytest.approx(
        [first.mean() - second.mean(), interval.low, interval.high, 19]
    )
    compared = welch_two_sided(first, second)
    assert [expected.statistic, expected.pvalue] == pytest.approx([compared.statistic, compared.p_value])
    turned = welch_two_sided(second, first)
    assert [-expected.statistic, expected.pvalue] == pytest.approx([turned.statistic, turned.p_value])
    assert welch_two_sided([1.0, 2.0], [1.0, 2.0]).p_value == 1.0


def test_difference_of_too_few_values_is_incomplete() -> None:
    assert Estimate(None, None, None, 2) == difference([1.0, 2.0], [])
    assert Estimate(0.5, None, None, 3) == difference([1.0, 2.0], [1.0])
    assert Comparison(None, None) == welch_two_sided([1.0, 2.0], [1.0])


def test_interval_widens_for_dependent_answers_in_clusters() -> None:
    rates = [0.2, 0.3, 0.1, 0.2, 0.25, 0.15, 0.35, 0.05]
    actual = clustered_proportion(rates, 20)
    variance = np.var(rates, ddof=1) / 8
    equivalent = proportion(round(0.2 * 0.16 / variance), round(0.16 / variance))
    assert pytest.approx(actual.value) == 0.2
    assert actual.n == 8
    assert (equivalent.low, equivalent.high) == pytest.approx((actual.low, actual.high), abs=0.005)
    none = clustered_proportion([0.0] * 8, 20)
    one_each = proportion(0, 8)
    assert (one_each.low, one_each.high) == pytest.approx((none.low, none.high))
    assert Estimate(None, None, None, 0) == clustered_proportion([], 20)


@pytest.mark.parametrize(
    ("rates", "answers"),
    [
        ([0.25, 0.5], 0.375 * 0.625 / (0.03125 / 2)),  # the number of independent answers with this variance: 15 of 16
        ([0.25, 0.25, 0.25, 0.2499], 4 * 8),  # all answers
        ([0.0, 1.0, 1.0], 3),  # one per cluster, although the variance is larger
        ([0.25], 1),
        ([0.25] * 3, 3),
    ],
)
def test_clustered_answers_have_effective_number(rates: list[float], answers: float) -> None:
    rate = float(np.mean(rates))
    z = stats.norm.ppf(0.975)
    centre = rate + z**2 / (2 * answers)
    scale = 1 + z**2 / answers
    half = z * math.sqrt(rate * (1 - rate) / answers + (z / (2 * answers)) ** 2)
    actual = clustered_proportion(rates, 8)
    assert [rate, (centre - half) / scale, (centre + half) / scale] == pytest.approx(
        [actual.value, actual.low, actual.high]
    )


def test_interval_of_clustered_answers_has_stated_coverage() -> None:
    draws = np.random.default_rng(5)
    covered = 0
    for _ in range(400):
        shares = draws.beta(0.5, 9.5, 30)  # clusters differ strongly, with mean 0.05
        interval = clustered_proportion(draws.binomial(20, shares) / 20, 20)
        covered += interval.low <= 0.05 <= interval.high
    assert covered >= 0.9 * 400


def test_lower_limit_of_proportion_has_stated_confidence() -> None:
    assert proportion_at_least(0, 9) == 0.0
    assert pytest.approx(proportion_at_least(9, 9)) == 0.05 ** (1 / 9)
    low = proportion_at_least(3, 12, 0.9)
    assert pytest.approx(stats.binom.sf(2, 12, low)) == 0.1


def test_area_under_curve_counts_ties_half() -> None:
    assert area_under_curve(np.array([3.0, 1.0]), np.array([1.0, 0.0])) == (3 + 0.5) / 4
