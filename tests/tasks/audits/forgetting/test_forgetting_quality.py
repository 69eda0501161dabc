"""Forgetting quality, worked out by hand for few models, and against every attack one by one."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from tasks.audits.forgetting.forgetting_quality import epsilons, permutation_test, quality, score_epsilons, sort_models

Array = NDArray[np.float64]


def epsilon(unlearned: Array, retrained: Array) -> float:
    """Of one image, from every attack: name all models between two thresholds, or all others."""
    values = np.concatenate([unlearned, retrained])
    places = np.unique(values)
    thresholds = [-np.inf, *(places[1:] + places[:-1]) / 2, np.inf]
    found = [0.0]
    for low, high in itertools.combinations(thresholds, 2):
        for inside in (True, False):
            named = [((models > low) & (models < high)) == inside for models in (unlearned, retrained)]
            fnr, fpr = 1 - named[0].mean(), named[1].mean()
            if fnr == fpr == 0:
                found.append(math.inf)
            elif fnr and fpr:
                found += [math.log((1 - a) / b) for a, b in ((fpr, fnr), (fnr, fpr)) if a < 1]
    return max(found)


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
    assert [0.0] == of(np.zeros((4, 1)), np.zeros((4, 1))).tolist()


def test_points_halve_with_each_half_of_epsilon() -> None:
    # Five models show epsilons up to ceil(log 4) = 2: four buckets.
    found = score_epsilons(np.array([0, 0.49, 0.5, 1.2, 1.99, 2.0, math.inf]), 5)
    assert [1, 1, 0.5, 0.25, 0.125, 0, 0] == found.tolist()


def p_value(unlearned: Array, retrained: Array) -> float | None:
    found = permutation_test(unlearned, retrained)
    return None if found is None else found[1]


def null(unlearned: Array, retrained: Array) -> float:
    found = permutation_test(unlearned, retrained)
    assert found is not None
    return found[0]


@pytest.mark.parametrize("tied", [0.0, 0.6])
def test_the_null_is_the_mean_over_exchangeable_models(tied: float) -> None:
    """Also where confidences of many images are equal, at which attacks fail."""
    chance = np.random.default_rng(3)
    kinds = chance.normal(size=(2, 5, 2000))
    kinds[..., : round(tied * 2000)] = 1.0
    assert null(*kinds) == pytest.approx(quality(*kinds).value, abs=0.02)
    assert (null(*kinds) > 0.5) == bool(tied)


def test_the_p_value_of_exchangeable_models_is_no_smaller_than_it_says() -> None:
    chance = np.random.default_rng(4)
    found = []
    for _ in range(400):
        difficulty = 3 * chance.normal(size=20)
        kinds = difficulty + chance.normal(size=(2, 4, 1)) + chance.normal(size=(2, 4, 20))
        found.append(p_value(*kinds))
    p = np.array(found, np.float64)
    for level in (0.05, 0.1, 0.2, 0.5):
        assert (p <= level).mean() <= level + 3 * math.sqrt(level * (1 - level) / 400)
    assert (p <= 0.5).mean() > 0.35


def test_models_that_did_not_forget_have_a_low_quality_and_p_value() -> None:
    chance = np.random.default_rng(5)
    retrained, unlearned = chance.normal(size=(5, 30)), chance.normal(size=(5, 30)) + 4
    found = quality(unlearned, retrained)
    assert found.value is not None
    assert found.value < 0.5 * null(unlearned, retrained)
    assert 5 == found.n
    assert 2 / math.comb(10, 5) == p_value(unlearned, retrained)  # this split, and the same with kinds exchanged


def test_of_many_models_splits_are_drawn() -> None:
    chance = np.random.default_rng(6)
    retrained, unlearned = chance.normal(size=(8, 10)), chance.normal(size=(8, 10)) + 3
    assert 1 / 400 == p_value(unlearned, retrained)


@pytest.mark.parametrize("counts", [(2, 9), (9, 1)])
def test_there_is_none_with_fewer_than_three_models_of_a_kind(counts: tuple[int, int]) -> None:
    kinds = [np.zeros((count, 5)) for count in counts]
    found = quality(*kinds)
    assert (None, None, None, 0, None) == (found.value, found.low, found.high, found.n, p_value(*kinds))
