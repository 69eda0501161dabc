"""The bench of the decisions on densities: that every run is counted, and that what is found is what a run finds."""

from __future__ import annotations

import numpy as np

from bench.density_decisions import ANSWERS, TINY, Case, counted, counts, enough, markdown, simulated
from tasks.audits.density.reassignment import least_found, reassign_models
from tasks.audits.density.tail import alone


def test_every_run_is_answered_and_what_is_planted_is_called() -> None:
    nothing, planted = counts(TINY, 3)
    for row in (nothing, planted):
        assert row.case.runs == sum(row.answers[name] for name in ANSWERS)
    assert planted.case.runs == planted.answers["memorised"] == planted.called
    assert 0 == planted.others
    table = markdown([nothing, planted])
    assert "| nothing memorised: 40 observations, L = 6, K = 4, sd 0.3; 3 runs | " in table
    assert "| one planted: 40 observations, L = 6, K = 4, sd 2; 2 runs | 2, 0, 0 | 2 | 0 | " in table


def test_where_no_observation_could_be_called_nothing_is_not_seen() -> None:
    assert {"undecided": 3} == counted(Case("too few partitions", 60, 2, 4, 0.3, 3), 5).answers


def test_memory_is_enough_for_the_observations_that_a_run_finds_with_as_much() -> None:
    case, seed = Case("some", 60, 6, 4, 4.0, 1), 1
    log_p, out = simulated(case, np.random.default_rng(seed))
    least = least_found(
        log_p[:40],
        reassign_models(log_p[:40], out[:40], np.random.default_rng(2)),
        alone(60, False),
        case.config.negligible,
    )
    found = np.isfinite(enough(case.config, log_p, out, np.random.default_rng(2), 40))
    assert 5 < found.sum() < 35
    near = np.abs(least - case.config.detectable) < 0.01 * case.config.detectable  # memory is searched for to 1 %
    assert ((least <= case.config.detectable) == found)[~near].all()
