"""Shares read off models of known shares: known answers, and how often a limit covers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from tasks.audits.forgetting.held_share import share_curve
from tests.support.calibration import bounds

EFFECTS = {0.0: [-1.0, 0.0, 1.0], 0.5: [4.0, 5.0, 6.0], 0.25: [3.0, 3.0, 6.0]}


def test_the_curve_goes_through_the_means() -> None:
    curve = share_curve(EFFECTS)
    assert curve is not None
    assert ([0, 0.25, 0.5], [0, 4, 5], 6, 3) == (
        curve.shares.tolist(), curve.means.tolist(), curve.freedom, curve.fewest
    )  # fmt: skip
    assert math.sqrt((2 + 6 + 2) / 6) == pytest.approx(curve.sigma)
    falling = share_curve({0.0: [0.0, 1.0], 0.5: [-3.0, -1.0]})
    assert falling is not None
    assert [0.5, -2.0] == falling.means.tolist()
    assert (
        1.0 == falling.estimate_share(-5.0, 1).high
    )  # below what no share shows: nothing is excluded that the others hold


def test_a_limit_is_the_share_whose_mean_lies_a_reach_away() -> None:
    curve = share_curve(EFFECTS)
    assert curve is not None
    reach = stats.t.ppf(0.95, 6) * curve.sigma * math.sqrt(1 + 1 / 3)
    assert reach == pytest.approx(curve.one_sided_margin(1))
    found = curve.estimate_share(3.0 - reach, 1)
    assert 0.1875 == pytest.approx(found.high, abs=1e-3)  # the mean is 3 there
    assert (0.0, 1) == (found.low, found.n)
    surer = curve.estimate_share(2.0 + reach, 1)
    assert 0.125 == pytest.approx(surer.low, abs=1e-3)
    assert 1.0 == surer.high  # beyond the largest share nothing is known
    assert 0.25 == pytest.approx(curve.estimate_share(4.0, 1).value, abs=1e-3)


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
