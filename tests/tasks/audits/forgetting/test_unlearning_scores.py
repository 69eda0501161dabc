"""U-LiRA, forgetting quality and PrivLeak with known values, by hand for few models or by simulation."""

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


def models(rng: np.random.Generator, count: int, difficulty: NDArray[np.float64], shift: float = 0.0) -> NDArray:
    return difficulty + shift + rng.normal(size=(count, len(difficulty)))


def test_equal_models_are_distinguished_by_chance() -> None:
    rng = np.random.default_rng(0)
    result = []
    for _ in range(200):
        difficulty = 3 * rng.normal(size=40)
        result.append(u_lira_accuracy(models(rng, 4, difficulty), models(rng, 4, difficulty)))
    assert pytest.approx(np.mean([estimate.value for estimate in result]), abs=0.01) == 0.5
    covered = sum(estimate.low <= 0.5 <= estimate.high for estimate in result if estimate.low is not None)
    assert covered >= 186  # 93 %


def test_accuracy_reaches_the_best_attack() -> None:
    rng = np.random.default_rng(1)
    difficulty = 3 * rng.normal(size=4000)
    result = u_lira_accuracy(models(rng, 40, difficulty, 2.0), models(rng, 40, difficulty))
    assert stats.norm.cdf(1) == pytest.approx(result.value, abs=0.01)
    assert result.n == 40


def test_distant_models_are_always_distinguished() -> None:
    rng = np.random.default_rng(2)
    difficulty = rng.normal(size=30)
    assert u_lira_accuracy(models(rng, 3, difficulty, 50.0), models(rng, 3, difficulty)).value == 1.0


@pytest.mark.parametrize("counts", [(2, 9), (9, 2), (1, 9)])
def test_accuracy_needs_three_models_of_a_kind(counts: tuple[int, int]) -> None:
    result = u_lira_accuracy(*(np.zeros((count, 5)) for count in counts))
    assert result.value is None
    assert result.low is None
    assert result.high is None
    assert result.n == 0


def test_gaussian_has_image_means_and_new_model_variance() -> None:
    centre, variance = gaussian(np.array([[0.0, 10.0], [2.0, 10.0]]))
    assert centre.tolist() == [1.0, 10.0]
    assert variance == pytest.approx((2 + 0) / 2 * 1.5)
    x = np.array([0.5, 12.0])
    expected = stats.norm.logpdf(x, centre, np.sqrt(variance)) + np.log(2 * np.pi) / 2
    np.testing.assert_allclose(log_density(x, centre, variance), expected)


def test_constant_models_are_distinguished_by_chance() -> None:
    constant = np.zeros((4, 6))
    assert u_lira_accuracy(constant, constant).value == 0.5


Array = NDArray[np.float64]


def epsilon(unlearned: Array, retrained: Array) -> float:
    """Epsilon of one image over every attack that names the models between two thresholds, or the others."""
    values = np.concatenate([unlearned, retrained])
    positions = np.unique(values)
    thresholds = [-np.inf, *(positions[1:] + positions[:-1]) / 2, np.inf]
    result = [0.0]
    for low, high in itertools.combinations(thresholds, 2):
        for inside in (True, False):
            mask = []
            for models in (unlearned, retrained):
                mask.append(((models > low) & (models < high)) == inside)
            fnr = 1 - mask[0].mean()
            fpr = mask[1].mean()
            if fnr == fpr == 0:
                result.append(math.inf)
            elif fnr and fpr:
                result += [math.log((1 - a) / b) for a, b in ((fpr, fnr), (fnr, fpr)) if a < 1]
    return max(result)


def epsilon_by_sorting(unlearned: Array, retrained: Array) -> Array:
    order, cuts = sort_models(np.concatenate([unlearned, retrained]))
    return epsilons(order < len(unlearned), cuts)


@pytest.mark.parametrize("decimals", [8, 1])  # with one decimal there are ties
def test_epsilon_is_that_of_the_best_attack(decimals: int) -> None:
    rng = np.random.default_rng(0)
    unlearned = rng.normal(0.7, 2, (4, 60)).round(decimals)
    retrained = rng.normal(0, 1, (4, 60)).round(decimals)
    expected = [epsilon(*pair) for pair in zip(unlearned.T, retrained.T, strict=True)]
    np.testing.assert_allclose(epsilon_by_sorting(unlearned, retrained), expected, atol=1e-12)


def test_separable_models_have_infinite_epsilon() -> None:
    low, high = np.arange(4.0)[:, None], np.arange(4.0)[:, None] + 10
    assert [math.inf] == epsilon_by_sorting(low, high).tolist() == epsilon_by_sorting(high, low).tolist()
    outside = np.array([-9.0, -8, 8, 9])[:, None]
    # two thresholds
    assert epsilon_by_sorting(low, outside).tolist() == [math.inf]


def test_equal_models_have_epsilon_0() -> None:
    assert epsilon_by_sorting(np.zeros((4, 1)), np.zeros((4, 1))).tolist() == [0.0]


def test_score_halves_with_each_half_of_epsilon() -> None:
    # Five models can show epsilons up to ceil(log 4) = 2: four buckets.
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
def test_null_is_the_mean_over_exchangeable_models(tied: float) -> None:
    """Also if the confidences of many images are equal, so that attacks fail."""
    rng = np.random.default_rng(3)
    kinds = rng.normal(size=(2, 5, 2000))
    kinds[..., : round(tied * 2000)] = 1.0
    assert null(*kinds) == pytest.approx(forgetting_quality(*kinds).value, abs=0.02)
    assert (null(*kinds) > 0.5) == bool(tied)


def test_p_of_exchangeable_models_is_valid() -> None:
    rng = np.random.default_rng(4)
    result = []
    for _ in range(400):
        difficulty = 3 * rng.normal(size=20)
        kinds = difficulty + rng.normal(size=(2, 4, 1)) + rng.normal(size=(2, 4, 20))
        result.append(p_value(*kinds))
    p = np.array(result, np.float64)
    for level in (0.05, 0.1, 0.2, 0.5):
        assert (p <= level).mean() <= level + 3 * math.sqrt(level * (1 - level) / 400)
    assert (p <= 0.5).mean() > 0.35


def test_remembering_models_have_low_quality_and_p() -> None:
    rng = np.random.default_rng(5)
    retrained = rng.normal(size=(5, 30))
    unlearned = rng.normal(size=(5, 30)) + 4
    result = forgetting_quality(unlearned, retrained)
    assert result.value is not None
    assert result.value < 0.5 * null(unlearned, retrained)
    assert result.n == 5
    assert 2 / math.comb(10, 5) == p_value(unlearned, retrained)  # this split, and the same one with kinds exchanged


def test_splits_of_many_models_are_sampled() -> None:
    rng = np.random.default_rng(6)
    retrained = rng.normal(size=(8, 10))
    unlearned = rng.normal(size=(8, 10)) + 3
    assert p_value(unlearned, retrained) == 1 / 400


@pytest.mark.parametrize("counts", [(2, 9), (9, 1)])
def test_quality_needs_three_models_of_a_kind(counts: tuple[int, int]) -> None:
    kinds = [np.zeros((count, 5)) for count in counts]
    result = forgetting_quality(*kinds)
    assert result.value is None
    assert result.low is None
    assert result.high is None
    assert result.n == 0
    assert p_value(*kinds) is None


CONTROL = np.array([False, False, True, True])


def test_area_compares_losses_of_query_and_control() -> None:
    rng = np.random.default_rng(0)
    confidences = rng.random(200).round(2)
    is_control = rng.random(200) < 0.3
    with np.errstate(divide="ignore"):
        losses = np.minimum(-np.log(confidences), 1e3)
    assert roc_auc_score(~is_control, losses) == pytest.approx(
        area_under_curve(confidences[is_control], confidences[~is_control])
    )


def test_more_certain_target_leaks_completely() -> None:
    retrained = np.array([[0.1, 0.9, 0.1, 0.9], [0.2, 0.8, 0.2, 0.8]])
    certain = np.array([[0.9, 0.9, 0.1, 0.1]])
    uncertain = np.array([[0.1, 0.1, 0.9, 0.9]])
    assert privleak(certain, retrained, CONTROL).value == -1.0
    assert privleak(uncertain, retrained, CONTROL).value == 1.0
    assert privleak(retrained, retrained, CONTROL).value == 0.0


def test_monotone_transformation_does_not_change_the_leak() -> None:
    rng = np.random.default_rng(1)
    target, retrained = rng.random((2, 3, 50))
    is_control = np.arange(50) >= 30
    assert privleak(target, retrained, is_control) == privleak(target**4, retrained**4, is_control)


@pytest.mark.parametrize("models", [1, 5])
def test_interval_covers_no_leak_at_the_nominal_rate(models: int) -> None:
    rng = np.random.default_rng(2)
    is_control = np.arange(60) >= 30
    covered = 0
    for _ in range(400):
        difficulty = 2 * rng.normal(size=60)
        target = difficulty + rng.normal(size=(models, 60))
        retrained = difficulty + rng.normal(size=(5, 60))
        result = privleak(target, retrained, is_control)
        assert result.low is not None
        assert result.high is not None
        covered += result.low <= 0 <= result.high
    assert covered >= 366  # 95 % minus three standard errors


def test_leak_needs_control_images_and_models() -> None:
    models = np.full((2, 4), 0.5)
    for target, retrained, is_control in (
        (models, models, np.zeros(4, bool)),
        (models, models, np.ones(4, bool)),
        (models[:0], models, CONTROL),
        (models, models[:0], CONTROL),
    ):
        result = privleak(target, retrained, is_control)
        assert result.value is None
        assert result.n == 0


def test_one_retrained_model_gives_no_interval() -> None:
    result = privleak(np.full((3, 4), 0.5), np.full((1, 4), 0.5), CONTROL)
    assert result.value == 0.0
    assert result.low is None
    assert result.high is None
    assert result.n == 3
