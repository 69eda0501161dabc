"""PrivLeak where the areas under the curve are known."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from tasks.audits.forgetting.privleak import auc, privleak

CONTROL = np.array([False, False, True, True])


def test_the_area_is_that_of_the_losses_of_the_query_set_over_those_of_the_control_set() -> None:
    chance = np.random.default_rng(0)
    confidences, is_control = chance.random(200).round(2), chance.random(200) < 0.3
    with np.errstate(divide="ignore"):
        losses = np.minimum(-np.log(confidences), 1e3)
    assert roc_auc_score(~is_control, losses) == pytest.approx(auc(confidences, is_control))


def test_a_target_that_is_surer_of_all_that_it_should_have_forgotten_leaks_wholly() -> None:
    retrained = np.array([[0.1, 0.9, 0.1, 0.9], [0.2, 0.8, 0.2, 0.8]])
    sure, unsure = np.array([[0.9, 0.9, 0.1, 0.1]]), np.array([[0.1, 0.1, 0.9, 0.9]])
    assert (-1.0, 1.0) == (privleak(sure, retrained, CONTROL).value, privleak(unsure, retrained, CONTROL).value)
    assert 0.0 == privleak(retrained, retrained, CONTROL).value


def test_a_monotone_change_of_confidences_changes_nothing() -> None:
    chance = np.random.default_rng(1)
    target, retrained = chance.random((2, 3, 50))
    is_control = np.arange(50) >= 30
    assert privleak(target, retrained, is_control) == privleak(target**4, retrained**4, is_control)


@pytest.mark.parametrize("models", [1, 5])
def test_its_interval_covers_nothing_leaked_as_often_as_it_says(models: int) -> None:
    chance = np.random.default_rng(2)
    is_control, covered = np.arange(60) >= 30, 0
    for _ in range(400):
        difficulty = 2 * chance.normal(size=60)
        target, retrained = (difficulty + chance.normal(size=(count, 60)) for count in (models, 5))
        found = privleak(target, retrained, is_control)
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 0 <= found.high
    assert covered >= 366  # 95 % less three standard errors


def test_there_is_none_without_control_images_or_models() -> None:
    some = np.full((2, 4), 0.5)
    for target, retrained, is_control in (
        (some, some, np.zeros(4, bool)),
        (some, some, np.ones(4, bool)),
        (some[:0], some, CONTROL),
        (some, some[:0], CONTROL),
    ):
        found = privleak(target, retrained, is_control)
        assert (None, 0) == (found.value, found.n)


def test_with_one_retrained_model_there_is_no_interval() -> None:
    found = privleak(np.full((3, 4), 0.5), np.full((1, 4), 0.5), CONTROL)
    assert (0.0, None, None, 3) == (found.value, found.low, found.high, found.n)
