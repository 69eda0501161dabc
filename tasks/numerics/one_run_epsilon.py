"""The decisive lower bound on epsilon: bets on a ranking and guesses about one run, which share the level.

Bets are valid at every threshold at once, but delta costs them m delta / 4 of the level. If this cost reaches the
level, they reject nothing, even for a training that reveals every coin. Many guesses lose less to delta than few, so
guesses get a share of the level if delta matters. The shares depend only on the number of canaries and delta, so the
bound exceeds the true epsilon in at most a fraction `level` of audits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tasks.numerics.epsilon import (
    FEWEST_GUESSES,
    Mask,
    best_of_guesses,
    betting_bound,
    betting_p_value,
    largest_rejected,
    one_run_bound,
    one_run_p_value,
)

BETS = "bets"
GUESSES = "one run"
BETS_OR_GUESSES = "bets or guesses"
NOTICED = 0.1  # share of the level that delta may cost the bets before guesses get part of it


@dataclass(frozen=True)
class LevelShares:
    """How the level is divided between bets and guesses. `counts` are the numbers of canaries guessed from each end.

    The level of the guesses is divided equally among the counts.
    """

    bets: float
    guesses: float
    counts: tuple[int, ...]


def share_level(canaries: int, delta: float, level: float) -> LevelShares:
    """Divide the level between bets and guesses.

    Bets get all of it if delta costs them little; otherwise both get half. If bets could not reject at half the level,
    guesses get all of it.
    """
    cost = canaries * delta / 4
    if cost <= NOTICED * level:
        return LevelShares(level, 0.0, ())
    bets = level / 2 if cost < level / 2 else 0.0
    guesses = level - bets
    return LevelShares(bets, guesses, powerful_counts(canaries, delta, guesses))


def powerful_counts(canaries: int, delta: float, level: float) -> tuple[int, ...]:
    """Return the numbers of canaries guessed from each end: half, a quarter, and so on, while every count can reject.

    A small number of guesses can all be correct through delta alone, so testing it would only use up level.
    """
    counts: list[int] = []
    count = canaries // 2
    while 2 * count >= FEWEST_GUESSES:
        share = level / (len(counts) + 1)
        # The fewest guesses lose most to delta, so the last count limits the list.
        if one_run_p_value(0.0, delta, canaries, 2 * count, 2 * count) > share:
            break
        counts.append(count)
        count //= 2
    return tuple(counts)


def decisive_p_value(epsilon: float, inside: Mask, delta: float, level: float) -> float:
    """Return an upper bound on the probability of a ranking in one (epsilon, delta)-private training.

    It is the minimum, over tests, of p * level / share of the level: a weighted Bonferroni correction. It is at most
    `level` exactly if one of the tests rejects at its share. `inside` is the membership of each canary, likeliest
    first.
    """
    shares = share_level(len(inside), delta, level)
    p_values = [1.0]
    if shares.bets:
        p_values.append(betting_p_value(epsilon, inside, delta) * level / shares.bets)
    for correct, guesses in correct_guesses(inside, shares.counts):
        p_value = one_run_p_value(epsilon, delta, len(inside), guesses, correct)
        p_values.append(p_value * len(shares.counts) * level / shares.guesses)
    return min(p_values)


def correct_guesses(inside: Mask, counts: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Yield, for each count, the number of correct guesses and the number of all guesses.

    The first `count` canaries are guessed to be in the training data, and the last `count` to be out of it. Steinke,
    Nasr & Jagielski 2023, algorithm 1 with k+ = k-.
    """
    for count in counts:
        correct = int(inside[:count].sum()) + int((~inside[len(inside) - count :]).sum())
        yield correct, 2 * count


def decisive_bound(inside: Mask, delta: float, level: float) -> float:
    """Bound epsilon from below by the better of bets and guesses, at a joint `level`."""
    return largest_rejected(lambda epsilon: decisive_p_value(epsilon, inside, delta, level) <= level)


def attainable_bound(canaries: int, delta: float, level: float) -> float:
    """Return the bound for a training that reveals every coin, with half of the canaries in."""
    inside = np.arange(canaries) < canaries // 2
    return decisive_bound(inside, delta, level)


def one_run_bounds(inside: Mask, delta: float, level: float) -> dict[str, float]:
    """Return the bounds from one run, each of which is valid at the level. The first one is decisive.

    It is the bound of the bets if they have the whole level, otherwise `decisive_bound`.
    """
    shares = share_level(len(inside), delta, level)
    bounds = {}
    if shares.guesses:
        bounds = {BETS_OR_GUESSES: decisive_bound(inside, delta, level)}
    bounds[BETS] = betting_bound(inside, delta, level)
    bounds[GUESSES] = best_of_guesses(one_run_bound, inside, delta, level)
    return bounds


def describe_lost_power(canaries: int, delta: float, level: float, noun: str = "canaries") -> Iterator[str]:
    """Yield a warning if delta leaves the bets without power."""
    if share_level(canaries, delta, level).bets:
        return
    largest = attainable_bound(canaries, delta, level)
    yield (
        f"epsilon from below: {canaries:,} {noun} over all models at privacy.delta={delta:g} leave the bets on their "
        f"ranking without power, so that guesses alone bound epsilon. Even a training that reveals every coin shows an "
        f"epsilon of about {largest:.2f} at most. Bets need fewer than {2 * level / delta:,.0f} {noun}, or a delta "
        f"below {floor_digits(2 * level / canaries):g}"
    )


def floor_digits(value: float, digits: int = 2) -> float:
    """Round a positive value down to this number of significant digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return float(f"{math.floor(value / unit * (1 + 1e-12)) * unit:.{digits}g}")
