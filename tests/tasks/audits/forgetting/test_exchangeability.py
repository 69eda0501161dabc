"""The test of whether D_Q and the control set are exchangeable: exact for any model, invariant to scale."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tasks.audits.forgetting import exchangeability
from tasks.audits.forgetting.exchangeability import (
    effect,
    log_odds,
    neighbour_contrast,
    p_values,
    ranks,
    scores,
    unit_scores,
)
from tests.support.calibration import assert_rate, bounds
from tests.tasks.audits.forgetting.made_up import Array, audit

IMAGES = 200
IS_CONTROL = np.arange(2 * IMAGES) >= IMAGES


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def p_of(target: Array, calibration: Array, is_control: NDArray[np.bool_] = IS_CONTROL, seed: int = 0) -> float:
    return p_values(scores(target, calibration), is_control, 199, generator(seed)).surer


def test_ranks_agree_with_scipy() -> None:
    values = np.array([3.0, 1.0, 3.0, 2.0, 3.0])
    assert ((stats.rankdata(values) - 0.5) / 5).tolist() == pytest.approx(ranks(values).tolist())


def test_images_are_compared_with_equally_easy_neighbours() -> None:
    easiness = np.array([4.0, 1.0, 2.0, 3.0])  # a quarter of four images: one neighbour on each side
    values = np.array([10.0, 1.0, 3.0, 8.0])
    assert neighbour_contrast(values, easiness).tolist() == [10 - 8, 1 - 3, 3 - (1 + 8) / 2, 8 - (3 + 10) / 2]
    assert neighbour_contrast(np.array([5.0]), np.ones(1)).tolist() == [5.0]
    assert neighbour_contrast(np.array([1.0, 2.0, 6.0]), np.arange(3)).tolist() == [1 - 2, 2 - (1 + 6) / 2, 6 - 2]
    # A quarter of twelve images: three neighbours on each side.
    powers = 2.0 ** np.arange(12)
    result = neighbour_contrast(powers, np.arange(12))
    assert pytest.approx([result[0], result[6]]) == [1 - (2 + 4 + 8) / 3, 64 - (8 + 16 + 32 + 128 + 256 + 512) / 6]


def scores_by_hand(confidence: Array, calibration: Array) -> Array:
    """The formula in the module's docstring, image by image."""
    n = len(confidence)
    models = len(calibration)
    log_odds_of_references = np.log(calibration) - np.log1p(-calibration)
    easiness = log_odds_of_references.mean(axis=0)
    rank = (stats.rankdata(confidence) - 0.5) / n
    hard = 1 - (stats.rankdata(easiness) - 0.5) / n
    order = np.argsort(easiness)
    u = np.empty(n)
    v = np.empty(n)
    variance = log_odds_of_references.var(axis=0, ddof=1)
    for position, image in enumerate(order):
        near = []
        for other_data in order[max(0, position - 25) : position + 26]:
            if other_data != image:
                near.append(other_data)
        u[image] = hard[image] ** 2 * (rank[image] - rank[near].mean())
        s = np.sqrt(((models - 1) * variance[image] + 3 * np.median(variance)) / (models - 1 + 3))
        z = (np.quantile(log_odds_of_references, rank[image]) - easiness[image]) / s
        v[image] = hard[image] * min(max(z - 1.5, 0), 4)
    return np.asarray((u - u.mean()) / u.std() + (v - v.mean()) / v.std())


@pytest.mark.filterwarnings("error")  # one model has no variance
@pytest.mark.parametrize("models", [2, 4])
def test_scores_follow_the_formula(models: int) -> None:
    draws = generator(5)
    easiness = draws.normal(0, 2, 150)
    calibration = 1 / (1 + np.exp(-easiness - draws.normal(0, 1, (models, 150))))
    scores_of_model = 1 / (1 + np.exp(-easiness - draws.normal(0, 1, 150)))
    scores_of_model[:3] = 1 - 1e-6 * np.arange(1, 4)  # far above the calibration models
    expected = scores_by_hand(scores_of_model, calibration)
    np.testing.assert_allclose(expected, scores(scores_of_model, calibration), atol=1e-9)
    # One calibration model does not show how models vary: only the first part counts.
    shift = (1 - ranks(calibration[0])) ** 2 * neighbour_contrast(ranks(scores_of_model), log_odds(calibration[0]))
    of_one = scores(scores_of_model, calibration[:1])
    np.testing.assert_allclose((shift - shift.mean()) / shift.std(), of_one, atol=1e-9)
    # Equal models give the same result; a model with equal confidences for all images has scores of 0.
    equal = np.repeat(calibration[:1], 2, axis=0)
    np.testing.assert_allclose(of_one, scores(scores_of_model, equal), atol=1e-9)
    assert scores(np.full(150, 0.5), equal).tolist() == [0.0] * 150


@pytest.mark.parametrize("temperature", [0.5, 1.5, 4.0])
def test_temperature_does_not_change_scores(temperature: float) -> None:
    calibration, target = audit(generator(), images=IMAGES)
    inside = np.clip(target[0], 1e-6, 1 - 1e-6)
    cooler = 1 / (1 + np.exp(-log_odds(inside) / temperature))
    np.testing.assert_allclose(scores(inside, calibration), scores(cooler, calibration), atol=1e-9)


@pytest.mark.parametrize("other_data", [0.0, 2.0])
def test_clean_models_are_accused_at_the_nominal_rate(other_data: float) -> None:
    result = []
    for seed in range(400):
        calibration, target = audit(generator(seed), replicates=3, images=50, domain_effect=other_data)
        is_control = generator(seed).permutation(np.arange(100) >= 50)
        result.append(p_of(target[0], calibration, is_control, seed))
    assert_rate(0.025, sum(p <= 0.025 for p in result), 400)
    assert_rate(0.5, sum(p <= 0.5 for p in result), 400)


def test_model_of_a_quarter_is_detected() -> None:
    for other_data in (0.0, 2.0):
        calibration, target = audit(generator(1), (0.25,), 20, IMAGES, other_data)
        result = sum(p_of(one, calibration[:5]) <= 0.025 for one in target)
        assert result >= 16


def test_knowing_the_control_set_better_is_no_finding() -> None:
    calibration, target = audit(generator(2), (1.0,), images=IMAGES)
    assert min(p_of(one, calibration, ~IS_CONTROL) for one in target) > 0.9


def test_p_agrees_with_all_draws() -> None:
    values = np.array([5.0, 1.0, 2.0, 0.0])
    control = np.array([False, False, True, True])
    # Of the six pairs, (5, 2) has a larger sum than (5, 1): 2 of 6 are at least as large, and five of six are at most
    # as large.
    result = p_values(values, control, 6000, generator())
    for p, share in zip(result, (2 / 6, 5 / 6), strict=True):
        low, high = bounds(share, 6000)
        assert low <= p * 6001 - 1 <= high
    assert p_values(np.zeros(4), control, 99, generator()) == (1.0, 1.0)


@pytest.mark.parametrize(("numbers", "sizes"), [(1, [1] * 7), (8, [2, 2, 2, 1]), (11, [2, 2, 2, 1]), (99, [7])])
def test_draws_are_counted_in_blocks(monkeypatch: pytest.MonkeyPatch, numbers: int, sizes: list[int]) -> None:
    values = np.array([5.0, 1.0, 2.0, 0.0])
    control = np.array([False, True, True, True])
    block_sizes = []

    class Turned:
        """Rolls every value by the number of rows returned so far."""

        def permuted(self, rows: Array, axis: int) -> Array:
            assert axis == 1
            start = sum(block_sizes)
            block_sizes.append(len(rows))
            return np.stack([np.roll(row, start + index) for index, row in enumerate(rows)])

    monkeypatch.setattr(exchangeability, "BLOCK", numbers)
    # The first of the rolled rows, in turn: 5 0 2 1 5 0 2; two of these seven are at least 5, and all at most.
    assert p_values(values, control, 7, Turned()) == (3 / 8, 8 / 8)  # type: ignore[arg-type]
    assert sizes == block_sizes


@pytest.mark.parametrize("scale", [1.0, 1e9 / 3])
def test_sums_equal_up_to_rounding_are_ties(scale: float) -> None:
    values = scale * np.array([0.1, 0.2, 0.3, 0.3, 0.2, 0.1, 0.0])  # 0.1 + 0.2 + 0.3 depends on the order
    control = np.array([False, False, False, True, True, True, True])
    result = p_values(values, control, 2000, generator())
    sums = [round(10 * sum(item) / scale) for item in combinations(values, 3)]
    for p, share in zip(result, (np.mean(np.array(sums) >= 6), np.mean(np.array(sums) <= 6)), strict=True):
        low, high = bounds(float(share), 2000)
        assert low <= p * 2001 - 1 <= high


def test_effect_is_welchs_statistic_with_common_spread() -> None:
    values = np.array([5.0, 1.0, 2.0, 0.0])
    control = np.array([False, False, True, True])
    assert (3.0 - 1.0) / values.std(ddof=1) == pytest.approx(effect(values, control))
    assert effect(np.zeros(4), control) == 0.0
    uneven = np.array([False, True, True, True])
    assert (5.0 - 1.0) / (values.std(ddof=1) * np.sqrt(1 + 1 / 3)) == pytest.approx(effect(values, uneven))


def test_images_of_a_group_count_once() -> None:
    values = np.array([1.0, 3.0, 5.0, 7.0])
    means, control = unit_scores(values, np.array([9, 9, 2, 4]), np.array([True, True, False, False]))
    assert means.tolist() == [5.0, 7.0, 2.0]
    assert control.tolist() == [False, False, True]


def test_one_calibration_model_is_enough() -> None:
    calibration, target = audit(generator(3), (1.0,), images=IMAGES)
    assert p_of(target[0], calibration[:1]) <= 0.025
    with pytest.raises(ValueError, match="there are no calibration models"):
        scores(target[0], calibration[:0])


def test_log_odds_of_0_and_1_are_finite() -> None:
    np.testing.assert_allclose(log_odds(np.array([0.5, 0.9, 0.1])), [0, np.log(9), -np.log(9)], atol=1e-12)
    # 1 in float32 covers everything from 1 - 2^-25; 0 can result from a product of rounding errors.
    np.testing.assert_allclose(log_odds(np.array([1.0, 0.0])), [np.log(2**25 - 1), -np.log(1e12 - 1)])


def test_printed_certainty_is_half_a_decimal_place_off() -> None:
    np.testing.assert_allclose(log_odds(np.array([0.0, 1.0]), 0.01), [-np.log(199), np.log(199)])
    assert np.isfinite(log_odds(np.array([0.0, 1.0]))).all()
