"""The highly memorised observations, and the share of them with usual log p."""

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


def test_highly_memorised_are_above_numpys_quantile() -> None:
    for n in (1, 2, 19, 20, 21, 100, 101, 12345):
        m = np.random.default_rng(n).normal(size=n)
        assert (m > np.quantile(m, 0.95)).tolist() == highly_memorised_mask(m).tolist()
    assert highly_memorised_mask(np.arange(100.0)).sum() == 5
    assert highly_memorised_mask(np.zeros(100)).sum() == 0


def test_central_share_is_of_the_highly_memorised() -> None:
    u = [float(value) for value in range(1000)]
    m = [0.0] * 1000
    for row in (*range(20), *range(100, 130)):  # 20 of the 50 are below the 5 % quantile of U
        m[row] = 1.0
    result = within_central(scores(u, m))
    assert result.estimate.value == 30 / 50
    assert result.estimate.low is None
    assert result.null is None
    assert result.p_value is None


def test_infinite_scores_are_highly_memorised() -> None:
    assert highly_memorised_mask(np.array([0.0, np.inf, -np.inf, np.inf])).tolist() == [False, True, False, True]
    assert highly_memorised_mask(np.zeros(0)).tolist() == []
    assert np.isnan(central_share(np.arange(3.0), np.zeros(3), 0.9))


@pytest.mark.parametrize(("rank", "within"), [(0, 0.0), (1, 0.0), (2, 1.0), (20, 1.0), (38, 1.0), (39, 0.0)])
def test_central_share_includes_the_quantiles_themselves(rank: int, within: float) -> None:
    # the quantiles are 1.2 and 38.8
    u = np.arange(41.0)
    m = np.zeros(41)
    m[rank] = 1.0
    assert within == central_share(u, m, 0.94)
    u[0], u[40] = -np.inf, np.inf
    assert within == central_share(u, m, 0.94)


def test_incomplete_observations_are_left_out_of_the_table() -> None:
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
    observations = scored_observations(table)
    assert observations.rows.tolist() == [5, 11]
    assert observations.u.tolist() == [1.0, 4.0]
    assert observations.m.tolist() == [0.5, np.inf]
    log_mean_of_two = math.log((1 + math.e) / 2)  # the mean density of the two remaining repetitions
    assert observations.u_without[0].tolist() == pytest.approx([1.0, log_mean_of_two, log_mean_of_two])
    assert pytest.approx(observations.u_without[1, :2].tolist()) == [8.0, 2.0]
    assert observations.m_without.tolist() == [[0.1, 0.2], [0.3, 0.4]]
    assert observations.u_redrawn.tolist() == [[5.0], [6.0]]
    assert observations.m_redrawn.shape == (2, 0)


@pytest.mark.filterwarnings("error")  # one redrawn value has no spread
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
def test_null_and_p_need_redrawn_values(redrawn: list[float], null: float | None, has_p: bool) -> None:
    columns = np.array([redrawn])
    observation = Scored(
        np.zeros(1, np.int64), np.ones(1), np.array([7.0]), np.empty((1, 0)), np.empty((1, 0)), columns, columns
    )
    result = statistic_with_interval(lambda _, m: float(m[0]), observation)
    assert null == result.null
    assert has_p == (result.p_value is not None)
    if has_p:  # 4 from the mean 3, in units of sqrt(2) sqrt(1 + 1/2), with one degree of freedom
        assert 2 * stats.t.sf(4 / math.sqrt(3), 1) == pytest.approx(result.p_value)
        assert statistic_with_interval(lambda _, m: float(m[0] if m[0] < 7 else np.inf), observation).p_value is None


def scored_of(log_p: np.ndarray, held_out: np.ndarray, rng: np.random.Generator) -> Scored:
    """The observations of the table of scores for such log densities."""
    log_means = terms(log_p, held_out)
    m, without = matched_count_score(log_p, held_out, 4, rng)
    other_assignments = [reassign_models(log_p, held_out, rng) for _ in range(20)]
    redrawn = np.stack(
        [matched_count_score(log_p, other_held_out, 4, rng, False)[0] for other_held_out in other_assignments], axis=1
    )
    u_redrawn = np.stack([terms(log_p, other_held_out).u for other_held_out in other_assignments], axis=1)
    rows = np.arange(len(m))
    return Scored(rows, log_means.u, m, np.zeros((len(m), log_p.shape[1])), without, u_redrawn, redrawn)


def test_repetition_is_the_unit_of_statistics() -> None:
    rng = np.random.default_rng(0)
    observations = scored_of(noise(rng, 50, 4, 3, 2.0), partitions(rng, 50, 4, 3), rng)
    result = statistic_with_interval(lambda _, m: float(m.mean()), observations)
    expected = statistics.jackknife(float(observations.m.mean()), observations.m_without.mean(axis=0).tolist())
    assert expected == result.estimate
    redrawn = observations.m_redrawn.mean(axis=0)
    assert redrawn.mean() == pytest.approx(result.null)
    t_statistic = abs(observations.m.mean() - redrawn.mean()) / (redrawn.std(ddof=1) * np.sqrt(1 + 1 / 20))
    assert 2 * stats.t.sf(t_statistic, 19) == pytest.approx(result.p_value)


def split_by_run(observations: Scored, runs: int) -> Iterator[Scored]:
    """The observations of each run. All are scored together, since no score depends on another observation."""
    columns = []
    for field in fields(Scored):
        columns.append(np.split(getattr(observations, field.name), runs))
    return (Scored(*field) for field in zip(*columns, strict=True))


@pytest.mark.slow  # 300 runs of 21 scores of 200 observations
def test_correlation_without_memory_is_no_finding() -> None:
    # The variable that M is correlated with increases the disagreement of models and so the tail of M: r is not 0
    # without memory.
    rng = np.random.default_rng(1)
    rho = np.random.default_rng(2).gamma(2, 1, 200)
    values = []
    covered = []
    small_p_values = 0
    nulls = []
    for _ in range(30):
        log_p = -100 + (1 + np.tile(rho, 10)[:, None, None]) * rng.standard_normal((10 * 200, 6, 5))
        out = np.concatenate([partitions(rng, 200, 6, 5) for _ in range(10)])
        # the same for each observation, independently of rho
        log_p += np.where(np.arange(5) == out[:, :, None], 0.0, 1.0)
        for run in split_by_run(scored_of(log_p, out, rng), 10):
            result = statistic_with_interval(lambda _, m: pearson(m, rho), run)
            assert result.estimate.low is not None
            assert result.estimate.high is not None
            assert result.p_value is not None
            values.append(result.estimate.value)
            covered.append((result.estimate.low, result.estimate.high))
            nulls.append(result.null)
            small_p_values += result.p_value <= 0.05
    true = float(np.mean(np.array(values, float)))
    assert sum(low <= true <= high for low, high in covered) >= 0.9 * 300
    assert small_p_values <= 0.09 * 300
    assert abs(true - float(np.mean(np.array(nulls, float)))) < 0.05


def test_central_share_without_memory_is_no_finding() -> None:
    # One of the two models of a repetition trained on the observation; U depends on M for either one.
    rng = np.random.default_rng(3)
    values = []
    nulls = []
    small_p_values = 0
    for _ in range(50):
        log_p = -100 + rng.normal(0, 3, (400, 1, 1)) + rng.normal(0, 5, (400, 10, 2))
        result = statistic_with_interval(
            lambda u, m: central_share(u, m, 0.9), scored_of(log_p, partitions(rng, 400, 10, 2), rng)
        )
        assert result.p_value is not None
        values.append(result.estimate.value)
        nulls.append(result.null)
        small_p_values += result.p_value <= 0.05
    assert np.mean(np.array(values, float)) == pytest.approx(np.mean(np.array(nulls, float)), abs=0.05)
    assert small_p_values <= 7
