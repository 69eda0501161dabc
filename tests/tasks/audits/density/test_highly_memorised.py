"""Who is highly memorised, and how many of them lie where log p is not unusual."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from tasks.audits.density.highly_memorised import (
    Scored,
    central_share,
    highly_memorised_mask,
    scored_observations,
    statistic_with_interval,
    within_central,
)
from tasks.audits.density.measures.neighbours import pearson
from tasks.audits.density.memorization import matched_count_score, terms
from tasks.audits.density.reassignment import reassign_models
from tasks.numerics import statistics
from tests.tasks.audits.density.made_up import noise, partitions, scores


def test_the_highly_memorised_are_those_above_numpys_quantile() -> None:
    for n in (1, 2, 19, 20, 21, 100, 101, 12345):
        m = np.random.default_rng(n).normal(size=n)
        assert (m > np.quantile(m, 0.95)).tolist() == highly_memorised_mask(m).tolist()
    assert highly_memorised_mask(np.arange(100.0)).sum() == 5
    assert highly_memorised_mask(np.zeros(100)).sum() == 0


def test_the_share_within_the_central_90_percent_is_counted_among_the_highly_memorised() -> None:
    u = [float(value) for value in range(1000)]
    m = [0.0] * 1000
    for row in (*range(20), *range(100, 130)):  # 20 of the 50 are below the 5 % quantile of U
        m[row] = 1.0
    found = within_central(scores(u, m))
    assert (found.estimate.value, found.estimate.low, found.null, found.p_value) == (30 / 50, None, None, None)


def test_an_infinite_score_is_highly_memorised_and_no_score_is_nothing() -> None:
    assert highly_memorised_mask(np.array([0.0, np.inf, -np.inf, np.inf])).tolist() == [False, True, False, True]
    assert highly_memorised_mask(np.zeros(0)).tolist() == []
    assert np.isnan(central_share(np.arange(3.0), np.zeros(3), 0.9))


@pytest.mark.parametrize(("rank", "within"), [(0, 0.0), (1, 0.0), (2, 1.0), (20, 1.0), (38, 1.0), (39, 0.0)])
def test_the_central_share_holds_the_observations_at_its_ends(rank: int, within: float) -> None:
    u, m = np.arange(41.0), np.zeros(41)  # the quantiles are 1.2 and 38.8
    m[rank] = 1.0
    assert within == central_share(u, m, 0.94)
    u[0], u[40] = -np.inf, np.inf
    assert within == central_share(u, m, 0.94)


def test_a_table_gives_the_observations_that_have_both_terms_and_u_without_each_repetition() -> None:
    table = pa.table(
        {
            "row": [5, 7, 9, 11],
            "log_p_trained": [1.0, None, 3.0, 4.0],
            "m_matched": [0.5, 0.5, None, np.inf],
            "trained": pa.array([[0.0, 1.0, 1.0], [1.0] * 3, [1.0] * 3, [2.0, 8.0, None]], pa.list_(pa.float64())),
            "matched_without": pa.array([[0.1, 0.2], [1.0, 1.0], [1.0, 1.0], [0.3, 0.4]], pa.list_(pa.float64())),
            "trained_redrawn": pa.array([[5.0], [0.0], [0.0], [6.0]], pa.list_(pa.float64())),
            "matched_redrawn": pa.array([None] * 4, pa.list_(pa.float64())),
        }
    )
    found = scored_observations(table)
    assert ([5, 11], [1.0, 4.0], [0.5, np.inf]) == (found.rows.tolist(), found.u.tolist(), found.m.tolist())
    both = math.log((1 + math.e) / 2)  # the mean density of the two that are left
    assert [1.0, both, both] == pytest.approx(found.u_without[0].tolist())
    assert pytest.approx(found.u_without[1, :2].tolist()) == [8.0, 2.0]
    assert (found.m_without.tolist(), found.u_redrawn.tolist()) == ([[0.1, 0.2], [0.3, 0.4]], [[5.0], [6.0]])
    assert found.m_redrawn.shape == (2, 0)


@pytest.mark.filterwarnings("error")  # of one redrawing no spread is asked
@pytest.mark.parametrize(
    ("redrawn", "null", "has_p"),
    [
        ([], None, False),
        ([2.0], 2.0, False),
        ([2.0, 2.0], 2.0, False),
        ([2.0, np.nan], None, False),
        ([2.0, 4.0], 3.0, True),
    ],
)
def test_a_null_needs_redrawings_and_a_p_value_some_that_differ(
    redrawn: list[float], null: float | None, has_p: bool
) -> None:
    columns = np.array([redrawn])
    one = Scored(
        np.zeros(1, np.int64), np.ones(1), np.array([7.0]), np.empty((1, 0)), np.empty((1, 0)), columns, columns
    )
    found = statistic_with_interval(lambda _, m: float(m[0]), one)
    assert (null, has_p) == (found.null, found.p_value is not None)
    if has_p:  # 4 from the mean 3, in units of sqrt(2) sqrt(1 + 1/2), with one degree of freedom
        assert 2 * stats.t.sf(4 / math.sqrt(3), 1) == pytest.approx(found.p_value)
        assert None is statistic_with_interval(lambda _, m: float(m[0] if m[0] < 7 else np.inf), one).p_value


def of(log_p: np.ndarray, out: np.ndarray, chance: np.random.Generator) -> Scored:
    """What the table of scores says of such log densities."""
    both = terms(log_p, out)
    m, without = matched_count_score(log_p, out, 4, chance)
    others = [reassign_models(log_p, out, chance) for _ in range(20)]
    redrawn = np.stack([matched_count_score(log_p, held, 4, chance, False)[0] for held in others], axis=1)
    u_redrawn = np.stack([terms(log_p, held).u for held in others], axis=1)
    rows = np.arange(len(m))
    return Scored(rows, both.u, m, np.zeros((len(m), log_p.shape[1])), without, u_redrawn, redrawn)


def test_the_unit_of_a_statistic_of_all_is_the_repetition() -> None:
    chance = np.random.default_rng(0)
    observations = of(noise(chance, 50, 4, 3, 2.0), partitions(chance, 50, 4, 3), chance)
    found = statistic_with_interval(lambda _, m: float(m.mean()), observations)
    expected = statistics.jackknife(float(observations.m.mean()), observations.m_without.mean(axis=0).tolist())
    assert expected == found.estimate
    redrawn = observations.m_redrawn.mean(axis=0)
    assert redrawn.mean() == pytest.approx(found.null)
    apart = abs(observations.m.mean() - redrawn.mean()) / (redrawn.std(ddof=1) * np.sqrt(1 + 1 / 20))
    assert 2 * stats.t.sf(apart, 19) == pytest.approx(found.p_value)


def by_run(observations: Scored, runs: int) -> Iterator[Scored]:
    """What is said of the observations of each run, all of which are scored at once: no score depends on another."""
    columns = [np.split(getattr(observations, each.name), runs) for each in fields(Scored)]
    return (Scored(*each) for each in zip(*columns, strict=True))


@pytest.mark.slow  # 300 runs of 21 scores of 200 observations
def test_a_correlation_that_is_there_without_memory_is_no_finding_and_intervals_cover() -> None:
    # What M is correlated with raises the disagreement of models, and so the tail of M: r is not 0 without memory.
    chance, rho = np.random.default_rng(1), np.random.default_rng(2).gamma(2, 1, 200)
    values, covered, small, nulls = [], [], 0, []
    for _ in range(30):
        log_p = -100 + (1 + np.tile(rho, 10)[:, None, None]) * chance.standard_normal((10 * 200, 6, 5))
        out = np.concatenate([partitions(chance, 200, 6, 5) for _ in range(10)])
        log_p += np.where(np.arange(5) == out[:, :, None], 0.0, 1.0)  # of each as much: rho has no part in it
        for run in by_run(of(log_p, out, chance), 10):
            found = statistic_with_interval(lambda _, m: pearson(m, rho), run)
            assert found.estimate.low is not None
            assert found.estimate.high is not None
            assert found.p_value is not None
            values.append(found.estimate.value)
            covered.append((found.estimate.low, found.estimate.high))
            nulls.append(found.null)
            small += found.p_value <= 0.05
    true = float(np.mean(np.array(values, float)))
    assert sum(low <= true <= high for low, high in covered) >= 0.9 * 300
    assert small <= 0.09 * 300
    assert abs(true - float(np.mean(np.array(nulls, float)))) < 0.05


def test_a_share_of_who_is_unusual_by_u_is_no_finding_where_nothing_is_memorised() -> None:
    # Of two models in a repetition one trained on the observation: whichever it was, U goes with M.
    chance, values, nulls, small = np.random.default_rng(3), [], [], 0
    for _ in range(50):
        log_p = -100 + chance.normal(0, 3, (400, 1, 1)) + chance.normal(0, 5, (400, 10, 2))
        found = statistic_with_interval(
            lambda u, m: central_share(u, m, 0.9), of(log_p, partitions(chance, 400, 10, 2), chance)
        )
        assert found.p_value is not None
        values.append(found.estimate.value)
        nulls.append(found.null)
        small += found.p_value <= 0.05
    assert np.mean(np.array(values, float)) == pytest.approx(np.mean(np.array(nulls, float)), abs=0.05)
    assert small <= 7
