from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from tasks.audits.density.measures.distribution import (
    DISTRIBUTION,
    Distribution,
    Gain,
    describe,
    distribution,
    has_interval,
)
from tasks.audits.density.measures.scores import scores
from tasks.audits.density.memorization import matched_count_score, terms
from tasks.contract.summaries import Estimate
from tasks.numerics import statistics
from tests.support.calibration import assert_rate
from tests.tasks.audits.density import made_up
from tests.tasks.audits.density.made_up import noise, partitions
from tests.tasks.audits.density.measures.test_scores import CONFIG, DISTRIBUTION_CONFIG, LOG_P, MODELS, TABLES, column


def row_of(table: pa.Table, **about: object) -> dict[str, Any]:
    row: dict[str, Any]
    (row,) = (row for row in table.to_pylist() if all(row[name] == value for name, value in about.items()))
    return row


def test_distribution_covers_epochs_scores_and_labels() -> None:
    table = distribution(DISTRIBUTION_CONFIG, TABLES)
    last = scores(CONFIG, TABLES)
    labels = column(last, "label")
    assert table.schema == DISTRIBUTION
    # 10 statistics of 2 scores for all observations and for 10 labels, and the gain; at the first epoch, all
    # observations only.
    assert table.num_rows == (2 * 10 * 11 + 1) + (2 * 10 + 1)
    for score, name in (("published", "m"), ("matched", "m_matched")):
        values = column(last, name)
        for label in (None, 7):
            expected = describe(values if label is None else values[labels == label])
            for statistic, value in expected.items():
                row = row_of(table, epoch=3, score=score, label=label, statistic=statistic)
                assert value == pytest.approx(row["estimate"], rel=1e-9)
                assert row["n"] == 5
                assert row["observations"] == (200 if label is None else (labels == 7).sum())
                assert row["null"] is not None
                assert row["p_value"] is None
    first = row_of(table, epoch=1, score="matched", label=None, statistic="highest")
    assert first["estimate"] == 0.0
    assert first["null"] is None


def test_intervals_are_the_jackknife_over_repetitions() -> None:
    table = distribution(DISTRIBUTION_CONFIG, TABLES)
    held_out = made_up.held_out(MODELS)
    statistics_without = []
    for repetition in range(5):
        rest = terms(np.delete(LOG_P, repetition, axis=1), np.delete(held_out, repetition, axis=1))
        statistics_without.append(describe(rest.score))
    for statistic in ("mean", "median", "quantile 0.95"):
        row = row_of(table, epoch=3, score="published", label=None, statistic=statistic)
        expected = statistics.jackknife(row["estimate"], [values[statistic] for values in statistics_without])
        assert [expected.low, expected.high] == pytest.approx([row["low"], row["high"]])
    for statistic in ("lowest", "highest", "skewness", "quantile 0.999"):
        row = row_of(table, epoch=3, score="published", label=None, statistic=statistic)
        assert row["low"] is None
        assert row["high"] is None
    single_repetition = distribution(
        replace(DISTRIBUTION_CONFIG, models=replace(MODELS, partitions=MODELS.partitions[:1])), TABLES[:4]
    )
    assert set(single_repetition["low"].to_pylist()) == {None}
    assert set(single_repetition["n"].to_pylist()) == {1}
    # A repetition without models does not count.
    assert (
        row_of(distribution(DISTRIBUTION_CONFIG, TABLES[4:]), epoch=3, score="matched", label=None, statistic="mean")[
            "n"
        ]
        == 4
    )


def test_null_is_the_value_under_other_assignments() -> None:
    models = made_up.folds(1000, 10, 5)
    log_p = made_up.noise(np.random.default_rng(0), 1000, 10, 5, 5.0)
    rows = distribution(Distribution(models, (1,), 8), made_up.fold_tables(models, {1: log_p}))
    for score, statistic, tolerance in (
        ("published", "mean", 0.5), ("published", "median", 0.5), ("published", "quantile 0.95", 1.0),
        ("matched", "mean", 0.5), ("matched", "median", 0.5), ("matched", "quantile 0.05", 1.0),
    ):  # fmt: skip
        row = row_of(rows, score=score, label=None, statistic=statistic)
        assert row["null"] == pytest.approx(row["estimate"], abs=tolerance)
    assert row_of(rows, score="published", label=None, statistic="mean")["null"] > 1.5
    assert abs(row_of(rows, score="matched", label=None, statistic="mean")["null"]) < 0.1


def test_statistics_agree_with_scipy_and_numpy() -> None:
    values = np.random.default_rng(0).gamma(2, 3, 501)
    described = describe(np.append(values, np.nan))
    assert stats.skew(values) == pytest.approx(described["skewness"])
    assert [values.mean(), np.median(values)] == pytest.approx([described["mean"], described["median"]])
    assert values.min() == described["lowest"]
    assert values.max() == described["highest"]
    for share in (0.05, 0.25, 0.75, 0.95, 0.999):
        assert np.quantile(values, share) == pytest.approx(described[f"quantile {share}"])


def test_statistics_of_infinite_equal_and_no_scores() -> None:
    inf = math.inf
    described = describe(np.array([1.0, inf, 2.0, 4.0, inf, -inf, 3.0]))
    assert described["mean"] == 2.5
    assert described["median"] == 3.0
    assert described["lowest"] == -inf
    assert described["highest"] == inf
    assert tuple(described[f"quantile {share}"] for share in (0.05, 0.25, 0.75, 0.95)) == (-inf, 1.5, inf, inf)
    equal = describe(np.full(9, 2.0))
    assert math.isnan(equal.pop("skewness"))
    assert set(equal.values()) == {2.0}
    assert all(map(math.isnan, describe(np.full(3, math.nan)).values()))


@pytest.mark.parametrize(
    ("statistic", "observations", "expected"),
    [
        ("mean", 2, True), ("median", 2, True), ("skewness", 10**6, False), ("lowest", 10**6, False),
        ("highest", 10**6, False), ("quantile 0.95", 99, False), ("quantile 0.95", 101, True),
        ("quantile 0.05", 100, True), ("quantile 0.999", 1437, False), ("quantile 0.999", 60_000, True),
    ],
)  # fmt: skip
def test_statistics_of_few_observations_have_no_interval(statistic: str, observations: int, expected: bool) -> None:
    assert expected == has_interval(statistic, observations)


STATISTICS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "mean": lambda values: values.mean(axis=1),
    "median": lambda values: np.median(values, axis=1),
    "quantile 0.05": lambda values: np.quantile(values, 0.05, axis=1),
    "quantile 0.95": lambda values: np.quantile(values, 0.95, axis=1),
}


@pytest.mark.slow  # 2,000 jackknives each
@pytest.mark.parametrize(
    ("size", "rates"),
    [
        ((150, 5, 3, 20.0), {"mean": 0.95, "median": 0.963, "quantile 0.05": 0.952, "quantile 0.95": 0.972}),
        ((150, 3, 5, 2.0), {"mean": 0.95, "median": 0.966, "quantile 0.05": 0.946, "quantile 0.95": 0.964}),
    ],
)
def test_intervals_without_memory_cover_the_truth(size: tuple[int, int, int, float], rates: dict[str, float]) -> None:
    # The mean is 0 by symmetry; the true value of any other statistic is its average. The jackknife interval has 95 %
    # coverage; for statistics other than means, it covers up to 2 % more (2,500 simulations with another seed).
    simulations, (n, repetitions, folds, sd), rng = 2000, size, np.random.default_rng(0)
    estimates_by_statistic: dict[str, list[Estimate]] = {statistic: [] for statistic in rates}
    # 20 simulations are scored together, since no score depends on another observation
    for _ in range(simulations // 20):
        log_p = np.concatenate([made_up.noise(rng, n, repetitions, folds, sd, 2.0) for _ in range(20)])
        held_out = np.concatenate([made_up.partitions(rng, n, repetitions, folds) for _ in range(20)])
        score, without = matched_count_score(log_p, held_out, 16, rng)
        for name, estimates in estimates_by_statistic.items():
            values = STATISTICS[name](score.reshape(20, n))
            values_without = STATISTICS[name](without.reshape(20, n, repetitions))
            estimates += map(statistics.jackknife, values.tolist(), values_without)
    for statistic, estimates in estimates_by_statistic.items():
        low, value, high = np.array(
            [(values_without.low, values_without.value, values_without.high) for values_without in estimates],
            np.float64,
        ).T
        true = 0.0 if statistic == "mean" else value.mean()
        assert_rate(rates[statistic], int(((low <= true) & (true <= high)).sum()), simulations)


INF = float("inf")
NAN = float("nan")


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def gain_of(log_p: np.ndarray, held_out: np.ndarray, size: int = 7) -> Gain:
    """The gain, added block by block."""
    gain = Gain(*log_p.shape[1:])
    for start in range(0, len(log_p), size):
        gain.add(log_p[start : start + size], held_out[start : start + size])
    return gain


def test_gain_is_trained_mean_minus_held_out() -> None:
    log_p = np.array([[[-1.0, -3.0, -8.0], [-2.0, -2.0, -5.0]], [[-4.0, -6.0, -7.0], [-1.0, -1.0, -1.0]]])
    gain = gain_of(log_p, np.array([[2, 0], [1, 2]]), 1)
    # Repetition 0: -2 + 8 = 6 and -5.5 + 6 = .5; repetition 1: -3.5 + 2 = -1.5 and 0.
    assert pytest.approx(gain.by_repetition) == [3.25, -0.75]
    estimate = gain.estimate
    assert pytest.approx([estimate.value, estimate.n]) == [1.25, 2]
    assert 1.25 + stats.t.ppf(0.975, 1) * 2.0 == pytest.approx(estimate.high)
    assert stats.ttest_1samp([3.25, -0.75], 0, alternative="greater").pvalue == pytest.approx(gain.t_test())
    assert gain.observations == 2


def test_missing_and_always_impossible_observations_are_excluded() -> None:
    log_p = np.array([[[-1.0, -3.0, NAN], [NAN, NAN, NAN]]] * 3)
    log_p[1, 0, :2] = -INF
    gain = gain_of(log_p, np.array([[1, 0], [1, 0], [2, 0]]))  # the third was held out by the missing model
    assert gain.by_repetition == pytest.approx([2.0, NAN], nan_ok=True)
    assert pytest.approx([gain.estimate.value, gain.estimate.n, gain.observations]) == [2.0, 1, 1]
    empty_gain = gain_of(log_p[1:], np.array([[1, 0], [2, 0]]))
    assert empty_gain.estimate.value is None
    assert empty_gain.estimate.n == 0
    assert empty_gain.p_value() is None
    assert empty_gain.t_test() is None
    assert empty_gain.observations == 0


def test_impossible_counts_as_the_lowest_log_p() -> None:
    # Models that held out a strongly memorised observation give -inf; the observation stays in with the smallest
    # certain gain.
    log_p = np.array([[[-1.0, -4.0, -INF], [-2.0, -INF, -2.0]], [[-1.0, -1.0, -1.0], [-1.0, -1.0, -1.0]]])
    held_out = np.array([[2, 1], [0, 0]])
    gain = gain_of(log_p, held_out)
    assert pytest.approx(gain.by_repetition) == [(-2.5 + 4) / 2, (-2.0 + 4) / 2]
    assert gain.observations == 2
    # The replacement does not depend on who trained on the observation: over all partitions, the mean gain is 0.
    all_gains = []
    for a in range(3):
        for b in range(3):
            all_gains.append(gain_of(log_p[:1], np.array([[a, b]])).by_repetition)
    assert pytest.approx(np.mean(all_gains, axis=0)) == [0.0, 0.0]


def test_p_value_tests_for_more_than_negligible() -> None:
    log_p = noise(generator(4), 400, 3, 4, 1.0)
    held_out = partitions(generator(5), 400, 3, 4)
    raised = log_p + np.where(np.arange(4) == held_out[:, :, None], 0.0, 0.25)
    plain = gain_of(log_p, held_out)
    shifted = Gain(3, 4, 0.25)
    shifted.add(raised, held_out)
    assert plain.by_repetition + 0.25 == pytest.approx(shifted.by_repetition)
    assert plain.p_value() == pytest.approx(shifted.p_value())
    assert plain.t_test() == pytest.approx(shifted.t_test())
    assert (gain_of(raised, held_out).p_value() or 1.0) < 1e-6


@pytest.mark.parametrize("sizes", [(3, 3), (2, 4), (2, 2, 2), (3, 2, 1)])
def test_variance_is_that_over_all_partitions(sizes: tuple[int, ...]) -> None:
    log_p = noise(generator(2), 6, 1, len(sizes), 3.0, 2.0)
    partition = np.repeat(np.arange(len(sizes)), sizes)
    gains = []
    for permuted in set(itertools.permutations(partition.tolist())):
        gains.append(gain_of(log_p, np.array(permuted)[:, None]).by_repetition[0])
    gain = gain_of(log_p, partition[:, None])
    mean, variance = gain.moments(0, len(sizes) / (len(sizes) - 1))
    assert [np.mean(gains), np.var(gains)] == pytest.approx([mean, variance])
    z = (gain.by_repetition[0] - np.mean(gains)) / np.std(gains)
    assert stats.norm.sf(z) == pytest.approx(gain.p_value())


def test_p_value_is_the_share_of_redrawn_partitions() -> None:
    log_p = noise(generator(), 120, 2, 4, 3.0, 2.0)
    held_out = partitions(generator(1), 120, 2, 4)
    log_p += np.where(np.arange(4) == held_out[:, :, None], -0.3, 0.0)
    log_p[:, 1, 3] = NAN
    observed = gain_of(log_p, held_out)
    # The observations held out by the missing model have no known gain, so they keep this model.
    is_known = held_out[:, 1] != 3
    redrawn_gains = []
    for seed in range(2000):
        other_partition = held_out.copy()
        other_partition[:, 0] = generator(seed).permutation(held_out[:, 0])
        other_partition[is_known, 1] = generator(seed + 10_000).permutation(held_out[is_known, 1])
        redrawn_gains.append(gain_of(log_p, other_partition, 120).by_repetition.mean())
    share = np.mean(np.array(redrawn_gains) >= observed.by_repetition.mean())
    assert 0.01 < share < 0.5
    assert share == pytest.approx(observed.p_value(), abs=4 * math.sqrt(share / 2000) + 0.01)


def test_leave_one_out_has_no_other_partition() -> None:
    log_p = noise(generator(), 20, 4, 2, 3.0)
    log_p[3, 2, 1] = NAN
    gain = gain_of(log_p, np.ones((20, 4), int))
    assert gain.p_value() is None
    assert np.nanmean(log_p[:, 2, 0][np.arange(20) != 3] - np.delete(log_p[:, 2, 1], 3)) == pytest.approx(
        gain.by_repetition[2]
    )
