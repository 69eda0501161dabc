"""Whether an event happens in a simulation at its nominal rate, neither more nor less often."""

from __future__ import annotations

from scipy import stats

DRAWS = 5000
CHANCE = 1e-4  # probability that a correct rate is rejected with a new seed; the seeds are fixed


def bounds(rate: float, draws: int = DRAWS) -> tuple[int, int]:
    """The counts that contain all but CHANCE of the simulations, half of it on either side.

    For 5 % of 5,000, the bounds are 192 and 312. One in a million tests with a level of 8 % passes, and one in ten with
    3.2 %.
    """
    distribution = stats.binom(draws, rate)
    return int(distribution.ppf(CHANCE / 2)), int(distribution.isf(CHANCE / 2))


def assert_rate(rate: float, happened: int, draws: int = DRAWS) -> None:
    low, high = bounds(rate, draws)
    assert low <= happened <= high, f"{happened} of {draws} ({happened / draws:.2%}) is not {rate:.3%}: {low} to {high}"
