"""The deciding bound on epsilon: its size for large delta, and how often it exceeds the true value."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special

from tasks.numerics.epsilon import betting_bound, betting_p_value, gaussian_mu, one_run_p_value
from tasks.numerics.one_run_epsilon import (
    LevelShares,
    attainable_bound,
    correct_guesses,
    decisive_bound,
    decisive_p_value,
    describe_lost_power,
    floor_digits,
    one_run_bounds,
    powerful_counts,
    share_level,
)

LEVEL = 0.05
Stream = np.random.Generator
Coins = NDArray[np.bool_]


@pytest.mark.parametrize(
    ("canaries", "delta", "bets", "guesses"),
    [
        (400, 0.0, 0.05, 0.0),
        (400, 1e-5, 0.05, 0.0),
        (2000, 1e-5, 0.05, 0.0),  # a tenth of the level
        (2001, 1e-5, 0.025, 0.025),
        (400, 1e-4, 0.025, 0.025),
        (1000, 1e-4, 0.0, 0.05),  # delta uses the bets' entire half
        (400, 1e-3, 0.0, 0.05),
    ],
)
def test_level_is_shared_according_to_canaries_and_delta(
    canaries: int, delta: float, bets: float, guesses: float
) -> None:
    shares = share_level(canaries, delta, LEVEL)
    assert shares.bets == bets
    assert shares.guesses == guesses
    assert bool(shares.counts) == bool(guesses)


def test_useless_guesses_take_no_level() -> None:
    assert powerful_counts(400, 1e-3, 0.05) == (200, 100, 50)
    assert powerful_counts(400, 0.5, 0.05) == ()
    assert powerful_counts(6, 0.0, 0.05) == ()


@pytest.mark.parametrize(("canaries", "delta"), [(100, 1e-3), (400, 1e-3), (700, 1e-3), (2000, 1e-3), (20_000, 1e-5)])
def test_revealed_coins_give_a_bound(canaries: int, delta: float) -> None:
    assert attainable_bound(canaries, delta, LEVEL) > 2.0
    revealed = np.sort(np.random.default_rng(canaries).random(canaries) < 0.5)[::-1]
    assert decisive_bound(revealed, delta, LEVEL) > 1.5
    assert betting_bound(revealed, 1e-2, LEVEL) == 0.0


def test_p_value_rejects_if_either_test_rejects() -> None:
    inside = np.random.default_rng(3).random(400) < np.linspace(0.95, 0.05, 400)
    shares = share_level(400, 1e-4, LEVEL)
    assert isinstance(shares, LevelShares)
    for epsilon in np.linspace(0, 4, 30):
        rejects = betting_p_value(epsilon, inside, 1e-4) <= shares.bets
        for correct, guesses in correct_guesses(inside, shares.counts):
            level = shares.guesses / len(shares.counts)
            rejects = rejects or one_run_p_value(epsilon, 1e-4, 400, guesses, correct) <= level
        assert (decisive_p_value(epsilon, inside, 1e-4, LEVEL) <= LEVEL) == rejects
    bound = decisive_bound(inside, 1e-4, LEVEL)
    assert decisive_p_value(bound, inside, 1e-4, LEVEL) <= LEVEL < decisive_p_value(bound + 1e-5, inside, 1e-4, LEVEL)


def test_guesses_count_at_both_ends() -> None:
    inside = np.array([True, True, False, True, False, True, False, False])
    assert list(correct_guesses(inside, (4, 2))) == [(6, 8), (4, 4)]


def respond(epsilon: float, delta: float, coins: Coins, stream: Stream) -> NDArray[np.float64]:
    answers = np.where(stream.random(len(coins)) < special.expit(epsilon), coins, ~coins).astype(float)
    return answers + np.where(stream.random(len(coins)) < delta, 4.0 * coins - 2.0, 0.0)


def reveal_together(epsilon: float, delta: float, coins: Coins, stream: Stream) -> NDArray[np.float64]:
    """Reveal all coins together with probability delta: each is revealed equally often, but not independently."""
    if stream.random() < delta:
        return coins.astype(float)
    return respond(epsilon, 0.0, coins, stream)


def add_noise(epsilon: float, delta: float, coins: Coins, stream: Stream) -> NDArray[np.float64]:
    return gaussian_mu(epsilon, delta) * coins + stream.normal(size=len(coins))


def add_laplace_noise(epsilon: float, _: float, coins: Coins, stream: Stream) -> NDArray[np.float64]:
    return coins + stream.laplace(scale=1 / epsilon, size=len(coins))


@pytest.mark.parametrize("respond_to", [respond, reveal_together, add_noise, add_laplace_noise])
@pytest.mark.parametrize(("canaries", "delta"), [(400, 1e-3), (200, 3e-4)])
def test_bound_rarely_exceeds_true_epsilon(
    respond_to: Callable[[float, float, Coins, Stream], NDArray[np.float64]], canaries: int, delta: float
) -> None:
    exceeded = 0
    for run in range(200):
        stream = np.random.default_rng((700200, run))
        coins = stream.random(canaries) < 0.5
        ranking = coins[np.argsort(-respond_to(1.0, delta, coins, stream), kind="stable")]
        exceeded += decisive_p_value(1.0, ranking, delta, LEVEL) <= LEVEL
    assert exceeded <= 20  # of 200 at 5 %: more with probability 1 in 700


def test_first_bound_decides() -> None:
    inside = np.arange(400) < 200
    assert list(one_run_bounds(inside, 1e-5, LEVEL)) == ["bets", "one run"]
    bounds = one_run_bounds(inside, 1e-3, LEVEL)
    assert list(bounds) == ["bets or guesses", "bets", "one run"]
    assert bounds["bets or guesses"] > 2.0 > bounds["one run"] > bounds["bets"] == 0.0


def test_lost_power_is_described_with_its_remedy() -> None:
    warn = partial(describe_lost_power, level=LEVEL)
    assert list(warn(canaries=400, delta=1e-5)) == []
    (warning,) = warn(canaries=400, delta=1e-3)
    assert "400 canaries over all models at privacy.delta=0.001 leave the bets" in warning
    assert "shows an epsilon of about 2.30 at most" in warning
    assert "fewer than 100 canaries, or a delta below 0.00025" in warning
    assert floor_digits(0.1 / 700) == 0.00014
