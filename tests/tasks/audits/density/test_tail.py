"""How many p-values are beyond chance, and what memory would be found: known answers, and simulated rates."""

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
INF, NAN = float("inf"), float("nan")


def test_all_p_values_that_are_small_are_beyond_chance_but_for_those_that_chance_brings() -> None:
    p = np.array([0.01] * 30 + [0.5] * 70 + [NAN])
    found = tail.beyond_chance(p, 0.05)
    assert pytest.approx(found.share.value) == (30 / 100 - 0.05) / 0.95
    assert stats.binom.sf(29, 100, 0.05) == pytest.approx(found.p_value)
    # Of m that are not memorised 70 or fewer are above 5 % in more than 5 % of cases, up to the largest m.
    most = max(m for m in range(70, 101) if stats.binom.cdf(70, m, 0.95) > 0.05)
    assert ((100 - most) / 100, 1.0, 100) == (found.share.low, found.share.high, found.share.n)


@pytest.mark.parametrize(("small", "n", "at"), [(0, 10, 0.05), (10, 10, 0.05), (3, 10, 1.0), (10, 10, 0.5)])
def test_none_and_all_have_limits(small: int, n: int, at: float) -> None:
    found = tail.beyond_chance(np.array([0.0] * small + [1.0] * (n - small)), at)
    assert found.share.low is not None
    assert found.share.value is not None
    assert 0 <= found.share.low <= found.share.value <= 1
    assert found.p_value == pytest.approx(stats.binom.sf(small - 1, n, at))
    assert (0.0 if at == 1 else max(0.0, (small / n - at) / (1 - at))) == found.share.value


@pytest.mark.parametrize("count", range(0, 41, 4))
@pytest.mark.parametrize(("at", "confidence"), [(0.05, 0.95), (0.25, 0.8), (0.25, 0.1)])
def test_the_lower_limit_is_what_more_that_are_not_memorised_would_make_too_rare(
    count: int, at: float, confidence: float
) -> None:
    found = tail.beyond_chance(np.array([at] * count + [1.0] * (40 - count)), at, confidence).share
    assert found.low is not None
    assert found.value is not None
    most = max(m for m in range(40 - count, 41) if stats.binom.cdf(40 - count, m, 1 - at) > 1 - confidence)
    assert max(0.0, (count / 40 - at) / (1 - at)) == pytest.approx(found.value)
    assert min(1 - most / 40, found.value) == pytest.approx(found.low)


def test_of_no_p_value_nothing_is_said() -> None:
    found = tail.beyond_chance(np.array([NAN]), 0.05)
    assert (found.share.value, found.share.n, found.p_value) == (None, 0, None)


def test_what_is_found_is_a_quantile_and_nothing_where_no_memory_is_enough() -> None:
    least = np.array([*range(1, 101), NAN], float)
    found = tail.found_in(np.random.default_rng(0).permutation(least), 0.8)
    low, high = stats.binom.ppf((0.025, 0.975), 100, 0.8)
    assert (80, low, high + 1, 100) == (found.value, found.low, found.high, found.n)
    two = tail.found_in(np.array([2.0, 1.0]), 0.8)  # 2.5 % of draws have none, or both, below the quantile
    assert (two.value, two.low, two.high, two.n) == (2.0, 1.0, None, 2)
    assert tail.found_in(np.full(9, INF), 0.8).value is None
    third = tail.found_in(np.arange(7.0), 0.3, 0.8)  # the third smallest is enough for 2.1 of 7
    low, high = stats.binom.ppf((0.1, 0.9), 7, 0.3)
    assert (2.0, max(low - 1, 0), high, 7) == (third.value, third.low, third.high, third.n)
    some = tail.found_in(np.array([1.0] * 8 + [INF] * 2), 0.8)
    assert (some.value, some.high) == (1.0, None)
    assert tail.found_in(np.array([NAN]), 0.8).n == 0


def test_the_level_of_one_alone_is_that_of_the_procedure() -> None:
    for dependent in (False, True):
        p = np.ones(50)
        p[7] = tail.alone(50, dependent)
        assert pytest.approx(tail.adjust_p_values(p, dependent)[7]) == 0.05
    assert tail.adjust_p_values(p, True)[7] == pytest.approx(false_discovery_control(p)[7] * sum(1 / np.arange(1, 51)))
    assert (tail.counted_at(1e-10), tail.counted_at(0.25)) == (0.05, 0.25)


@pytest.mark.parametrize(
    ("permutations", "repetitions", "folds", "together"),
    [(9_999, 10, 10, True), (9_998, 10, 10, False), (624, 4, 5, True), (623, 4, 5, False)],
)
def test_p_values_of_few_draws_are_not_counted_together(
    permutations: int, repetitions: int, folds: int, together: bool
) -> None:
    config = Memorization(permutations=permutations, repetitions=repetitions, estimator=KFold(folds))
    assert together == about(config).together
    assert not about(Memorization(estimator=SingleRows(), permutations=99_999)).together
    p = np.full(20, 0.01)
    metrics = [row["metric"] for row in significance(pa.table(dict.fromkeys(COLUMNS, p)), about(config))]
    assert together == (BEYOND_CHANCE in metrics)


def test_what_is_planted_is_counted_apart_from_all_others() -> None:
    """The first three are planted, two of them are called; of seven others one is."""
    p = np.array([1e-4, 1e-4, 0.9, 1e-4, *[0.9] * 6])
    table = pa.table(dict.fromkeys(COLUMNS, p) | {"row": np.arange(10)})
    for planted, asked in (("inverted3", "train"), ("", "test")):
        told = about(Memorization(data=Dataset("digits#inverted3"), estimator=KFold(evaluation_split=asked)))
        assert planted == told.planted
        found = {row["metric"]: (row["estimate"], row["n"]) for row in significance(table, told)}
        if planted:
            assert (pytest.approx(2 / 3), 3) == found[PLANTED_CALLED]
            assert (pytest.approx(1 / 7), 7) == found["observations memorised that were not planted"]
        assert bool(planted) == (PLANTED_CALLED in found)
    assert parse_planting("duplicated3").rows == 6  # copies are planted, too


def test_false_discoveries_keep_their_rate_and_the_lower_limit_its_level_where_some_are_memorised() -> None:
    # 40 of 200 are memorised by 12 nats, and all observations share 4 x 5 models that differ in how good they are.
    chance, shares, covered, small, n = np.random.default_rng(5), [], 0, 0, 400
    for _ in range(n):
        log_p, out = noise(chance, 200, 4, 5, 2.0, 2.0), partitions(chance, 200, 4, 5)
        log_p[:40] += np.where(np.arange(5) == out[:40, :, None], 0.0, 12.0)
        p = p_values(log_p, out, 624, chance)
        called = tail.adjust_p_values(p, False) <= tail.LEVEL
        shares.append(called[40:].sum() / max(1, called.sum()))
        low = tail.beyond_chance(p, 0.05).share.low
        assert low is not None
        covered += low * 200 <= 40
        small += int((p[40:] <= 0.05).sum())
    error = np.std(shares) / math.sqrt(n)
    assert 0.02 < np.mean(shares) < 0.05 + 3 * error
    assert covered >= 0.93 * n
    assert_rate(31 / 625, small, n * 160)  # p-values are multiples of 1 / 625
