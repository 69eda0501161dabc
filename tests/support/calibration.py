"""Whether something happened as often in a simulation as it should: not more often, and not less."""

from __future__ import annotations

from scipy import stats

DRAWS = 5000
CHANCE = 1e-4  # that a right rate is taken for a wrong one, were the seed drawn anew; seeds are fixed


def bounds(rate: float, draws: int = DRAWS) -> tuple[int, int]:
    """The counts between which all but CHANCE of simulations lie, half of it on either side: for 5 % of 5,000 192 to
    312, so that of tests with a level of 8 % one in a million passes, and of 3.2 % one in ten."""
    known = stats.binom(draws, rate)
    return int(known.ppf(CHANCE / 2)), int(known.isf(CHANCE / 2))


def assert_rate(rate: float, happened: int, draws: int = DRAWS) -> None:
    low, high = bounds(rate, draws)
    assert low <= happened <= high, f"{happened} of {draws} ({happened / draws:.2%}) is not {rate:.3%}: {low} to {high}"
