"""Shares read off models of known shares, how often a limit covers, and whether a target is like these models."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from tasks.audits.forgetting.held_share import (
    UNLIKE,
    LikenessCheck,
    agreement,
    calibration_agreements,
    correlation,
    count_disagreements,
    likeness_check,
    share_curve,
    variance_factor,
)
from tests.support.calibration import assert_rate, bounds
from tests.tasks.audits.forgetting.made_up import audit

EFFECTS = {0.0: [-1.0, 0.0, 1.0], 0.5: [4.0, 5.0, 6.0], 0.25: [3.0, 3.0, 6.0]}


def test_the_curve_goes_through_the_means() -> None:
    curve = share_curve(EFFECTS)
    assert curve is not None
    assert (
        curve.shares.tolist(), curve.means.tolist(), curve.freedom, curve.fewest
    ) == ([0, 0.25, 0.5], [0, 4, 5], 6, 3)  # fmt: skip
    assert math.sqrt((2 + 6 + 2) / 6) == pytest.approx(curve.sigma)
    falling = share_curve({0.0: [0.0, 1.0], 0.5: [-3.0, -1.0]})
    assert falling is not None
    assert falling.means.tolist() == [0.5, -2.0]
    assert (
        falling.estimate_share(-5.0, 1).high == 1.0
    )  # below what no share shows: nothing is excluded that the others hold


def test_a_limit_is_the_share_whose_mean_lies_a_reach_away() -> None:
    curve = share_curve(EFFECTS)
    assert curve is not None
    reach = stats.t.ppf(0.95, 6) * curve.sigma * math.sqrt(1 + 1 / 3)
    assert reach == pytest.approx(curve.one_sided_margin(1))
    result = curve.estimate_share(3.0 - reach, 1)
    assert pytest.approx(result.high, abs=1e-3) == 0.1875  # the mean is 3 there
    assert (result.low, result.n) == (0.0, 1)
    surer = curve.estimate_share(2.0 + reach, 1)
    assert pytest.approx(surer.low, abs=1e-3) == 0.125
    assert surer.high == 1.0  # beyond the largest share nothing is known
    assert (
        curve.estimate_share(4.0, 1).value,
        curve.estimate_share(4.0 - reach, 1).high,
        curve.estimate_share(4.0 + reach, 1).low,
    ) == (0.25, 0.25, 0.25)  # a share's own mean, and what lies a reach from it
    assert (curve.estimate_share(-5.0, 1).value, curve.estimate_share(99.0, 1).low) == (0.0, 0.5)
    assert curve.estimate_share(4.0, 3).n == 3


def test_the_interval_of_the_effect_has_two_sides_and_narrows_with_the_models() -> None:
    curve = share_curve(EFFECTS)
    assert curve is not None
    assert stats.t.ppf(0.975, 6) * curve.sigma / 2 == pytest.approx(curve.interval_half_width(4))
    assert stats.t.ppf(0.95, 6) * curve.sigma * math.sqrt(1 / 4 + 1 / 3) == pytest.approx(curve.one_sided_margin(4))


def test_a_curve_is_as_sure_as_its_fewest_models_allow() -> None:
    curve = share_curve({0.0: [1.0, 2.0, 3.0], 0.5: [4.0, 8.0], 0.25: []})
    assert curve is not None
    assert (curve.shares.tolist(), curve.means.tolist(), curve.freedom, curve.fewest) == ([0, 0.5], [2, 6], 3, 2)
    assert math.sqrt((2 + 8) / 3) == pytest.approx(curve.sigma)
    single = share_curve({0.0: [1.0, 3.0], 0.5: [4.0]})
    assert single is not None
    assert (single.freedom, single.fewest) == (1, 1)


def test_without_models_that_vary_or_a_share_above_0_there_is_no_curve() -> None:
    assert share_curve({}) is None
    assert share_curve({0.0: [1.0, 2.0]}) is None
    assert share_curve({0.1: [1.0, 2.0], 0.2: [1.0, 2.0]}) is None
    assert share_curve({0.0: [1.0], 0.2: [1.0]}) is None


@pytest.mark.parametrize("slope", [0.0, 2.0, 20.0])
def test_models_that_hold_more_than_the_limit_are_cleared_no_oftener_than_it_says(slope: float) -> None:
    """Of 1,000: where all shares look alike, where they hardly differ, and where they differ by far."""
    chance, cleared, runs = np.random.default_rng(0), 0, 1000
    for _ in range(runs):
        shares = (0.0, 0.05, 0.1, 0.25)
        curve = share_curve({share: (slope * share + chance.normal(size=5)).tolist() for share in shares})
        assert curve is not None
        high = curve.estimate_share(slope * 0.1 + chance.normal(), 1).high
        assert high is not None
        cleared += high < 0.1
    assert cleared <= bounds(0.05, runs)[1]


def test_a_target_that_is_less_sure_of_d_q_than_all_others_holds_no_less_than_they_can() -> None:
    curve = share_curve({0.0: [-1.0, 0.0, 1.0], 0.25: [2.0, 3.0, 4.0]})
    assert curve is not None
    assert curve.estimate_share(-9.0, 1).high == curve.estimate_share(0.0, 1).high > 0.1


def test_the_check_is_the_t_test_of_a_further_model() -> None:
    result = likeness_check([0.9], [0.7, 0.8, 0.84])
    spread = np.std([0.7, 0.8, 0.84], ddof=1) * np.sqrt(1 + 1 / 3)
    assert 2 * stats.t.sf(abs(0.9 - 0.78) / spread, 2) == pytest.approx(result.p)
    assert (0.9, pytest.approx(0.78)) == (result.value, result.expected)
    two = likeness_check([0.92, 0.88], [0.7, 0.8, 0.84])
    halved = np.std([0.7, 0.8, 0.84], ddof=1) * np.sqrt(1 / 2 + 1 / 3)
    assert 2 * stats.t.sf(0.12 / halved, 2) == pytest.approx(two.p)
    lower = likeness_check([0.66], [0.7, 0.8, 0.84])
    assert 2 * stats.t.sf(0.12 / spread, 2) == pytest.approx(lower.p)


@pytest.mark.parametrize(("p", "is_alike"), [(UNLIKE, True), (0.99 * UNLIKE, False), (1.01 * UNLIKE, True)])
def test_a_target_is_alike_down_to_the_level(p: float, is_alike: bool) -> None:
    assert is_alike is LikenessCheck(0.5, 0.6, p).is_alike
    assert [LikenessCheck(value, 0.6, p).is_larger for value in (0.5, 0.7)] == [False, True]
    assert UNLIKE == 0.01


def test_a_correlation_is_pearsons_and_two_calibration_models_are_enough_for_an_agreement() -> None:
    first, second = np.array([1.0, 2.0, 4.0]), np.array([3.0, 9.0, 8.0])
    assert np.corrcoef(first, second)[0, 1] == pytest.approx(correlation(first, second))
    assert 0.0 == correlation(first, np.ones(3)) == correlation(np.ones(3), first)
    target, calibration = np.array([0.1, 0.2, 0.4, 0.3]), np.array([[0.1, 0.3, 0.9, 0.5], [0.2, 0.1, 0.3, 0.6]])
    against = [stats.spearmanr(target, item).statistic for item in calibration]
    assert np.mean(against) == pytest.approx(agreement(target, calibration))
    between = stats.spearmanr(*calibration).statistic
    assert [pytest.approx(between)] * 2 == calibration_agreements(calibration)
    assert [pytest.approx(item) for item in against[::-1]] == calibration_agreements(
        calibration, np.stack([target] * 2)
    )


def test_equal_models_are_alike_and_what_is_not_known_is_neither() -> None:
    assert likeness_check([0.8], [0.8, 0.8]).is_alike
    assert LikenessCheck(0.9, pytest.approx(0.8), 0.0) == likeness_check([0.9], [0.8, 0.8])
    assert (likeness_check([0.9], [0.8]).value, likeness_check([0.9], [0.8]).is_alike) == (0.9, None)
    assert (likeness_check(None, [0.8, 0.7]).value, likeness_check([], []).is_alike) == (None, None)


def test_one_more_calibration_model_fails_as_often_as_the_level_says() -> None:
    chance, runs = np.random.default_rng(0), 5000
    drawn_curve = chance.normal(0.9, 0.01, (runs, 6))
    assert_rate(UNLIKE, sum(not likeness_check([row[0]], row[1:].tolist()).is_alike for row in drawn_curve), runs)


def test_a_mean_of_models_with_data_of_their_own_varies_by_what_draws_of_d_c_have_in_common() -> None:
    assert [variance_factor(models, 1.0) for models in (1, 2)] == [1, 0.5]
    assert pytest.approx([variance_factor(models, 0.25) for models in (1, 2)]) == [5 / 3, 1.0]
    curve, drawn_curve = share_curve(EFFECTS), share_curve(EFFECTS, 0.25)
    assert curve is not None
    assert drawn_curve is not None
    ratio = math.sqrt((5 / 3 + 1 / 3) / (1 + 1 / 3))
    assert ratio == pytest.approx(drawn_curve.one_sided_margin(1) / curve.one_sided_margin(1))


def test_owners_with_data_of_their_own_are_unlike_draws_of_d_c_as_often_as_the_level_says() -> None:
    """Each model's number is the mean of the values of 50 images: of the same 200, or of others of the domain."""
    chance, runs, fails, fails_as_twin = np.random.default_rng(2), 3000, 0, 0
    for _ in range(runs):
        images = chance.normal(size=200)
        calibration = [float(chance.permutation(images)[:50].mean()) for _ in range(8)]
        owner = [float(chance.normal(size=50).mean())]
        fails += likeness_check(owner, calibration, 0.25).is_alike is False
        fails_as_twin += likeness_check(owner, calibration).is_alike is False
    assert_rate(UNLIKE, fails, runs)
    assert fails_as_twin > bounds(UNLIKE, runs)[1]


def test_owners_with_data_of_their_own_who_hold_the_limit_are_cleared_no_oftener_than_it_says() -> None:
    chance, runs, cleared = np.random.default_rng(3), 1000, 0
    for _ in range(runs):
        images = 7 * chance.normal(size=200)
        effects = {
            share: [20 * share + float(chance.permutation(images)[:50].mean()) for _ in range(5)]
            for share in (0.0, 0.1, 0.25)
        }
        curve = share_curve(effects, 0.25)
        assert curve is not None
        high = curve.estimate_share(2.0 + float(7 * chance.normal(size=50).mean()), 1).high
        assert high is not None
        cleared += high < 0.1
    assert cleared <= bounds(0.05, runs)[1]


def test_noise_lowers_the_agreement_and_an_ensemble_raises_it() -> None:
    chance = np.random.default_rng(1)
    calibration, targets = audit(chance)
    known = calibration_agreements(calibration)
    one = agreement(targets[0], calibration)
    assert likeness_check([one or 0.0], known).is_alike
    noisy = agreement(np.clip(targets[0] + 0.3 * chance.normal(size=800), 0, 1), calibration)
    together = agreement(targets.mean(axis=0), calibration)
    assert (noisy or 1.0) < min(known) < max(known) < (together or 0.0)
    assert (agreement(targets[0], calibration[:1]), calibration_agreements(calibration[:1])) == (None, [])


def test_answers_to_one_picture_may_differ_by_what_was_printed_and_no_more() -> None:
    first, second = np.array([0.5, 0.50, 0.9, 0.3]), np.array([np.nan, 0.51, 0.8, 0.3])
    assert count_disagreements(first, second, 0.0) == (2, 3)
    assert count_disagreements(first, second, 0.01) == (1, 3)
    assert count_disagreements(np.array([0.5]), np.array([0.5001]), 0.0) == (0, 1)
