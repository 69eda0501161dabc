import numpy as np
import pytest

from tasks.audits.forgetting.kolmogorov_smirnov import SCORES, Score, ks
from tasks.audits.forgetting.rho import MeanDistance, Ratio, Term, interval_half_width, quotient, ratio
from tests.support.calibration import assert_rate
from tests.tasks.audits.forgetting.made_up import models

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
    found = [each.rho for each in simulated(replicates, targets, score, crossing=score == "one-sided")]
    assert_rate(covered, sum(each.low <= 1 <= each.high for each in found), NULLS)


def test_a_target_surer_than_the_query_models_is_far_from_them_but_not_below_them() -> None:
    grid = np.linspace(0.4, 0.6, 50) + np.linspace(0, 0.01, 3)[:, None]  # (models, images)
    published, sided = (ratio(grid, grid - 0.3, grid + 0.3, score) for score in SCORES)
    assert (1.0, 1.0, 1.0) == (published.rho.value, published.target.value, published.calibration.value)
    assert (0.0, 0.0, 1.0) == (sided.rho.value, sided.target.value, sided.calibration.value)
    assert (0.0, pytest.approx(1 / 50)) == (sided.rho.low, sided.rho.high)  # up to one image


@pytest.mark.parametrize("score", SCORES)
def test_rho_is_the_quotient_of_the_mean_distances(score: Score) -> None:
    query, calibration, target = models(chance(), 2, 3, 50)
    found = ratio(query, calibration, target, score)
    a = np.mean([ks(q, t, score) for q in query for t in target])
    b = np.mean([ks(q, c, score) for q in query for c in calibration])
    values = (found.target.value, found.calibration.value, found.rho.value)
    assert (a, b, a / b) == pytest.approx(values)
    assert (3, 2, 3) == (found.target.n, found.calibration.n, found.rho.n)
    for each in (found.target, found.calibration, found.rho):
        assert 0 <= each.low < each.value < each.high
    assert 0 < found.target.low < found.target.high < 1


def test_the_interval_adds_the_variances_of_models_by_hand() -> None:
    # u = 0.9, 1.1; v = 0.8, 1.2; w = (1.1 - 1), (0.9 - 1).
    target = MeanDistance(np.array([[0.50, 0.60], [0.40, 0.50]]))
    calibration = MeanDistance(np.array([[0.20, 0.30], [0.20, 0.30]]))
    variances = [0.02 / 2, 0.08 / 2, 0.02 / 2]
    freedom = sum(variances) ** 2 / sum(variance**2 / each for variance, each in zip(variances, (1, 1, 1), strict=True))
    from scipy import stats

    reach = stats.t.ppf(0.975, freedom) * np.sqrt(sum(variances))
    found = quotient(target, calibration, 50)
    assert (2.0, max(0.0, 2 * (1 - reach)), 2 * (1 + reach)) == pytest.approx((found.value, found.low, found.high))


def test_one_given_model_is_taken_to_vary_as_the_calibration_models_do() -> None:
    alone = MeanDistance(np.array([[0.5], [0.5]]))
    calibration = MeanDistance(np.array([[0.20, 0.30], [0.20, 0.30]]))
    found = quotient(alone, calibration, 50)
    # Of v = 0.8, 1.2 the variance is 0.08: of one model, and half of it for the mean of two, on one degree of freedom.
    from scipy import stats

    assert found.high / found.value == pytest.approx(1 + stats.t.ppf(0.975, 1) * np.sqrt(0.08 + 0.04))
    assert 0.0 == found.low  # where the interval would go on below


def test_the_degrees_of_freedom_are_satterthwaites() -> None:
    from scipy import stats

    assert interval_half_width((Term(1.0, 3), Term(1.0, 3))) == pytest.approx(stats.t.ppf(0.975, 6) * np.sqrt(2))
    assert 0.0 == interval_half_width((Term(0.0, 3), Term(0.0, 999)))


def test_rho_is_undefined_where_the_calibration_models_are_0_away_or_missing() -> None:
    query, calibration, target = models(chance(), 1, 2, 30)
    same = np.repeat(query, 2, axis=0)
    found = ratio(same, same, target)
    assert (None, None, None) == (found.rho.value, found.rho.low, found.rho.high)
    assert (0.0, None) == (found.calibration.value, found.calibration.low)
    assert found.target.value > 0
    missing = ratio(same, calibration[:0], target)
    assert (None, None, 0) == (missing.rho.value, missing.calibration.value, missing.calibration.n)


def test_a_target_0_away_has_rho_0_and_an_interval_from_there() -> None:
    query, calibration, _ = models(chance(), 3, 1, 200)
    same = query[:1]
    found = ratio(np.repeat(same, 2, axis=0), calibration, same)
    assert (0.0, 0.0) == (found.rho.value, found.rho.low)
    assert 1 / 200 / found.calibration.value < found.rho.high < 0.1
    assert (0.0, None) == (found.target.value, found.target.low)


@pytest.mark.parametrize("lacking", ["query", "calibration"])
def test_there_is_no_interval_where_nothing_shows_how_things_vary(lacking: str) -> None:
    query, calibration, target = models(chance(), 3, 3, 50)
    found = ratio(
        query[: 1 if lacking == "query" else 3],
        calibration[: 1 if lacking == "calibration" else 3],
        target,
    )
    assert found.rho.value > 0
    assert (None, None) == (found.rho.low, found.rho.high)


def test_without_query_models_there_is_nothing_to_compare_with() -> None:
    query, calibration, target = models(chance(), 1, 1, 9)
    with pytest.raises(ValueError, match="there are 0 query and 1 target models; rho needs at least 1 of each"):
        ratio(query[:0], calibration, target)
