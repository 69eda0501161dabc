"""Limits of combined shares against scipy, printed examples and simulation."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.audits.deja_vu.few_pictures import Weighted, limits, wilson
from tasks.statistics import proportion


def weighted(weight: float, right: int, of: int) -> Weighted:
    return Weighted(weight, np.array([right / of]), np.array([of]))


@pytest.mark.parametrize(("right", "of"), [(0, 8), (1, 1), (3, 40), (40, 40), (57, 100)])
def test_a_single_share_has_wilsons_interval(right: int, of: int) -> None:
    expected = proportion(right, of)
    low, high = (float(end[0]) for end in wilson(np.array([right / of]), np.array([of])))
    assert (pytest.approx(expected.low, abs=1e-12), pytest.approx(expected.high, abs=1e-12)) == (low, high)


def test_a_difference_has_newcombes_interval() -> None:
    # Newcombe 1998, "Interval estimation for the difference between independent proportions", table II, method 10.
    for (first, second), printed in {
        ((56, 70), (48, 80)): (0.0524, 0.3339),
        ((9, 10), (3, 10)): (0.1705, 0.8090),
    }.items():
        low, high = limits([weighted(1, *first), weighted(-1, *second)])
        assert (round(float(low[0]), 4), round(float(high[0]), 4)) == printed


def test_nothing_right_in_few_pictures_leaves_room_for_much() -> None:
    low, high = limits([weighted(sign / 2, 0, 8) for sign in (1, -1, 1, -1)])
    assert -0.35 < low[0] < -0.15
    assert 0.15 < high[0] < 0.35


def test_the_mean_of_two_differences_is_covered() -> None:
    rng, n, shares = np.random.default_rng(0), 20, (0.1, 0.05, 0.3, 0.1)
    truth = (shares[0] - shares[1] + shares[2] - shares[3]) / 2
    parts = [
        Weighted(sign / 2, rng.binomial(n, share, 2000) / n, np.full(2000, n))
        for share, sign in zip(shares, (1, -1, 1, -1), strict=True)
    ]
    low, high = limits(parts)
    assert 0.94 <= np.mean((low <= truth) & (truth <= high)) <= 0.99
