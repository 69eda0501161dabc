"""The number of p-values beyond chance, and the detection limit: known answers and simulated rates."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from tasks.audits.density import about, tail
from tasks.audits.density.config import KFold, Memorization, SingleRows
from tasks.audits.density.measures.scores import BEYOND_CHANCE, PLANTED_CALLED, significance
from tasks.audits.density.reassignment import p_values
from tasks.datasets.dataset import Dataset
from tasks.datasets.planting import parse_planting
from tasks.numerics.ranks import false_discovery_control
from tests.support.calibration import assert_rate
from tests.tasks.audits.density.made_up import noise, partitions

COLUMNS = ("p_value", "p_adjusted", "m_matched", "found_from")
INF = float("inf")
NAN = float("nan")


def test_expected_small_p_values_are_subtracted() -> None:
    p = np.array([0.01] * 30 + [0.5] * 70 + [NAN])
    excess = tail.beyond_chance(p, 0.05)
    assert pytest.approx(excess.share.value) == (30 / 100 - 0.05) / 0.95
    assert stats.binom.sf(29, 100, 0.05) == pytest.approx(excess.p_value)
    # If m are not memorised, 70 or fewer exceed 5 % in more than 5 % of cases, up to the largest m.
    max_null = max(m for m in range(70, 101) if stats.binom.cdf(70, m, 0.95) > 0.05)
    assert excess.share.low == (100 - max_null) / 100
    assert excess.share.high == 1.0
    assert excess.share.n == 100


@pytest.mark.parametrize(("small", "n", "level"), [(0, 10, 0.05), (10, 10, 0.05), (3, 10, 1.0), (10, 10, 0.5)])
def test_excess_has_limits_at_both_extremes(small: int, n: int, level: float) -> None:
    excess = tail.beyond_chance(np.array([0.0] * small + [1.0] * (n - small)), level)
    assert excess.share.low is not None
    assert excess.share.value is not None
    assert 0 <= excess.share.low <= excess.share.value <= 1
    assert excess.p_value == pytest.approx(stats.binom.sf(small - 1, n, level))
    assert (0.0 if level == 1 else max(0.0, (small / n - level) / (1 - level))) == excess.share.value


@pytest.mark.parametrize("count", range(0, 41, 4))
@pytest.mark.parametrize(("level", "confidence"), [(0.05, 0.95), (0.25, 0.8), (0.25, 0.1)])
def test_lower_limit_inverts_the_binomial_test(count: int, level: float, confidence: float) -> None:
    excess = tail.beyond_chance(np.array([level] * count + [1.0] * (40 - count)), level, confidence).share
    assert excess.low is not None
    assert excess.value is not None
    max_null = max(m for m in range(40 - count, 41) if stats.binom.cdf(40 - count, m, 1 - level) > 1 - confidence)
    assert max(0.0, (count / 40 - level) / (1 - level)) == pytest.approx(excess.value)
    assert min(1 - max_null / 40, excess.value) == pytest.approx(excess.low)


def test_no_p_values_have_no_excess() -> None:
    excess = tail.beyond_chance(np.array([NAN]), 0.05)
    assert excess.share.value is None
    assert excess.share.n == 0
    assert excess.p_value is None


def test_detection_limit_is_null_quantile() -> None:
    limits = np.array([*range(1, 101), NAN], float)
    quantile = tail.found_in(np.random.default_rng(0).permutation(limits), 0.8)
    low, high = stats.binom.ppf((0.025, 0.975), 100, 0.8)
    assert quantile.value == 80
    assert quantile.low == low
    assert quantile.high == high + 1
    assert quantile.n == 100
    two = tail.found_in(np.array([2.0, 1.0]), 0.8)  # in 2.5 % of draws, no value or both are below the quantile
    assert two.value == 2.0
    assert two.low == 1.0
    assert two.high is None
    assert two.n == 2
    assert tail.found_in(np.full(9, INF), 0.8).value is None
    third = tail.found_in(np.arange(7.0), 0.3, 0.8)  # the third smallest is enough for 2.1 of 7
    low, high = stats.binom.ppf((0.1, 0.9), 7, 0.3)
    assert third.value == 2.0
    assert third.low == max(low - 1, 0)
    assert third.high == high
    assert third.n == 7
    partly_infinite = tail.found_in(np.array([1.0] * 8 + [INF] * 2), 0.8)
    assert partly_infinite.value == 1.0
    assert partly_infinite.high is None
    assert tail.found_in(np.array([NAN]), 0.8).n == 0


def test_single_observation_level_follows_the_procedure() -> None:
    for dependent in (False, True):
        p = np.ones(50)
        p[7] = tail.alone(50, dependent)
        assert pytest.approx(tail.adjust_p_values(p, dependent)[7]) == 0.05
    assert tail.adjust_p_values(p, True)[7] == pytest.approx(false_discovery_control(p)[7] * sum(1 / np.arange(1, 51)))
    assert tail.counted_at(1e-10) == 0.05
    assert tail.counted_at(0.25) == 0.25


@pytest.mark.parametrize(
    ("permutations", "repetitions", "folds", "is_together"),
    [(9_999, 10, 10, True), (9_998, 10, 10, False), (624, 4, 5, True), (623, 4, 5, False)],
)
def test_few_draws_rule_out_the_joint_count(permutations: int, repetitions: int, folds: int, is_together: bool) -> None:
    config = Memorization(permutations=permutations, repetitions=repetitions, estimator=KFold(folds))
    assert is_together == about(config).together
    assert not about(Memorization(estimator=SingleRows(), permutations=99_999)).together
    p = np.full(20, 0.01)
    metrics = []
    for row in significance(pa.table(dict.fromkeys(COLUMNS, p)), about(config)):
        metrics.append(row["metric"])
    assert is_together == (BEYOND_CHANCE in metrics)


def test_planted_observations_are_counted_separately() -> None:
    """Three observations are planted and two are called; of the other seven, one is called."""
    p = np.array([1e-4, 1e-4, 0.9, 1e-4, *[0.9] * 6])
    table = pa.table(dict.fromkeys(COLUMNS, p) | {"row": np.arange(10)})
    for planting, split in (("inverted3", "train"), ("", "test")):
        settings = about(Memorization(data=Dataset("digits#inverted3"), estimator=KFold(evaluation_split=split)))
        assert planting == settings.planted
        estimates = {}
        for row in significance(table, settings):
            estimates[row["metric"]] = (row["estimate"], row["n"])
        if planting:
            assert estimates[PLANTED_CALLED] == (pytest.approx(2 / 3), 3)
            assert estimates["observations memorised that were not planted"] == (pytest.approx(1 / 7), 7)
        assert bool(planting) == (PLANTED_CALLED in estimates)
    assert parse_planting("duplicated3").rows == 6  # copies count as planted as well


def test_false_discovery_rate_and_limit_hold_with_memory() -> None:
    # 40 of 200 are memorised by 12 nats, and all observations share 4 x 5 models that differ in quality.
    rng = np.random.default_rng(5)
    shares = []
    covered = 0
    small_p_values = 0
    n = 400
    for _ in range(n):
        log_p = noise(rng, 200, 4, 5, 2.0, 2.0)
        out = partitions(rng, 200, 4, 5)
        log_p[:40] += np.where(np.arange(5) == out[:40, :, None], 0.0, 12.0)
        p = p_values(log_p, out, 624, rng)
        is_called = tail.adjust_p_values(p, False) <= tail.LEVEL
        shares.append(is_called[40:].sum() / max(1, is_called.sum()))
        low = tail.beyond_chance(p, 0.05).share.low
        assert low is not None
        covered += low * 200 <= 40
        small_p_values += int((p[40:] <= 0.05).sum())
    error = np.std(shares) / math.sqrt(n)
    assert 0.02 < np.mean(shares) < 0.05 + 3 * error
    assert covered >= 0.93 * n
    assert_rate(31 / 625, small_p_values, n * 160)  # p-values are multiples of 1 / 625
