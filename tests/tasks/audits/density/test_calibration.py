"""How often the audit calls something memorised where nothing is, and what it finds: simulated runs, and the answer."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from studies.density_error_rates import answer as decided
from studies.density_error_rates import counted_rows
from tasks.audits.density.answer import LIMITS
from tasks.audits.density.config import KFold, Memorization, SingleRows
from tasks.audits.density.memorization import Array, Indices
from tasks.audits.density.reassignment import least_found, p_values, reassign_models
from tasks.audits.density.tail import adjust_p_values, alone
from tasks.contract.verdict import Answer
from tests.support.calibration import assert_rate
from tests.tasks.audits.density.made_up import noise, partitions

KFOLD = Memorization(repetitions=6, estimator=KFold(4))
ALONE = Memorization(estimator=SingleRows(12), repetitions=10)
RUNS, ROWS = 300, 60
ASKED = 30  # of the runs in which memory is planted, without which none is *not detected*


def answer(config: Memorization, log_p: Array, out: Indices, chance: np.random.Generator, few: int = 0) -> Answer:
    """The answer of a run with these log densities, from 4,095 permutations.

    Memory is planted into the first `few` observations. That takes most of the time and matters to *not detected* only;
    of fewer than 17 there is no upper limit.
    """
    level = alone(len(log_p), config.leaves_out_rows)
    found = least_found(log_p[:few], reassign_models(log_p[:few], out[:few], chance), level, config.negligible)
    return decided(config, counted_rows(replace(config, permutations=4095), log_p, out, chance, found))


def answers(seed: int, sd: float, quality: float, memory: Array, runs: int, few: int = 0) -> Counter[str]:
    """The answers of runs in which training raises log p of each observation by `memory` (n,)."""
    chance, given = np.random.default_rng(seed), Counter[str]()
    for _ in range(runs):
        log_p, out = noise(chance, ROWS, 6, 4, sd, quality), partitions(chance, ROWS, 6, 4)
        log_p += np.where(np.arange(4) == out[:, :, None], 0.0, memory[:, None, None])
        given[answer(KFOLD, log_p, out, chance, few)] += 1
    return given


@pytest.mark.slow  # 300 runs
def test_folds_that_memorise_nothing_are_called_memorised_in_no_more_than_one_run_of_twenty() -> None:
    asked = answers(0, 0.3, 2.0, np.zeros(ROWS), ASKED, few=17)
    given = asked + answers(5, 0.3, 2.0, np.zeros(ROWS), RUNS - ASKED)
    assert given["memorised"] <= 0.05 * RUNS
    assert asked["not detected"] > ASKED / 2  # so that a run may say so


@pytest.mark.slow  # 220 runs
def test_what_training_raises_all_by_no_more_than_is_negligible_is_not_called_memorised() -> None:
    # Models differ by 0.02 nats on an image, so that any test of nothing at all would find 0.1 nats.
    given = answers(1, 0.02, 0.02, np.full(ROWS, KFOLD.negligible), 200)
    assert given["memorised"] <= 0.05 * 200 + 3 * (200 * 0.05 * 0.95) ** 0.5
    assert answers(2, 0.02, 0.02, np.full(ROWS, 2 * KFOLD.negligible), 20)["memorised"] == 20


def test_a_single_memorised_observation_is_found_and_never_not_seen() -> None:
    memory = np.zeros(ROWS)
    memory[7] = 80.0
    assert answers(3, 3.0, 2.0, memory, 20, few=17) == {"memorised": 20}


def test_of_images_with_copies_in_the_data_none_is_called() -> None:
    # 8 x 5 copies, and 40 images without one, all memorised by 30 nats: copies are trained on for one another.
    chance, n = np.random.default_rng(4), 200
    log_p, out = noise(chance, n, 10, 10, 2.0, 1.0), partitions(chance, n, 10, 10)
    trained = out[:, :, None] != np.arange(10)
    trained[:40] = trained[:40].reshape(8, 5, 10, 10).any(axis=1).repeat(5, axis=0)
    log_p[:80] += 30.0 * trained[:80]
    called = adjust_p_values(p_values(log_p, out, 999, chance, negligible=KFOLD.negligible), False) <= 0.05
    assert (called[:40].sum(), called[40:80].sum(), called[80:].sum()) == (0, 40, 0)
    assert "near copies in the data" in LIMITS


@pytest.mark.slow  # 300 runs
def test_rows_left_out_one_by_one_are_called_memorised_in_no_more_than_one_run_of_twenty() -> None:
    # Models of all data answer for all rows: their p-values rise and fall together.
    chance, given = np.random.default_rng(1), Counter[str]()
    for _ in range(RUNS):
        log_p = noise(chance, 12, 10, 2, 0.1)
        log_p[:, :, 0] += 0.1 * chance.normal(size=(1, 10))
        given[answer(ALONE, log_p, np.ones((12, 10), np.int64), chance)] += 1
    assert given["memorised"] <= 0.05 * RUNS


def test_of_observations_that_nothing_memorised_none_is_called_in_nineteen_runs_of_twenty() -> None:
    # Twenty observations, three repetitions of eight models: each p-value is one of 512, equally likely, and at least
    # one is called as often as a simulation of such numbers says; of continuous ones it would be in 5 %.
    tables, n = 5000, 20
    rng = np.random.default_rng(2)
    log_p = noise(rng, tables * n, 3, 8, 5.0, 3.0)
    p = p_values(log_p, rng.integers(0, 8, (tables * n, 3)), 511, rng).reshape(tables, n)
    called = sum(bool((adjust_p_values(each, False) <= 0.05).any()) for each in p)
    likely = np.sort(rng.integers(1, 513, (200_000, n)) / 512, axis=1)
    expected = float((likely <= 0.05 * np.arange(1, n + 1) / n).any(axis=1).mean())
    assert 0.035 < expected < 0.05
    assert_rate(expected, called)
