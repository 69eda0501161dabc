"""Shares read from models of known shares, coverage of the limits, and the similarity of a target to these models."""

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


def test_curve_passes_through_the_means() -> None:
    curve = share_curve(EFFECTS)
    assert curve is not None
    assert curve.shares.tolist() == [0, 0.25, 0.5]
    assert curve.means.tolist() == [0, 4, 5]
    assert curve.freedom == 6
    assert curve.fewest == 3
    assert math.sqrt((2 + 6 + 2) / 6) == pytest.approx(curve.sigma)
    falling = share_curve({0.0: [0.0, 1.0], 0.5: [-3.0, -1.0]})
    assert falling is not None
    assert falling.means.tolist() == [0.5, -2.0]
    assert (
        falling.estimate_share(-5.0, 1).high == 1.0
    )  # below every share: only shares that the limit excludes are ruled out


def test_limit_is_one_margin_from_the_share() -> None:
    curve = share_curve(EFFECTS)
    assert curve is not None
    margin = stats.t.ppf(0.95, 6) * curve.sigma * math.sqrt(1 + 1 / 3)
    assert margin == pytest.approx(curve.one_sided_margin(1))
    result = curve.estimate_share(3.0 - margin, 1)
    assert pytest.approx(result.high, abs=1e-3) == 0.1875  # the mean is 3 there
    assert result.low == 0.0
    assert result.n == 1
    higher_effect = curve.estimate_share(2.0 + margin, 1)
    assert pytest.approx(higher_effect.low, abs=1e-3) == 0.125
    assert higher_effect.high == 1.0  # beyond the largest share, the limit is unknown
    # the mean of a share, and values one margin away
    assert curve.estimate_share(4.0, 1).value == 0.25
    assert curve.estimate_share(4.0 - margin, 1).high == 0.25
    assert curve.estimate_share(4.0 + margin, 1).low == 0.25
    assert curve.estimate_share(-5.0, 1).value == 0.0
    assert curve.estimate_share(99.0, 1).low == 0.5
    assert curve.estimate_share(4.0, 3).n == 3


def test_effect_interval_narrows_with_models() -> None:
    curve = share_curve(EFFECTS)
    assert curve is not None
    assert stats.t.ppf(0.975, 6) * curve.sigma / 2 == pytest.approx(curve.interval_half_width(4))
    assert stats.t.ppf(0.95, 6) * curve.sigma * math.sqrt(1 / 4 + 1 / 3) == pytest.approx(curve.one_sided_margin(4))


def test_curve_uses_its_smallest_group_of_models() -> None:
    curve = share_curve({0.0: [1.0, 2.0, 3.0], 0.5: [4.0, 8.0], 0.25: []})
    assert curve is not None
    assert curve.shares.tolist() == [0, 0.5]
    assert curve.means.tolist() == [2, 6]
    assert curve.freedom == 3
    assert curve.fewest == 2
    assert math.sqrt((2 + 8) / 3) == pytest.approx(curve.sigma)
    single = share_curve({0.0: [1.0, 3.0], 0.5: [4.0]})
    assert single is not None
    assert single.freedom == 1
    assert single.fewest == 1


def test_curve_needs_variance_and_a_positive_share() -> None:
    assert share_curve({}) is None
    assert share_curve({0.0: [1.0, 2.0]}) is None
    assert share_curve({0.1: [1.0, 2.0], 0.2: [1.0, 2.0]}) is None
    assert share_curve({0.0: [1.0], 0.2: [1.0]}) is None


@pytest.mark.parametrize("slope", [0.0, 2.0, 20.0])
def test_models_above_the_limit_are_rarely_cleared(slope: float) -> None:
    """1,000 runs: with equal effects of all shares, with small and with large differences."""
    rng = np.random.default_rng(0)
    cleared = 0
    runs = 1000
    for _ in range(runs):
        shares = (0.0, 0.05, 0.1, 0.25)
        curve = share_curve({share: (slope * share + rng.normal(size=5)).tolist() for share in shares})
        assert curve is not None
        high = curve.estimate_share(slope * 0.1 + rng.normal(), 1).high
        assert high is not None
        cleared += high < 0.1
    assert cleared <= bounds(0.05, runs)[1]


def test_least_certain_target_has_the_limit_of_0() -> None:
    curve = share_curve({0.0: [-1.0, 0.0, 1.0], 0.25: [2.0, 3.0, 4.0]})
    assert curve is not None
    assert curve.estimate_share(-9.0, 1).high == curve.estimate_share(0.0, 1).high > 0.1


def test_similarity_check_is_a_t_test() -> None:
    result = likeness_check([0.9], [0.7, 0.8, 0.84])
    spread = np.std([0.7, 0.8, 0.84], ddof=1) * np.sqrt(1 + 1 / 3)
    assert 2 * stats.t.sf(abs(0.9 - 0.78) / spread, 2) == pytest.approx(result.p)
    assert result.value == 0.9
    assert result.expected == pytest.approx(0.78)
    of_two_models = likeness_check([0.92, 0.88], [0.7, 0.8, 0.84])
    halved = np.std([0.7, 0.8, 0.84], ddof=1) * np.sqrt(1 / 2 + 1 / 3)
    assert 2 * stats.t.sf(0.12 / halved, 2) == pytest.approx(of_two_models.p)
    lower = likeness_check([0.66], [0.7, 0.8, 0.84])
    assert 2 * stats.t.sf(0.12 / spread, 2) == pytest.approx(lower.p)


@pytest.mark.parametrize(("p", "is_alike"), [(UNLIKE, True), (0.99 * UNLIKE, False), (1.01 * UNLIKE, True)])
def test_target_is_similar_down_to_the_level(p: float, is_alike: bool) -> None:
    assert is_alike is LikenessCheck(0.5, 0.6, p).is_alike
    assert not LikenessCheck(0.5, 0.6, p).is_larger
    assert LikenessCheck(0.7, 0.6, p).is_larger
    assert UNLIKE == 0.01


def test_agreement_needs_two_calibration_models() -> None:
    first, second = np.array([1.0, 2.0, 4.0]), np.array([3.0, 9.0, 8.0])
    assert np.corrcoef(first, second)[0, 1] == pytest.approx(correlation(first, second))
    assert 0.0 == correlation(first, np.ones(3)) == correlation(np.ones(3), first)
    target = np.array([0.1, 0.2, 0.4, 0.3])
    calibration = np.array([[0.1, 0.3, 0.9, 0.5], [0.2, 0.1, 0.3, 0.6]])
    with_target = [stats.spearmanr(target, item).statistic for item in calibration]
    assert np.mean(with_target) == pytest.approx(agreement(target, calibration))
    between_references = stats.spearmanr(*calibration).statistic
    assert calibration_agreements(calibration) == [pytest.approx(between_references)] * 2
    assert [pytest.approx(item) for item in with_target[::-1]] == calibration_agreements(
        calibration, np.stack([target] * 2)
    )


def test_equal_models_are_similar_and_unknown_is_neither() -> None:
    assert likeness_check([0.8], [0.8, 0.8]).is_alike
    assert LikenessCheck(0.9, pytest.approx(0.8), 0.0) == likeness_check([0.9], [0.8, 0.8])
    assert likeness_check([0.9], [0.8]).value == 0.9
    assert likeness_check([0.9], [0.8]).is_alike is None
    assert likeness_check(None, [0.8, 0.7]).value is None
    assert likeness_check([], []).is_alike is None


def test_additional_calibration_model_fails_at_the_nominal_rate() -> None:
    rng = np.random.default_rng(0)
    runs = 5000
    drawn_curve = rng.normal(0.9, 0.01, (runs, 6))
    assert_rate(UNLIKE, sum(not likeness_check([row[0]], row[1:].tolist()).is_alike for row in drawn_curve), runs)


def test_own_data_increase_the_variance_of_means() -> None:
    assert variance_factor(1, 1.0) == 1
    assert variance_factor(2, 1.0) == 0.5
    assert pytest.approx([variance_factor(models, 0.25) for models in (1, 2)]) == [5 / 3, 1.0]
    curve = share_curve(EFFECTS)
    drawn_curve = share_curve(EFFECTS, 0.25)
    assert curve is not None
    assert drawn_curve is not None
    ratio = math.sqrt((5 / 3 + 1 / 3) / (1 + 1 / 3))
    assert ratio == pytest.approx(drawn_curve.one_sided_margin(1) / curve.one_sided_margin(1))


def test_owners_with_own_data_fail_at_nominal_rate() -> None:
    """The value of each model is the mean over 50 images: of the same 200, or of other images of the domain."""
    rng = np.random.default_rng(2)
    runs = 3000
    fails = 0
    fails_as_control = 0
    for _ in range(runs):
        images = rng.normal(size=200)
        calibration = [float(rng.permutation(images)[:50].mean()) for _ in range(8)]
        owner = [float(rng.normal(size=50).mean())]
        fails += likeness_check(owner, calibration, 0.25).is_alike is False
        fails_as_control += likeness_check(owner, calibration).is_alike is False
    assert_rate(UNLIKE, fails, runs)
    assert fails_as_control > bounds(UNLIKE, runs)[1]


def test_owners_with_own_data_are_rarely_cleared_wrongly() -> None:
    rng = np.random.default_rng(3)
    runs = 1000
    cleared = 0
    for _ in range(runs):
        images = 7 * rng.normal(size=200)
        effects = {}
        for share in (0.0, 0.1, 0.25):
            effects[share] = [20 * share + float(rng.permutation(images)[:50].mean()) for _ in range(5)]
        curve = share_curve(effects, 0.25)
        assert curve is not None
        high = curve.estimate_share(2.0 + float(7 * rng.normal(size=50).mean()), 1).high
        assert high is not None
        cleared += high < 0.1
    assert cleared <= bounds(0.05, runs)[1]


def test_noise_lowers_agreement_and_ensembles_raise_it() -> None:
    rng = np.random.default_rng(1)
    calibration, targets = audit(rng)
    reference_agreements = calibration_agreements(calibration)
    one = agreement(targets[0], calibration)
    assert likeness_check([one or 0.0], reference_agreements).is_alike
    noisy = agreement(np.clip(targets[0] + 0.3 * rng.normal(size=800), 0, 1), calibration)
    ensemble = agreement(targets.mean(axis=0), calibration)
    assert (noisy or 1.0) < min(reference_agreements) < max(reference_agreements) < (ensemble or 0.0)
    assert agreement(targets[0], calibration[:1]) is None
    assert calibration_agreements(calibration[:1]) == []


def test_repeated_answers_may_differ_by_the_printed_precision() -> None:
    first, second = np.array([0.5, 0.50, 0.9, 0.3]), np.array([np.nan, 0.51, 0.8, 0.3])
    assert count_disagreements(first, second, 0.0) == (2, 3)
    assert count_disagreements(first, second, 0.01) == (1, 3)
    assert count_disagreements(np.array([0.5]), np.array([0.5001]), 0.0) == (0, 1)
