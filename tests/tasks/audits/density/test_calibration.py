"""How often the audit calls something memorised where nothing is: tables of a null, the summary's code, the answer."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tasks import statistics
from tasks.audits.density import Density
from tasks.audits.density.about import about
from tasks.audits.density.measures.distribution import DISTRIBUTION, Gain
from tasks.audits.density.measures.scores import significance
from tasks.audits.density.reassignment import p_values
from tasks.audits.density.summary import summary
from tasks.audits.density.verdict import verdict
from tests.support.calibration import DRAWS, assert_rate
from tests.tasks.audits.density.made_up import noise, partitions

KFOLD = Density(repetitions=4, folds=4)
ALONE = Density(estimator="loo", left_out=12, repetitions=6)


def told(config: Density, gain: Gain) -> dict[str, Any]:
    """The row of the distributions' table that tells this gain."""
    estimate = gain.estimate
    p_value = gain.t_test() if config.estimator == "loo" else gain.p_value()
    row = dict.fromkeys(DISTRIBUTION.names) | {"epoch": 2, "score": "gain", "statistic": "mean", "null": 0.0}
    row |= {"estimate": estimate.value, "low": estimate.low, "high": estimate.high}
    return row | {"n": estimate.n, "p_value": p_value}


def answers(config: Density, rows: list[dict[str, Any]]) -> Counter[str]:
    """The answers to as many runs as there are rows, each by way of its row in the table and in the summary."""
    table = pa.Table.from_pylist(rows, DISTRIBUTION)
    runs = summary(about(config), [table])
    assert len(rows) == runs.num_rows
    return Counter(verdict(config, runs.slice(run, 1)).answer for run in range(len(rows)))


@pytest.mark.slow  # 5,000 summaries
def test_folds_that_memorise_nothing_are_called_memorised_in_one_run_of_twenty() -> None:
    # The randomisation test is one-sided and has a level of 5 %; its normal approximation, over 96 observations and
    # four partitions of models that differ in how good they are, keeps to that. The t interval covers 0 in 95 %.
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(DRAWS):
        gain = Gain(4, 4)
        gain.add(noise(rng, 96, 4, 4, 0.5, 3.0), partitions(rng, 96, 4, 4))
        rows.append(told(KFOLD, gain))
    assert_rate(0.95, sum(row["low"] <= 0 <= row["high"] for row in rows))
    assert_rate(0.5, sum(row["p_value"] <= 0.5 for row in rows))
    found = answers(KFOLD, rows)
    assert_rate(0.05, found["memorised"])
    assert found["not seen"] > DRAWS / 10  # so that a run may say so


@pytest.mark.slow  # 5,000 summaries
def test_rows_left_out_one_by_one_are_called_memorised_in_one_run_of_twenty() -> None:
    # The one-tailed t-test over six repetitions, whose gains are normal here.
    rng = np.random.default_rng(1)
    rows = []
    for _ in range(DRAWS):
        gain = Gain(6, 2)
        gain.add(noise(rng, 12, 6, 2, 0.1), np.ones((12, 6), np.int64))
        rows.append(told(ALONE, gain))
    found = answers(ALONE, rows)
    assert_rate(0.05, found["memorised"])
    assert found["not seen"] > DRAWS / 10


def test_of_observations_that_nothing_memorised_none_is_called_in_nineteen_runs_of_twenty() -> None:
    # Twenty observations, three repetitions of eight models: each p-value is one of 512, equally likely, and at least
    # one is called as often as a simulation of such numbers says; of continuous ones it would be in 5 %.
    tables, n = DRAWS, 20
    rng = np.random.default_rng(2)
    log_p = noise(rng, tables * n, 3, 8, 5.0, 3.0)
    p = p_values(log_p, rng.integers(0, 8, (tables * n, 3)), 511, rng).reshape(tables, n)
    called, shares = 0, 0.0
    for each in p:
        scores = pa.table({"p_adjusted": statistics.false_discovery_adjusted(each)})
        first = next(iter(significance(scores, 1 / 512)))
        called += first["estimate"] > 0
        shares += first["n"]
    likely = np.sort(rng.integers(1, 513, (200_000, n)) / 512, axis=1)
    expected = float((likely <= 0.05 * np.arange(1, n + 1) / n).any(axis=1).mean())
    assert 0.035 < expected < 0.05
    assert_rate(expected, called)
    assert n * tables == shares
