"""U-LiRA where its accuracy is known: models that are alike, models that differ, and those between."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tasks.audits.forgetting.u_lira import accuracy, gaussian, log_density


def models(chance: np.random.Generator, count: int, difficulty: NDArray[np.float64], shift: float = 0.0) -> NDArray:
    return difficulty + shift + chance.normal(size=(count, len(difficulty)))


def test_unlearned_models_that_are_like_retrained_ones_are_told_by_chance() -> None:
    chance = np.random.default_rng(0)
    found = []
    for _ in range(200):
        difficulty = 3 * chance.normal(size=40)
        found.append(accuracy(models(chance, 4, difficulty), models(chance, 4, difficulty)))
    assert 0.5 == pytest.approx(np.mean([estimate.value for estimate in found]), abs=0.01)
    covered = sum(estimate.low <= 0.5 <= estimate.high for estimate in found if estimate.low is not None)
    assert covered >= 186  # 93 %


def test_a_shift_of_two_deviations_is_told_as_the_best_attack_tells_it() -> None:
    chance = np.random.default_rng(1)
    difficulty = 3 * chance.normal(size=4000)
    found = accuracy(models(chance, 40, difficulty, 2.0), models(chance, 40, difficulty))
    assert stats.norm.cdf(1) == pytest.approx(found.value, abs=0.01)
    assert 40 == found.n


def test_models_far_apart_are_always_told() -> None:
    chance = np.random.default_rng(2)
    difficulty = chance.normal(size=30)
    assert 1.0 == accuracy(models(chance, 3, difficulty, 50.0), models(chance, 3, difficulty)).value


@pytest.mark.parametrize("counts", [(2, 9), (9, 2), (1, 9)])
def test_there_is_none_with_fewer_than_three_models_of_a_kind(counts: tuple[int, int]) -> None:
    found = accuracy(*(np.zeros((count, 5)) for count in counts))
    assert (None, None, None, 0) == (found.value, found.low, found.high, found.n)


def test_a_gaussian_has_a_mean_for_each_image_and_the_variance_of_a_new_model() -> None:
    centre, variance = gaussian(np.array([[0.0, 10.0], [2.0, 10.0]]))
    assert [1.0, 10.0] == centre.tolist()
    assert variance == pytest.approx((2 + 0) / 2 * 1.5)
    x = np.array([0.5, 12.0])
    expected = stats.norm.logpdf(x, centre, np.sqrt(variance)) + np.log(2 * np.pi) / 2
    np.testing.assert_allclose(log_density(x, centre, variance), expected)


def test_models_without_any_variance_are_told_by_chance() -> None:
    same = np.zeros((4, 6))
    assert 0.5 == accuracy(same, same).value
