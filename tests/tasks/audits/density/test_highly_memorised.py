"""Who is highly memorised, and how many of them lie where log p is not unusual."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

import numpy as np
import pytest
from scipy import stats

from tasks.audits.density.highly_memorised import (
    Scored,
    central_share,
    highly_memorised_mask,
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
    assert 5 == highly_memorised_mask(np.arange(100.0)).sum()
    assert 0 == highly_memorised_mask(np.zeros(100)).sum()


def test_the_share_within_the_central_90_percent_is_counted_among_the_highly_memorised() -> None:
    u = [float(value) for value in range(1000)]
    m = [0.0] * 1000
    for row in (*range(20), *range(500, 530)):  # 20 of the 50 are below the 5 % quantile of U
        m[row] = 1.0
    found = within_central(scores(u, m))
    assert (30 / 50, None, None, None) == (found.estimate.value, found.estimate.low, found.null, found.p_value)


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
