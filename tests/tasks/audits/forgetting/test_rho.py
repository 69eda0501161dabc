"""The Kolmogorov-Smirnov distance, rho with its interval, and a target beside the query and the calibration models."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import special, stats

from tasks.audits.forgetting.confidence_matrix import Array, confidence_matrix
from tasks.audits.forgetting.rho import (
    SCORES,
    Comparison,
    MeanDistance,
    Ratio,
    Score,
    Term,
    compare_target,
    distances,
    interval_half_width,
    ks,
    mean_estimate,
    pairwise_distances,
    quotient,
    ratio,
)
from tasks.audits.forgetting.trainings import ModelId
from tests.support.calibration import assert_rate
from tests.tasks.audits.forgetting import made_up
from tests.tasks.audits.forgetting.made_up import models


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", ["continuous", "tied", "saturated"])
def test_the_distance_is_that_of_the_two_sample_test(kind: str, seed: int) -> None:
    chance = np.random.default_rng(seed)
    first, second = chance.random(101), chance.random(67) ** 1.5
    if kind == "tied":
        first, second = first.round(1), second.round(1)
    if kind == "saturated":
        first[:60], second[:20] = 1.0, 1.0
    expected = {
        alternative: stats.ks_2samp(first, second, alternative, method="asymp").statistic
        for alternative in ("two-sided", "less", "greater")
    }
    assert expected["two-sided"] == pytest.approx(ks(first, second), abs=1e-15)
    assert expected["less"] == pytest.approx(ks(first, second, "one-sided"), abs=1e-15)
    assert expected["greater"] == pytest.approx(ks(second, first, "one-sided"), abs=1e-15)
    assert ks(first, second) == max(ks(first, second, "one-sided"), ks(second, first, "one-sided"))


def test_a_distance_by_hand_counts_ties_once_all_of_them_are_passed() -> None:
    # At 0.5 the shares at or below are 1/4 and 3/4; at 1 all of both.
    assert ks([0.2, 1, 1, 1], [0.2, 0.5, 0.5, 1]) == 0.5


def test_one_sided_only_what_lies_below_the_first_list_counts() -> None:
    low, high = [0.1, 0.2, 0.3, 0.9], [0.4, 0.5, 0.6, 0.8]
    assert ks(high, low, "one-sided") == 0.75  # at 0.3 the shares at or below are 0 and 3/4
    assert ks(low, high, "one-sided") == 0.25  # at 0.8 they are 3/4 and 1
    assert 0.75 == ks(high, low) == ks(low, high)
    assert (ks([0.1, 0.2], [0.3, 0.4], "one-sided"), ks([0.3, 0.4], [0.1, 0.2], "one-sided")) == (0.0, 1.0)


def test_equal_lists_lie_0_apart_in_any_order_and_disjoint_ones_1() -> None:
    values = np.random.default_rng(0).random(50)
    assert ks(values, values[::-1]) == 0.0
    assert 0.0 == ks(values, np.repeat(values, 3)) == ks(values, values, "one-sided")
    assert ks(values, values + 1) == 1.0


def test_each_function_at_its_own_sorted_values_would_give_0_always() -> None:
    chance = np.random.default_rng(0)
    first, second = chance.random(40), chance.random(40) / 10
    literal = [np.searchsorted(np.sort(item), np.sort(item), "right") for item in (first, second)]
    assert literal[0].tolist() == literal[1].tolist()
    assert ks(first, second) > 0.8


def test_lists_that_no_distance_is_known_of_are_refused() -> None:
    with pytest.raises(ValueError, match="a list of confidences is empty"):
        ks([], [1.0])
    with pytest.raises(ValueError, match="2 of 3 confidences are not numbers"):
        ks([0.5], [np.nan, 0.1, np.nan])


@pytest.mark.parametrize("score", SCORES)
def test_matrices_hold_the_distances_of_the_pairs_and_where_they_are_reached(score: Score) -> None:
    query, calibration, _ = models(np.random.default_rng(0), 3, 1, 60)
    result, index = distances(query, calibration, score)
    assert [[ks(q, c, score) for c in calibration] for q in query] == result.tolist()
    gap = np.mean(calibration[2] <= index[1, 2]) - np.mean(query[1] <= index[1, 2])
    assert result[1, 2] == pytest.approx(gap)
    # Half of the one lie below all of the other, at 1 and again at 3.
    half, lowest = distances(np.array([[1.0, 3.0]]), np.array([[2.0, 4.0]]), "published")
    assert (half.tolist(), lowest.tolist()) == ([[0.5]], [[1.0]])
    assert [[ks(q, p, score) for p in query] for q in query] == pairwise_distances(query, score).tolist()


def test_the_published_distances_among_models_are_the_larger_of_the_one_sided_ones_in_either_order() -> None:
    query, _, _ = models(np.random.default_rng(0), 4, 1, 60)
    below = pairwise_distances(query, "one-sided")
    assert np.maximum(below, below.T).tolist() == pairwise_distances(query, "published").tolist()
    assert np.diag(below).tolist() == [0.0] * 4
    assert (below != below.T).any()


NULLS = 500


def chance(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def simulated(
    replicates: int, targets: int, score: Score, share: float = 0.0, crossing: bool = False, runs: int = NULLS
) -> list[Ratio]:
    source = chance(1)
    worlds = (models(source, replicates, targets, 100, share, crossing) for _ in range(runs))
    return [ratio(*world, score) for world in worlds]


@pytest.mark.slow  # 3,000 intervals
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize(("replicates", "targets", "covered"), [(3, 3, 0.962), (5, 5, 0.956), (5, 1, 0.949)])
def test_the_interval_covers_1_where_the_target_is_trained_as_the_calibration_models_are(
    replicates: int, targets: int, covered: float, score: Score
) -> None:
    # Where calibration models are the less sure throughout, both scores are one. The interval is of 95 %; the rates are
    # of 2,000 simulations with another seed. It does not count that other images would give another KS.
    result = [item.rho for item in simulated(replicates, targets, score, crossing=score == "one-sided")]
    assert_rate(covered, sum(item.low <= 1 <= item.high for item in result), NULLS)


def test_a_target_surer_than_the_query_models_is_far_from_them_but_not_below_them() -> None:
    grid = np.linspace(0.4, 0.6, 50) + np.linspace(0, 0.01, 3)[:, None]  # (models, images)
    published, sided = (ratio(grid, grid - 0.3, grid + 0.3, score) for score in SCORES)
    assert (published.rho.value, published.target.value, published.calibration.value) == (1.0, 1.0, 1.0)
    assert (sided.rho.value, sided.target.value, sided.calibration.value) == (0.0, 0.0, 1.0)
    assert (0.0, pytest.approx(1 / 50)) == (sided.rho.low, sided.rho.high)  # up to one image


@pytest.mark.parametrize("score", SCORES)
def test_rho_is_the_quotient_of_the_mean_distances(score: Score) -> None:
    query, calibration, target = models(chance(), 2, 3, 50)
    result = ratio(query, calibration, target, score)
    a = np.mean([ks(q, t, score) for q in query for t in target])
    b = np.mean([ks(q, c, score) for q in query for c in calibration])
    values = (result.target.value, result.calibration.value, result.rho.value)
    assert (a, b, a / b) == pytest.approx(values)
    assert (result.target.n, result.calibration.n, result.rho.n) == (3, 2, 3)
    for item in (result.target, result.calibration, result.rho):
        assert 0 <= item.low < item.value < item.high
    assert 0 < result.target.low < result.target.high < 1


def test_the_interval_adds_the_variances_of_models_by_hand() -> None:
    # u = 0.9, 1.1; v = 0.8, 1.2; w = (1.1 - 1), (0.9 - 1).
    target = MeanDistance(np.array([[0.50, 0.60], [0.40, 0.50]]))
    calibration = MeanDistance(np.array([[0.20, 0.30], [0.20, 0.30]]))
    variances = [0.02 / 2, 0.08 / 2, 0.02 / 2]
    freedom = sum(variances) ** 2 / sum(variance**2 / item for variance, item in zip(variances, (1, 1, 1), strict=True))
    from scipy import stats

    reach = stats.t.ppf(0.975, freedom) * np.sqrt(sum(variances))
    result = quotient(target, calibration, 50)
    assert (2.0, max(0.0, 2 * (1 - reach)), 2 * (1 + reach)) == pytest.approx((result.value, result.low, result.high))


def test_an_interval_of_a_quotient_goes_as_far_down_as_up() -> None:
    stream = chance()
    target, calibration = (MeanDistance(0.3 + 0.01 * stream.random((4, 5))) for _ in range(2))
    result = quotient(target, calibration, 50)
    assert 0 < result.low < result.value
    assert result.value - result.low == pytest.approx(result.high - result.value)


def test_several_targets_vary_as_they_do_and_not_as_the_calibration_models_do() -> None:
    target = MeanDistance(np.array([[0.50, 0.60], [0.40, 0.50]]))
    calibration = MeanDistance(np.array([[0.20, 0.30], [0.20, 0.30]]))
    result = target.terms(calibration)
    assert result is not None  # by others 0.9, 1.1; by query models 1.1, 0.9
    assert pytest.approx([term.variance for term in result]) == [0.01, 0.01]
    three = MeanDistance(np.array([[0.1, 0.2, 0.3], [0.1, 0.2, 0.3]])).terms(calibration)
    assert three is not None  # by others 0.5, 1, 1.5, on two degrees of freedom; query models are alike
    assert pytest.approx([three[0].variance, three[1].variance, *(t.freedom for t in three)]) == [0.25 / 3, 0.0, 2, 1]
    assert None is mean_estimate(0.0, result, 2).low
    assert None is mean_estimate(1.0, result, 2).high
    # The delta method: the logit of 0.2 has 1 / (1 - 0.2) times the relative error, on two degrees of freedom.
    reach = stats.t.ppf(0.975, 2) * np.sqrt(0.02) / 0.8
    ends = special.expit(special.logit(0.2) + np.array([-reach, reach]))
    expected = mean_estimate(0.2, result, 2)
    assert [0.2, *ends, 2] == pytest.approx([expected.value, expected.low, expected.high, expected.n])


def test_one_given_model_is_taken_to_vary_as_the_calibration_models_do() -> None:
    alone = MeanDistance(np.array([[0.5], [0.5]]))
    calibration = MeanDistance(np.array([[0.20, 0.30], [0.20, 0.30]]))
    result = quotient(alone, calibration, 50)
    # Of v = 0.8, 1.2 the variance is 0.08: of one model, and half of it for the mean of two, on one degree of freedom.
    from scipy import stats

    assert result.high / result.value == pytest.approx(1 + stats.t.ppf(0.975, 1) * np.sqrt(0.08 + 0.04))
    assert result.low == 0.0  # where the interval would go on below


def test_the_degrees_of_freedom_are_satterthwaites() -> None:
    from scipy import stats

    assert interval_half_width((Term(1.0, 3), Term(1.0, 3))) == pytest.approx(stats.t.ppf(0.975, 6) * np.sqrt(2))
    assert interval_half_width((Term(0.0, 3), Term(0.0, 999))) == 0.0


@pytest.mark.filterwarnings("error")
def test_rho_is_undefined_where_the_calibration_models_are_0_away_or_missing() -> None:
    query, calibration, target = models(chance(), 1, 2, 30)
    same = np.repeat(query, 2, axis=0)
    result = ratio(same, same, target)
    assert (result.rho.value, result.rho.low, result.rho.high) == (None, None, None)
    assert (result.calibration.value, result.calibration.low) == (0.0, None)
    assert result.target.value > 0
    empty = ratio(same, calibration[:0], target)
    assert (empty.rho.value, empty.calibration.value, empty.calibration.n) == (None, None, 0)


@pytest.mark.filterwarnings("error")
def test_a_target_0_away_has_rho_0_and_an_interval_from_there() -> None:
    query, calibration, _ = models(chance(), 3, 1, 200)
    same = query[:1]
    result = ratio(np.repeat(same, 2, axis=0), calibration, same)
    assert (result.rho.value, result.rho.low) == (0.0, 0.0)
    assert 1 / 200 / result.calibration.value < result.rho.high < 0.1
    assert (result.target.value, result.target.low) == (0.0, None)


@pytest.mark.parametrize("lacking", ["query", "calibration"])
def test_there_is_no_interval_where_nothing_shows_how_things_vary(lacking: str) -> None:
    query, calibration, target = models(chance(), 3, 3, 50)
    result = ratio(query[: 1 if lacking == "query" else 3], calibration[: 1 if lacking == "calibration" else 3], target)
    assert result.target.value / result.calibration.value == result.rho.value
    assert (result.rho.low, result.rho.high) == (None, None)


def test_without_query_models_there_is_nothing_to_compare_with() -> None:
    query, calibration, target = models(chance(), 1, 1, 9)
    with pytest.raises(ValueError, match="there are 0 query and 1 target models; rho needs at least 1 of each"):
        ratio(query[:0], calibration, target)
    with pytest.raises(ValueError, match="there are 1 query and 0 target models"):
        ratio(query, calibration, target[:0])


QUERY, CALIBRATION, TARGET = made_up.models(np.random.default_rng(3), 3, 2, 40)


def asked(query: Array, calibration: Array, target: Array, score: str = "published") -> Comparison:
    present = confidence_matrix(made_up.tables(query, calibration, target))
    return compare_target(present, present.replicates("target", 0), score)  # type: ignore[arg-type]


def two_sample(first: Array, second: Array) -> float:
    return float(stats.ks_2samp(first, second).statistic)


def test_rho_and_the_floor_are_those_of_scipys_distances() -> None:
    result = asked(QUERY, CALIBRATION, TARGET)
    apart = [two_sample(q, c) for q in QUERY for c in CALIBRATION]
    among = [two_sample(*pair) for pair in itertools.combinations(QUERY, 2)]
    assert np.mean(among) == pytest.approx(result.floor)
    to_target = np.mean([two_sample(q, t) for q in QUERY for t in TARGET])
    assert to_target / np.mean(apart) == pytest.approx(result.ratio.rho.value)


def test_the_score_is_the_one_that_was_asked_for() -> None:
    published, one_sided = (asked(QUERY[:, ::-1], QUERY, TARGET, score) for score in ("published", "one-sided"))
    assert published.floor != one_sided.floor
    assert published.ratio.rho.value != one_sided.ratio.rho.value


def test_a_single_query_model_has_no_floor_and_without_calibration_models_there_is_no_rho() -> None:
    assert asked(QUERY[:1], CALIBRATION, TARGET).floor is None
    without = asked(QUERY, CALIBRATION[:0], TARGET)
    assert without.ratio.rho.value is None
    assert without.floor == asked(QUERY, CALIBRATION, TARGET).floor
    present = confidence_matrix(made_up.tables(QUERY[:0], CALIBRATION, TARGET))
    with pytest.raises(ValueError, match="there are 0 query"):
        compare_target(present, [ModelId("target", 0, 0)], "published")
