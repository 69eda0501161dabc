"""The Kolmogorov-Smirnov distance, rho with its interval, and a target compared with query and calibration models."""

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
def test_distance_agrees_with_scipys_test(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    first, second = rng.random(101), rng.random(67) ** 1.5
    if kind == "tied":
        first, second = first.round(1), second.round(1)
    if kind == "saturated":
        first[:60], second[:20] = 1.0, 1.0
    expected = {}
    for alternative in ("two-sided", "less", "greater"):
        expected[alternative] = stats.ks_2samp(first, second, alternative, method="asymp").statistic
    assert expected["two-sided"] == pytest.approx(ks(first, second), abs=1e-15)
    assert expected["less"] == pytest.approx(ks(first, second, "one-sided"), abs=1e-15)
    assert expected["greater"] == pytest.approx(ks(second, first, "one-sided"), abs=1e-15)
    assert ks(first, second) == max(ks(first, second, "one-sided"), ks(second, first, "one-sided"))


def test_ties_count_after_all_equal_values() -> None:
    # At 0.5, the shares at or below are 1/4 and 3/4; at 1, both are 1.
    assert ks([0.2, 1, 1, 1], [0.2, 0.5, 0.5, 1]) == 0.5


def test_one_sided_distance_counts_lower_values_only() -> None:
    low, high = [0.1, 0.2, 0.3, 0.9], [0.4, 0.5, 0.6, 0.8]
    assert ks(high, low, "one-sided") == 0.75  # at 0.3 the shares at or below are 0 and 3/4
    assert ks(low, high, "one-sided") == 0.25  # at 0.8 they are 3/4 and 1
    assert 0.75 == ks(high, low) == ks(low, high)
    assert ks([0.1, 0.2], [0.3, 0.4], "one-sided") == 0.0
    assert ks([0.3, 0.4], [0.1, 0.2], "one-sided") == 1.0


def test_distance_of_equal_lists_is_0() -> None:
    values = np.random.default_rng(0).random(50)
    assert ks(values, values[::-1]) == 0.0
    assert 0.0 == ks(values, np.repeat(values, 3)) == ks(values, values, "one-sided")
    assert ks(values, values + 1) == 1.0


def test_sorting_separately_always_gives_0() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.random(40), rng.random(40) / 10
    literal = []
    for item in (first, second):
        literal.append(np.searchsorted(np.sort(item), np.sort(item), "right"))
    assert literal[0].tolist() == literal[1].tolist()
    assert ks(first, second) > 0.8


def test_lists_without_a_distance_are_refused() -> None:
    with pytest.raises(ValueError, match="a list of confidences is empty"):
        ks([], [1.0])
    with pytest.raises(ValueError, match="2 of 3 confidences are not numbers"):
        ks([0.5], [np.nan, 0.1, np.nan])


@pytest.mark.parametrize("score", SCORES)
def test_matrices_have_pairwise_distances_and_their_positions(score: Score) -> None:
    query, calibration, _ = models(np.random.default_rng(0), 3, 1, 60)
    result, index = distances(query, calibration, score)
    assert [[ks(q, c, score) for c in calibration] for q in query] == result.tolist()
    gap = np.mean(calibration[2] <= index[1, 2]) - np.mean(query[1] <= index[1, 2])
    assert result[1, 2] == pytest.approx(gap)
    # Half of the first list is below all of the second, at 1 and again at 3.
    half, lowest = distances(np.array([[1.0, 3.0]]), np.array([[2.0, 4.0]]), "published")
    assert half.tolist() == [[0.5]]
    assert lowest.tolist() == [[1.0]]
    assert [[ks(q, p, score) for p in query] for q in query] == pairwise_distances(query, score).tolist()


def test_published_distance_is_the_larger_one_sided_one() -> None:
    query, _, _ = models(np.random.default_rng(0), 4, 1, 60)
    below = pairwise_distances(query, "one-sided")
    assert np.maximum(below, below.T).tolist() == pairwise_distances(query, "published").tolist()
    assert np.diag(below).tolist() == [0.0] * 4
    assert (below != below.T).any()


NULLS = 500


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def simulate_ratios(
    replicates: int, targets: int, score: Score, share: float = 0.0, crossing: bool = False, runs: int = NULLS
) -> list[Ratio]:
    source = generator(1)
    model_sets = (models(source, replicates, targets, 100, share, crossing) for _ in range(runs))
    return [ratio(*model_set, score) for model_set in model_sets]


@pytest.mark.slow  # 3,000 intervals
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize(("replicates", "targets", "coverage"), [(3, 3, 0.962), (5, 5, 0.956), (5, 1, 0.949)])
def test_interval_covers_1_for_calibration_models(replicates: int, targets: int, coverage: float, score: Score) -> None:
    # If calibration models are less certain throughout, both scores are equal. The nominal coverage is 95 %; the
    # rates are from 2,000 simulations with another seed. The interval does not include the variation of KS between
    # sets of images.
    result = []
    for item in simulate_ratios(replicates, targets, score, crossing=score == "one-sided"):
        result.append(item.rho)
    assert_rate(coverage, sum(item.low <= 1 <= item.high for item in result), NULLS)


def test_more_certain_target_is_far_but_not_below() -> None:
    grid = np.linspace(0.4, 0.6, 50) + np.linspace(0, 0.01, 3)[:, None]  # (models, images)
    published, one_sided = (ratio(grid, grid - 0.3, grid + 0.3, score) for score in SCORES)
    assert published.rho.value == 1.0
    assert published.target.value == 1.0
    assert published.calibration.value == 1.0
    assert one_sided.rho.value == 0.0
    assert one_sided.target.value == 0.0
    assert one_sided.calibration.value == 1.0
    # up to one image
    assert one_sided.rho.low == 0.0
    assert one_sided.rho.high == pytest.approx(1 / 50)


@pytest.mark.parametrize("score", SCORES)
def test_rho_is_a_quotient_of_mean_distances(score: Score) -> None:
    query, calibration, target = models(generator(), 2, 3, 50)
    result = ratio(query, calibration, target, score)
    a = np.mean([ks(q, t, score) for q in query for t in target])
    b = np.mean([ks(q, c, score) for q in query for c in calibration])
    values = (result.target.value, result.calibration.value, result.rho.value)
    assert (a, b, a / b) == pytest.approx(values)
    assert result.target.n == 3
    assert result.calibration.n == 2
    assert result.rho.n == 3
    for item in (result.target, result.calibration, result.rho):
        assert 0 <= item.low < item.value < item.high
    assert 0 < result.target.low < result.target.high < 1


def test_interval_adds_the_variances_of_models() -> None:
    # u = 0.9, 1.1; v = 0.8, 1.2; w = (1.1 - 1), (0.9 - 1).
    target = MeanDistance(np.array([[0.50, 0.60], [0.40, 0.50]]))
    calibration = MeanDistance(np.array([[0.20, 0.30], [0.20, 0.30]]))
    variances = [0.02 / 2, 0.08 / 2, 0.02 / 2]
    freedom = sum(variances) ** 2 / sum(variance**2 / item for variance, item in zip(variances, (1, 1, 1), strict=True))
    from scipy import stats

    margin = stats.t.ppf(0.975, freedom) * np.sqrt(sum(variances))
    result = quotient(target, calibration, 50)
    assert (result.value, result.low, result.high) == pytest.approx((2.0, max(0.0, 2 * (1 - margin)), 2 * (1 + margin)))


def test_quotient_interval_is_symmetric() -> None:
    stream = generator()
    target, calibration = (MeanDistance(0.3 + 0.01 * stream.random((4, 5))) for _ in range(2))
    result = quotient(target, calibration, 50)
    assert 0 < result.low < result.value
    assert result.value - result.low == pytest.approx(result.high - result.value)


def test_several_targets_have_their_own_variance() -> None:
    target = MeanDistance(np.array([[0.50, 0.60], [0.40, 0.50]]))
    calibration = MeanDistance(np.array([[0.20, 0.30], [0.20, 0.30]]))
    result = target.terms(calibration)
    assert result is not None  # by calibration models 0.9, 1.1; by query models 1.1, 0.9
    assert pytest.approx([term.variance for term in result]) == [0.01, 0.01]
    terms_of_three = MeanDistance(np.array([[0.1, 0.2, 0.3], [0.1, 0.2, 0.3]])).terms(calibration)
    assert terms_of_three is not None  # by target 0.5, 1, 1.5, with two degrees of freedom; the query models are equal
    assert pytest.approx(
        [terms_of_three[0].variance, terms_of_three[1].variance, *(t.freedom for t in terms_of_three)]
    ) == [0.25 / 3, 0.0, 2, 1]
    assert mean_estimate(0.0, result, 2).low is None
    assert mean_estimate(1.0, result, 2).high is None
    # The delta method: the logit of 0.2 has 1 / (1 - 0.2) times the relative error, on two degrees of freedom.
    margin = stats.t.ppf(0.975, 2) * np.sqrt(0.02) / 0.8
    ends = special.expit(special.logit(0.2) + np.array([-margin, margin]))
    expected = mean_estimate(0.2, result, 2)
    assert [expected.value, expected.low, expected.high, expected.n] == pytest.approx([0.2, *ends, 2])


def test_one_given_model_varies_like_calibration_models() -> None:
    single_target = MeanDistance(np.array([[0.5], [0.5]]))
    calibration = MeanDistance(np.array([[0.20, 0.30], [0.20, 0.30]]))
    result = quotient(single_target, calibration, 50)
    # The variance of v = 0.8, 1.2 is 0.08: for one model, and half of it for the mean of two, with one degree of
    # freedom.
    from scipy import stats

    assert result.high / result.value == pytest.approx(1 + stats.t.ppf(0.975, 1) * np.sqrt(0.08 + 0.04))
    assert result.low == 0.0  # the lower end would be below 0


def test_degrees_of_freedom_are_satterthwaites() -> None:
    from scipy import stats

    assert interval_half_width((Term(1.0, 3), Term(1.0, 3))) == pytest.approx(stats.t.ppf(0.975, 6) * np.sqrt(2))
    assert interval_half_width((Term(0.0, 3), Term(0.0, 999))) == 0.0


@pytest.mark.filterwarnings("error")
def test_rho_is_undefined_without_a_calibration_distance() -> None:
    query, calibration, target = models(generator(), 1, 2, 30)
    equal_models = np.repeat(query, 2, axis=0)
    result = ratio(equal_models, equal_models, target)
    assert result.rho.value is None
    assert result.rho.low is None
    assert result.rho.high is None
    assert result.calibration.value == 0.0
    assert result.calibration.low is None
    assert result.target.value > 0
    empty = ratio(equal_models, calibration[:0], target)
    assert empty.rho.value is None
    assert empty.calibration.value is None
    assert empty.calibration.n == 0


@pytest.mark.filterwarnings("error")
def test_target_at_distance_0_has_rho_0() -> None:
    query, calibration, _ = models(generator(), 3, 1, 200)
    equal_model = query[:1]
    result = ratio(np.repeat(equal_model, 2, axis=0), calibration, equal_model)
    assert result.rho.value == 0.0
    assert result.rho.low == 0.0
    assert 1 / 200 / result.calibration.value < result.rho.high < 0.1
    assert result.target.value == 0.0
    assert result.target.low is None


@pytest.mark.parametrize("missing_kind", ["query", "calibration"])
def test_interval_needs_two_models_of_a_kind(missing_kind: str) -> None:
    query, calibration, target = models(generator(), 3, 3, 50)
    result = ratio(
        query[: 1 if missing_kind == "query" else 3], calibration[: 1 if missing_kind == "calibration" else 3], target
    )
    assert result.target.value / result.calibration.value == result.rho.value
    assert result.rho.low is None
    assert result.rho.high is None


def test_comparison_needs_query_and_target_models() -> None:
    query, calibration, target = models(generator(), 1, 1, 9)
    with pytest.raises(ValueError, match="there are 0 query and 1 target models; rho needs at least 1 of each"):
        ratio(query[:0], calibration, target)
    with pytest.raises(ValueError, match="there are 1 query and 0 target models"):
        ratio(query, calibration, target[:0])


QUERY, CALIBRATION, TARGET = made_up.models(np.random.default_rng(3), 3, 2, 40)


def compare(query: Array, calibration: Array, target: Array, score: str = "published") -> Comparison:
    matrix = confidence_matrix(made_up.tables(query, calibration, target))
    return compare_target(matrix, matrix.replicates("target", 0), score)  # type: ignore[arg-type]


def two_sample(first: Array, second: Array) -> float:
    return float(stats.ks_2samp(first, second).statistic)


def test_rho_and_floor_agree_with_scipys_distances() -> None:
    result = compare(QUERY, CALIBRATION, TARGET)
    to_calibration = [two_sample(q, c) for q in QUERY for c in CALIBRATION]
    among_queries = [two_sample(*pair) for pair in itertools.combinations(QUERY, 2)]
    assert np.mean(among_queries) == pytest.approx(result.floor)
    to_target = np.mean([two_sample(q, t) for q in QUERY for t in TARGET])
    assert to_target / np.mean(to_calibration) == pytest.approx(result.ratio.rho.value)


def test_requested_score_is_computed() -> None:
    published = compare(QUERY[:, ::-1], QUERY, TARGET, "published")
    one_sided = compare(QUERY[:, ::-1], QUERY, TARGET, "one-sided")
    assert published.floor != one_sided.floor
    assert published.ratio.rho.value != one_sided.ratio.rho.value


def test_floor_and_rho_need_their_models() -> None:
    assert compare(QUERY[:1], CALIBRATION, TARGET).floor is None
    without_calibration = compare(QUERY, CALIBRATION[:0], TARGET)
    assert without_calibration.ratio.rho.value is None
    assert without_calibration.floor == compare(QUERY, CALIBRATION, TARGET).floor
    matrix = confidence_matrix(made_up.tables(QUERY[:0], CALIBRATION, TARGET))
    with pytest.raises(ValueError, match="there are 0 query"):
        compare_target(matrix, [ModelId("target", 0, 0)], "published")
