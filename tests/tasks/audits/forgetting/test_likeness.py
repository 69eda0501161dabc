"""Whether a target is like the calibration models where D_Q plays no part."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tasks.audits.forgetting.likeness import (
    LEVEL,
    agreement,
    calibration_agreements,
    count_disagreements,
    likeness_check,
)
from tests.support.calibration import assert_rate
from tests.tasks.audits.forgetting.made_up import audit


def test_the_check_is_the_t_test_of_a_further_model() -> None:
    found = likeness_check([0.9], [0.7, 0.8, 0.84])
    spread = np.std([0.7, 0.8, 0.84], ddof=1) * np.sqrt(1 + 1 / 3)
    assert 2 * stats.t.sf(abs(0.9 - 0.78) / spread, 2) == pytest.approx(found.p)
    assert (0.9, pytest.approx(0.78)) == (found.value, found.expected)


def test_equal_models_are_alike_and_what_is_not_known_is_neither() -> None:
    assert likeness_check([0.8], [0.8, 0.8]).is_alike
    assert False is likeness_check([0.9], [0.8, 0.8]).is_alike
    assert (0.9, None) == (likeness_check([0.9], [0.8]).value, likeness_check([0.9], [0.8]).is_alike)
    assert (None, None) == (likeness_check(None, [0.8, 0.7]).value, likeness_check([], []).is_alike)


def test_one_more_calibration_model_fails_as_often_as_the_level_says() -> None:
    chance, runs = np.random.default_rng(0), 5000
    drawn = chance.normal(0.9, 0.01, (runs, 6))
    assert_rate(LEVEL, sum(not likeness_check([row[0]], row[1:].tolist()).is_alike for row in drawn), runs)


def test_noise_lowers_the_agreement_and_an_ensemble_raises_it() -> None:
    chance = np.random.default_rng(1)
    calibration, targets = audit(chance)
    known = calibration_agreements(calibration)
    one = agreement(targets[0], calibration)
    assert likeness_check([one or 0.0], known).is_alike
    noisy = agreement(np.clip(targets[0] + 0.3 * chance.normal(size=800), 0, 1), calibration)
    together = agreement(targets.mean(axis=0), calibration)
    assert (noisy or 1.0) < min(known) < max(known) < (together or 0.0)
    assert (None, []) == (agreement(targets[0], calibration[:1]), calibration_agreements(calibration[:1]))


def test_answers_to_one_picture_may_differ_by_what_was_printed_and_no_more() -> None:
    said, again = np.array([0.5, 0.50, 0.9, 0.3]), np.array([np.nan, 0.51, 0.8, 0.3])
    assert (2, 3) == count_disagreements(said, again, 0.0)
    assert (1, 3) == count_disagreements(said, again, 0.01)
    assert (0, 1) == count_disagreements(np.array([0.5]), np.array([0.5001]), 0.0)
