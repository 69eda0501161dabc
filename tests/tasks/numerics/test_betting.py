"""Bets on exact ranks satisfy Ville's inequality at every look, and detect effects early."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from ville import evalues

from tasks.numerics import betting

SIZES = (2, 21, 201, 4_457_400)
LEVEL = 0.05
MOST = 12


@pytest.mark.parametrize("size", SIZES)
def test_bet_on_uniform_rank_has_mean_1(size: int) -> None:
    ranks = np.arange(1, size + 1)
    bets = betting.bet(1, size) * ranks ** (betting.EXPONENT - 1.0)  # e(r) is proportional to f
    assert pytest.approx(bets.mean(), rel=1e-9) == 1
    for rank in (1, size // 2, size):
        assert bets[rank - 1] == pytest.approx(betting.bet(rank, size), rel=1e-12)


@pytest.mark.parametrize("size", SIZES[:3])
def test_bet_equals_calibrator_of_another_library(size: int) -> None:
    grid = evalues.p_to_e(np.arange(1, size + 1) / size, betting.EXPONENT)
    ranks = [1, size // 2, size]
    assert [betting.bet(rank, size) for rank in ranks] == pytest.approx([grid[r - 1] / grid.mean() for r in ranks])
    together = evalues.combine([grid[rank - 1] / grid.mean() for rank in ranks], "product")
    assert together == pytest.approx(betting.evidence(ranks, [size] * 3)[-1])


def test_evidence_multiplies_and_decides_at_inverse_level() -> None:
    path = betting.evidence([1, 201, 1, 2], [201] * 4)
    bets = [betting.bet(rank, 201) for rank in (1, 201, 1, 2)]
    assert path == pytest.approx(np.cumprod(bets))
    assert not betting.is_decided(19.99, LEVEL)
    assert betting.is_decided(20.0, LEVEL)
    assert not betting.is_decided(betting.bet(1, 201), LEVEL)  # one pair never suffices among 201


@pytest.mark.parametrize(("rank", "size"), [(0, 201), (202, 201)])
def test_impossible_rank_is_refused(rank: int, size: int) -> None:
    with pytest.raises(ValueError, match=f"rank is {rank}; it must be from 1 to 201"):
        betting.bet(rank, size)


def decisions(ranks: np.ndarray) -> tuple[float, float]:
    """The share of decided audits and the mean number of pairs used, for ranks (audits, MOST) among 201."""
    bets = np.array([betting.bet(rank, 201) for rank in range(1, 202)])
    decided = np.cumprod(bets[ranks - 1], axis=1) >= 1 / LEVEL
    used = np.where(decided.any(axis=1), decided.argmax(axis=1) + 1, MOST)
    return float(decided.any(axis=1).mean()), float(used.mean())


def test_false_alarms_stay_below_level_and_effects_appear() -> None:
    rng = np.random.default_rng(0)
    alarms, _ = decisions(rng.integers(1, 202, (20_000, MOST)))
    assert 0.018 < alarms < 0.026
    strength = stats.norm.isf(0.05) - stats.norm.isf(0.65)  # 65 % of pairs have p <= .05
    beaten = stats.norm.sf(rng.normal(strength, 1, (2_000, MOST)))
    detected_share, used = decisions(1 + rng.binomial(200, beaten))
    assert detected_share > 0.99
    assert 2 < used < 3.2
