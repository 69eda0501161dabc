"""False alarm rates and detection of the audit in simulated runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from studies.density_error_rates import answer as decided
from studies.density_error_rates import counted_rows
from tasks.audits.density.answer import CONDITIONS
from tasks.audits.density.config import KFold, Memorization, SingleRows
from tasks.audits.density.memorization import Array, Indices
from tasks.audits.density.reassignment import least_found, p_values, reassign_models
from tasks.audits.density.tail import adjust_p_values, alone
from tasks.contract.verdict import Answer
from tests.support.calibration import assert_rate
from tests.tasks.audits.density.made_up import noise, partitions

KFOLD = Memorization(repetitions=6, estimator=KFold(4))
ALONE = Memorization(estimator=SingleRows(12), repetitions=10)
RUNS = 300
ROWS = 60
PLANTED_RUNS = 30  # runs with planted memory, without which no run is *not detected*


def answer(
    config: Memorization, log_p: Array, held_out: Indices, rng: np.random.Generator, planted_rows: int = 0
) -> Answer:
    """The answer of a run with these log densities, from 4,095 permutations.

    Memory is planted into the first `planted_rows` observations. Planting takes most of the time and matters only for
    *not detected*; with fewer than 17 planted observations, the detection limit has no upper limit.
    """
    level = alone(len(log_p), config.leaves_out_rows)
    detection_limits = least_found(
        log_p[:planted_rows],
        reassign_models(log_p[:planted_rows], held_out[:planted_rows], rng),
        level,
        config.negligible,
    )
    return decided(config, counted_rows(replace(config, permutations=4095), log_p, held_out, rng, detection_limits))


def answers(seed: int, sd: float, quality: float, memory: Array, runs: int, planted_rows: int = 0) -> Counter[str]:
    """The answers of runs in which training raises log p of each observation by `memory` (n,)."""
    rng = np.random.default_rng(seed)
    counts = Counter[str]()
    for _ in range(runs):
        log_p = noise(rng, ROWS, 6, 4, sd, quality)
        out = partitions(rng, ROWS, 6, 4)
        log_p += np.where(np.arange(4) == out[:, :, None], 0.0, memory[:, None, None])
        counts[answer(KFOLD, log_p, out, rng, planted_rows)] += 1
    return counts


@pytest.mark.slow  # 300 runs
def test_folds_without_memory_are_seldom_called_memorised() -> None:
    planted_counts = answers(0, 0.3, 2.0, np.zeros(ROWS), PLANTED_RUNS, planted_rows=17)
    counts = planted_counts + answers(5, 0.3, 2.0, np.zeros(ROWS), RUNS - PLANTED_RUNS)
    assert counts["memorised"] <= 0.05 * RUNS
    assert planted_counts["not detected"] > PLANTED_RUNS / 2  # so a run can have this answer


@pytest.mark.slow  # 220 runs
def test_negligible_effects_are_seldom_called_memorised() -> None:
    # Models differ by 0.02 nats on an image, so a test of any effect at all would detect 0.1 nats.
    counts = answers(1, 0.02, 0.02, np.full(ROWS, KFOLD.negligible), 200)
    assert counts["memorised"] <= 0.05 * 200 + 3 * (200 * 0.05 * 0.95) ** 0.5
    assert answers(2, 0.02, 0.02, np.full(ROWS, 2 * KFOLD.negligible), 20)["memorised"] == 20


def test_single_memorised_observation_is_always_detected() -> None:
    memory = np.zeros(ROWS)
    memory[7] = 80.0
    assert answers(3, 3.0, 2.0, memory, 20, planted_rows=17) == {"memorised": 20}


def test_images_with_copies_are_not_called() -> None:
    # 8 x 5 copies and 40 images without copies, all memorised by 30 nats: an image's copies are trained on in its
    # place.
    rng = np.random.default_rng(4)
    n = 200
    log_p = noise(rng, n, 10, 10, 2.0, 1.0)
    out = partitions(rng, n, 10, 10)
    was_trained_on = out[:, :, None] != np.arange(10)
    was_trained_on[:40] = was_trained_on[:40].reshape(8, 5, 10, 10).any(axis=1).repeat(5, axis=0)
    log_p[:80] += 30.0 * was_trained_on[:80]
    is_called = adjust_p_values(p_values(log_p, out, 999, rng, negligible=KFOLD.negligible), False) <= 0.05
    assert is_called[:40].sum() == 0
    assert is_called[40:80].sum() == 40
    assert is_called[80:].sum() == 0
    assert "no near copy of a tested image" in CONDITIONS[1].clause


@pytest.mark.slow  # 300 runs
def test_single_rows_without_memory_are_seldom_called_memorised() -> None:
    # Models of all data evaluate all rows, so the p-values of the rows are correlated.
    rng = np.random.default_rng(1)
    counts = Counter[str]()
    for _ in range(RUNS):
        log_p = noise(rng, 12, 10, 2, 0.1)
        log_p[:, :, 0] += 0.1 * rng.normal(size=(1, 10))
        counts[answer(ALONE, log_p, np.ones((12, 10), np.int64), rng)] += 1
    assert counts["memorised"] <= 0.05 * RUNS


def test_observations_without_memory_are_seldom_called() -> None:
    # Twenty observations, three repetitions of eight models: each p-value is a multiple of 1/512, equally likely. The
    # rate of at least one call comes from a simulation of such numbers; for continuous ones it would be 5 %.
    tables = 5000
    n = 20
    rng = np.random.default_rng(2)
    log_p = noise(rng, tables * n, 3, 8, 5.0, 3.0)
    p = p_values(log_p, rng.integers(0, 8, (tables * n, 3)), 511, rng).reshape(tables, n)
    called_runs = sum(bool((adjust_p_values(p_of_run, False) <= 0.05).any()) for p_of_run in p)
    simulated_p = np.sort(rng.integers(1, 513, (200_000, n)) / 512, axis=1)
    expected = float((simulated_p <= 0.05 * np.arange(1, n + 1) / n).any(axis=1).mean())
    assert 0.035 < expected < 0.05
    assert_rate(expected, called_runs)
