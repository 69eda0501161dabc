"""U-LiRA, forgetting quality and PrivLeak where they are known, by hand for few models or by simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from sklearn.metrics import roc_auc_score

from tasks.audits.forgetting.unlearning_scores import (
    epsilons,
    forgetting_quality,
    gaussian,
    log_density,
    permutation_test,
    privleak,
    score_epsilons,
    sort_models,
    u_lira_accuracy,
)
from tasks.numerics.ranks import area_under_curve


def models(chance: np.random.Generator, count: int, difficulty: NDArray[np.float64], shift: float = 0.0) -> NDArray:
    return difficulty + shift + chance.normal(size=(count, len(difficulty)))


def test_unlearned_models_that_are_like_retrained_ones_are_told_by_chance() -> None:
    chance = np.random.default_rng(0)
    result = []
    for _ in range(200):
        difficulty = 3 * chance.normal(size=40)
        result.append(u_lira_accuracy(models(chance, 4, difficulty), models(chance, 4, difficulty)))
    assert pytest.approx(np.mean([estimate.value for estimate in result]), abs=0.01) == 0.5
    covered = sum(estimate.low <= 0.5 <= estimate.high for estimate in result if estimate.low is not None)
    assert covered >= 186  # 93 %


def test_a_shift_of_two_deviations_is_told_as_the_best_attack_tells_it() -> None:
    chance = np.random.default_rng(1)
    difficulty = 3 * chance.normal(size=4000)
    result = u_lira_accuracy(models(chance, 40, difficulty, 2.0), models(chance, 40, difficulty))
    assert stats.norm.cdf(1) == pytest.approx(result.value, abs=0.01)
    assert result.n == 40


def test_models_far_apart_are_always_told() -> None:
    chance = np.random.default_rng(2)
    difficulty = chance.normal(size=30)
    assert u_lira_accuracy(models(chance, 3, difficulty, 50.0), models(chance, 3, difficulty)).value == 1.0


@pytest.mark.parametrize("counts", [(2, 9), (9, 2), (1, 9)])
def test_there_is_none_with_fewer_than_three_models_of_a_kind(counts: tuple[int, int]) -> None:
    result = u_lira_accuracy(*(np.zeros((count, 5)) for count in counts))
    assert (result.value, result.low, result.high, result.n) == (None, None, None, 0)


def test_a_gaussian_has_a_mean_for_each_image_and_the_variance_of_a_new_model() -> None:
    centre, variance = gaussian(np.array([[0.0, 10.0], [2.0, 10.0]]))
    assert centre.tolist() == [1.0, 10.0]
    assert variance == pytest.approx((2 + 0) / 2 * 1.5)
    x = np.array([0.5, 12.0])
    expected = stats.norm.logpdf(x, centre, np.sqrt(variance)) + np.log(2 * np.pi) / 2
    np.testing.assert_allclose(log_density(x, centre, variance), expected)


def test_models_without_any_variance_are_told_by_chance() -> None:
    same = np.zeros((4, 6))
    assert u_lira_accuracy(same, same).value == 0.5


Array = NDArray[np.float64]


def epsilon(unlearned: Array, retrained: Array) -> float:
    """Of one image, from every attack: name all models between two thresholds, or all others."""
    values = np.concatenate([unlearned, retrained])
    places = np.unique(values)
    thresholds = [-np.inf, *(places[1:] + places[:-1]) / 2, np.inf]
    result = [0.0]
    for low, high in itertools.combinations(thresholds, 2):
        for inside in (True, False):
            mask = [((models > low) & (models < high)) == inside for models in (unlearned, retrained)]
            fnr, fpr = 1 - mask[0].mean(), mask[1].mean()
            if fnr == fpr == 0:
                result.append(math.inf)
            elif fnr and fpr:
                result += [math.log((1 - a) / b) for a, b in ((fpr, fnr), (fnr, fpr)) if a < 1]
    return max(result)


def of(unlearned: Array, retrained: Array) -> Array:
    order, cuts = sort_models(np.concatenate([unlearned, retrained]))
    return epsilons(order < len(unlearned), cuts)


@pytest.mark.parametrize("decimals", [8, 1])  # with one decimal there are ties
def test_epsilon_is_that_of_the_best_of_all_attacks(decimals: int) -> None:
    chance = np.random.default_rng(0)
    unlearned, retrained = (chance.normal(shift, scale, (4, 60)).round(decimals) for shift, scale in ((0.7, 2), (0, 1)))
    expected = [epsilon(*pair) for pair in zip(unlearned.T, retrained.T, strict=True)]
    np.testing.assert_allclose(of(unlearned, retrained), expected, atol=1e-12)


def test_models_that_one_threshold_tells_apart_have_an_infinite_epsilon() -> None:
    low, high = np.arange(4.0)[:, None], np.arange(4.0)[:, None] + 10
    assert [math.inf] == of(low, high).tolist() == of(high, low).tolist()
    outside = np.array([-9.0, -8, 8, 9])[:, None]
    assert [math.inf] == of(low, outside).tolist()  # two thresholds


def test_models_that_say_the_same_have_none() -> None:
    assert of(np.zeros((4, 1)), np.zeros((4, 1))).tolist() == [0.0]


def test_points_halve_with_each_half_of_epsilon() -> None:
    # Five models show epsilons up to ceil(log 4) = 2: four buckets.
    result = score_epsilons(np.array([0, 0.49, 0.5, 1.2, 1.99, 2.0, math.inf]), 5)
    assert result.tolist() == [1, 1, 0.5, 0.25, 0.125, 0, 0]


def p_value(unlearned: Array, retrained: Array) -> float | None:
    result = permutation_test(unlearned, retrained)
    return None if result is None else result[1]


def null(unlearned: Array, retrained: Array) -> float:
    result = permutation_test(unlearned, retrained)
    assert result is not None
    return result[0]


@pytest.mark.parametrize("tied", [0.0, 0.6])
def test_the_null_is_the_mean_over_exchangeable_models(tied: float) -> None:
    """Also where confidences of many images are equal, at which attacks fail."""
    chance = np.random.default_rng(3)
    kinds = chance.normal(size=(2, 5, 2000))
    kinds[..., : round(tied * 2000)] = 1.0
    assert null(*kinds) == pytest.approx(forgetting_quality(*kinds).value, abs=0.02)
    assert (null(*kinds) > 0.5) == bool(tied)


def test_the_p_value_of_exchangeable_models_is_no_smaller_than_it_says() -> None:
    chance = np.random.default_rng(4)
    result = []
    for _ in range(400):
        difficulty = 3 * chance.normal(size=20)
        kinds = difficulty + chance.normal(size=(2, 4, 1)) + chance.normal(size=(2, 4, 20))
        result.append(p_value(*kinds))
    p = np.array(result, np.float64)
    for level in (0.05, 0.1, 0.2, 0.5):
        assert (p <= level).mean() <= level + 3 * math.sqrt(level * (1 - level) / 400)
    assert (p <= 0.5).mean() > 0.35


def test_models_that_did_not_forget_have_a_low_quality_and_p_value() -> None:
    chance = np.random.default_rng(5)
    retrained, unlearned = chance.normal(size=(5, 30)), chance.normal(size=(5, 30)) + 4
    result = forgetting_quality(unlearned, retrained)
    assert result.value is not None
    assert result.value < 0.5 * null(unlearned, retrained)
    assert result.n == 5
    assert 2 / math.comb(10, 5) == p_value(unlearned, retrained)  # this split, and the same with kinds exchanged


def test_of_many_models_splits_are_drawn() -> None:
    chance = np.random.default_rng(6)
    retrained, unlearned = chance.normal(size=(8, 10)), chance.normal(size=(8, 10)) + 3
    assert p_value(unlearned, retrained) == 1 / 400


@pytest.mark.parametrize("counts", [(2, 9), (9, 1)])
def test_there_is_no_quality_with_fewer_than_three_models_of_a_kind(counts: tuple[int, int]) -> None:
    kinds = [np.zeros((count, 5)) for count in counts]
    result = forgetting_quality(*kinds)
    assert (result.value, result.low, result.high, result.n, p_value(*kinds)) == (None, None, None, 0, None)


CONTROL = np.array([False, False, True, True])


def test_the_area_is_that_of_the_losses_of_the_query_set_over_those_of_the_control_set() -> None:
    chance = np.random.default_rng(0)
    confidences, is_control = chance.random(200).round(2), chance.random(200) < 0.3
    with np.errstate(divide="ignore"):
        losses = np.minimum(-np.log(confidences), 1e3)
    assert roc_auc_score(~is_control, losses) == pytest.approx(
        area_under_curve(confidences[is_control], confidences[~is_control])
    )


def test_a_target_that_is_surer_of_all_that_it_should_have_forgotten_leaks_wholly() -> None:
    retrained = np.array([[0.1, 0.9, 0.1, 0.9], [0.2, 0.8, 0.2, 0.8]])
    sure, unsure = np.array([[0.9, 0.9, 0.1, 0.1]]), np.array([[0.1, 0.1, 0.9, 0.9]])
    assert (privleak(sure, retrained, CONTROL).value, privleak(unsure, retrained, CONTROL).value) == (-1.0, 1.0)
    assert privleak(retrained, retrained, CONTROL).value == 0.0


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
        result = privleak(target, retrained, is_control)
        assert result.low is not None
        assert result.high is not None
        covered += result.low <= 0 <= result.high
    assert covered >= 366  # 95 % less three standard errors


def test_there_is_none_without_control_images_or_models() -> None:
    models = np.full((2, 4), 0.5)
    for target, retrained, is_control in (
        (models, models, np.zeros(4, bool)),
        (models, models, np.ones(4, bool)),
        (models[:0], models, CONTROL),
        (models, models[:0], CONTROL),
    ):
        result = privleak(target, retrained, is_control)
        assert (result.value, result.n) == (None, 0)


def test_with_one_retrained_model_there_is_no_interval() -> None:
    result = privleak(np.full((3, 4), 0.5), np.full((1, 4), 0.5), CONTROL)
    assert (result.value, result.low, result.high, result.n) == (0.0, None, None, 3)
