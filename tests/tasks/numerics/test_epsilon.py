"""Lower bounds on epsilon: published values, independent formulas, and how often bounds are too high."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, special, stats

from tasks.numerics.epsilon import (
    MANY_RUNS,
    Calls,
    Mask,
    Rate,
    best_of_guesses,
    betting_bound,
    betting_p_value,
    bound_by_scores,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_excess,
    gaussian_many_runs_bound,
    gaussian_mu,
    gaussian_one_run_bound,
    guess_counts,
    largest_rejected,
    least_epsilon,
    many_runs_bound,
    one_run_bound,
    one_run_p_value,
)

LEVEL = 0.05
DELTA = 1e-6
EACH = 10_000
Counts = NDArray[np.int64]


def corner_counts(shift: float) -> tuple[Counts, Counts]:
    """Guesses and correct ones at the corners of the ROC's convex hull; 10,000 members N(shift, 1), others N(0, 1).

    jax_privacy (`auditing.py`, 2026) divides its level by the number of these corners.
    """
    non_members = stats.norm.ppf((np.arange(EACH) + 0.5) / EACH)
    thresholds = np.append(np.union1d(non_members, non_members + shift), np.inf)
    points = np.stack(
        [np.searchsorted(non_members + shift, thresholds), np.searchsorted(non_members, thresholds)], axis=1
    )
    while True:
        steps = np.diff(points, axis=0)
        is_corner = np.r_[True, steps[:-1, 1] * steps[1:, 0] - steps[1:, 1] * steps[:-1, 0] > 0, True]
        if is_corner.all():
            break
        points = points[is_corner]
    correct = EACH - points[:, 0]
    return 2 * EACH - points.sum(axis=1), correct


@pytest.mark.parametrize(
    ("shift", "one_run", "gaussian"), [(1, 1.13346, 2.164749), (2, 2.311945, 4.7218075), (4, 4.395568, 9.133752)]
)
def test_bounds_on_normal_quantiles_match_published_ones(shift: float, one_run: float, gaussian: float) -> None:
    guesses, correct = corner_counts(shift)
    pairs = []
    for count, right in zip(guesses, correct, strict=True):
        if count:
            pairs.append((int(count), int(right)))
    level = LEVEL / len(guesses)

    def is_rejected(epsilon: float) -> bool:
        return any(one_run_p_value(epsilon, DELTA, 2 * EACH, *pair) <= level for pair in pairs)

    def is_no_gaussian(epsilon: float) -> bool:
        mu = gaussian_mu(epsilon, DELTA)
        return any(gaussian_excess(mu, 2 * EACH, *pair, level) > 0 for pair in pairs)

    for published, test in ((one_run, is_rejected), (gaussian, is_no_gaussian)):
        assert (test(published * (1 - 1e-5)), test(published * (1 + 1e-5))) == (True, False)


@pytest.mark.parametrize(
    ("guesses", "correct", "delta"), [(50, 40, 0.0), (50, 40, 1e-3), (7, 7, 1e-2), (9, 0, 1e-2), (50, 40, 0.5)]
)
def test_one_run_p_value_equals_its_formula(guesses: int, correct: int, delta: float) -> None:
    mass = []
    for hits in range(guesses + 1):
        mass.append(math.comb(guesses, hits) * 0.75**hits * 0.25 ** (guesses - hits))
    beta = sum(mass[correct:])
    excess = max((sum(mass[correct - i : correct]) / i for i in range(1, correct + 1)), default=0.0)
    expected = min(1.0, beta + 2 * 100 * delta * excess)
    assert expected == pytest.approx(one_run_p_value(math.log(3), delta, 100, guesses, correct))


def test_wealth_of_bets_is_integral_over_stakes() -> None:
    inside = np.array([True, True, True, False, True, True])
    q = 0.6

    def wealth(first: int) -> float:
        factors = np.where(inside[:first], 1 / q, 0.0)
        value, _ = integrate.quad(lambda stake: float(np.prod(1 - stake + stake * factors)), 0, 1)
        return value

    expected = 1 / max(wealth(first) for first in range(1, len(inside) + 1))
    assert expected == pytest.approx(betting_p_value(float(special.logit(q)), inside, 0.0))
    assert expected + 6 * 0.01 / 4 == pytest.approx(betting_p_value(float(special.logit(q)), inside, 0.01))


def test_bets_reject_an_interval_from_0() -> None:
    inside = np.random.default_rng(0).random(300) < np.linspace(0.99, 0.01, 300)
    p_values = []
    for epsilon in np.linspace(0, 6, 60):
        p_values.append(betting_p_value(epsilon, inside, 1e-5))
    assert p_values == sorted(p_values)
    bound = betting_bound(inside, 1e-5, LEVEL)
    assert 1.0 < bound < 4.6
    assert betting_p_value(bound, inside, 1e-5) <= LEVEL < betting_p_value(bound + 1e-5, inside, 1e-5)
    assert 0.0 == betting_bound(np.zeros(100, bool), 0.0, LEVEL) == betting_bound(inside, 0.01, LEVEL)
    assert 1.0 == betting_p_value(0.0, np.zeros(0, bool), 0.0) == betting_p_value(0.0, np.zeros(100, bool), 1.0)


def response(epsilon: float, delta: float, canaries: int, stream: np.random.Generator) -> Mask:
    """Membership of the canaries, ranked by randomised response that reveals coins with probability delta."""
    inside = stream.random(canaries) < 0.5
    answers = np.where(stream.random(canaries) < special.expit(epsilon), inside, ~inside).astype(float)
    answers += np.where(stream.random(canaries) < delta, 4.0 * inside - 2.0, 0.0)
    return inside[np.argsort(-answers, kind="stable")]


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.0), (1.0, 0.0), (4.0, 0.0), (1.0, 4e-4)])
def test_bets_and_guesses_rarely_exceed_true_epsilon(epsilon: float, delta: float) -> None:
    counts = guess_counts(200)
    exceeded = [0, 0]
    for run in range(400):
        inside = response(epsilon, delta, 200, np.random.default_rng((17, run)))
        exceeded[0] += betting_p_value(epsilon, inside, delta) <= LEVEL
        exceeded[1] += any(
            one_run_p_value(epsilon, delta, 200, count, int(inside[:count].sum())) <= LEVEL / len(counts)
            for count in counts
        )
    assert max(exceeded) <= 34  # of 400 at 5 %: more with probability 1 in 500


def test_one_run_bound_rarely_exceeds_gaussian_epsilon() -> None:
    mu = gaussian_mu(2.0, 1e-5)
    counts = guess_counts(200)
    exceeded = 0
    for run in range(200):
        stream = np.random.default_rng((18, run))
        inside = stream.random(200) < 0.5
        ranked = inside[np.argsort(-stream.normal(mu * inside))]
        correct = [(count, int(ranked[:count].sum())) for count in counts]
        exceeded += any(gaussian_excess(mu, 200, *pair, LEVEL / len(counts)) > 0 for pair in correct)
    assert exceeded <= 20  # of 200 at 5 %: more with probability 1 in 700


def test_best_of_guesses_uses_share_of_level() -> None:
    assert guess_counts(100) == (50, 25, 12)
    assert guess_counts(16) == (8,)
    assert guess_counts(15) == ()
    inside = np.arange(100) < 50
    single = []
    for count in (50, 25, 12):
        single.append(one_run_bound(0.0, 100, count, count, LEVEL / 3))
    assert max(single) == best_of_guesses(one_run_bound, inside, 0.0, LEVEL)
    calls: list[tuple[float, ...]] = []

    def bound_of(*arguments: float) -> float:
        calls.append(arguments)
        return arguments[2]

    assert best_of_guesses(bound_of, np.arange(100) < 20, 1e-3, LEVEL) == 50
    assert [(1e-3, 100, count, min(count, 20), LEVEL / 3) for count in (50, 25, 12)] == calls
    assert special.logit((LEVEL / 3) ** (1 / 50)) == pytest.approx(single[0], abs=1e-6)  # 50 of 50 are right
    assert best_of_guesses(one_run_bound, inside[:10], 0.0, LEVEL) == 0.0
    bound = gaussian_one_run_bound(1e-5, 100, 50, 50, LEVEL / 3)
    assert bound > single[0]
    assert pytest.approx(gaussian_excess(gaussian_mu(bound, 1e-5), 100, 50, 50, LEVEL / 3), abs=1e-4) == 0.0


def test_gaussian_recursion_by_hand() -> None:
    def blow_up(chance: float) -> float:
        return float(special.ndtr(special.ndtri(chance) - 0.1))

    right_share = 0.2 * 5 / 12  # 5 of 6 guesses are right
    wrong_share = 0.2 * 1 / 12  # of 12 canaries
    for unresolved, remaining in ((4, 2), (3, 3), (2, 4), (1, 5), (0, 6)):
        missed = max(wrong_share, blow_up(right_share))
        right_share = right_share + unresolved / remaining * (missed - wrong_share)
        wrong_share = missed
    assert right_share < 1
    assert right_share + wrong_share - 0.5 == pytest.approx(gaussian_excess(0.1, 12, 6, 5, 0.2))
    # If the initial share of wrong guesses is larger, the recursion adds nothing.
    assert pytest.approx(gaussian_excess(0.5, 10, 5, 2, 0.1)) == 0.1 * 5 / 10 - 0.5
    assert pytest.approx(gaussian_excess(1e-9, 10, 10, 10, LEVEL)) == 1.0  # probabilities are at most 1


@pytest.mark.parametrize(
    ("power", "level", "delta", "epsilon"),
    [
        (0.5, 0.1, 0.0, math.log(5)),
        (0.5, 0.1, 0.1, math.log(4)),
        (0.95, 0.6, 0.0, math.log(0.4 / 0.05)),
        (0.95, 0.6, 0.1, math.log(0.3 / 0.05)),
        (1.0, 0.4, 0.0, math.inf),
        (1.0, 0.9, 0.2, 0.0),
        (1.0, 1.0, 0.0, 0.0),
        (0.1, 0.5, 0.1, 0.0),
        (0.05, 0.05, 0.0, 0.0),
    ],
)
def test_power_needs_epsilon_bounding_both_errors(power: float, level: float, delta: float, epsilon: float) -> None:
    assert epsilon == pytest.approx(least_epsilon(power, level, delta))


def test_gaussian_mechanism_has_delta_of_privacy_curve() -> None:
    # P[Z <= 1/2 - 1] - e P[Z <= -1/2 - 1] = 0.30853754 - 2.71828183 * 0.06680720
    assert pytest.approx(gaussian_delta(1.0, 1.0), abs=1e-8) == 0.12693674
    # P[Z <= 1 - 1/2] - e P[Z <= -1 - 1/2] = 0.69146246 - 2.71828183 * 0.06680720
    assert pytest.approx(gaussian_delta(2.0, 1.0), abs=1e-7) == 0.50986167
    assert special.ndtr(1.0) - special.ndtr(-1.0) == pytest.approx(gaussian_delta(2.0, 0.0))  # total variation
    assert gaussian_delta(0.0, 0.5) == 0.0
    for mu in (0.1, 1.0, 5.0):
        assert mu == pytest.approx(gaussian_mu(gaussian_epsilon(mu, 1e-5), 1e-5), abs=1e-5)


def test_many_runs_bound_epsilon_by_exact_limits() -> None:
    low, high = (float(stats.beta.ppf(share, *counts)) for share, counts in ((0.025, (90, 11)), (0.975, (6, 95))))
    assert math.log((low - 1e-5) / high) == pytest.approx(many_runs_bound((90, 100), (5, 100), 1e-5, LEVEL))
    mu = float(special.ndtri(low) - special.ndtri(high))
    assert gaussian_epsilon(mu, 1e-5) == pytest.approx(gaussian_many_runs_bound((90, 100), (5, 100), 1e-5, LEVEL))
    for bound in (many_runs_bound, gaussian_many_runs_bound):
        assert bound((5, 100), (5, 100), 1e-5, LEVEL) == 0.0


@pytest.mark.parametrize("bound", [many_runs_bound, gaussian_many_runs_bound])
def test_many_runs_bound_rarely_exceeds_gaussian_epsilon(
    bound: Callable[[tuple[int, int], tuple[int, int], float, float], float],
) -> None:
    stream = np.random.default_rng(19)
    mu = gaussian_mu(1.0, 1e-5)
    true_positives, false_positives = (
        stream.binomial(100, float(special.ndtr(shift - 0.5)), 200) for shift in (mu, 0.0)
    )
    bounds = []
    for a, b in zip(true_positives, false_positives, strict=True):
        bounds.append(bound((int(a), 100), (int(b), 100), 1e-5, LEVEL))
    assert sum(np.array(bounds) > 1.0) <= 20  # of 200 at 5 %


def test_known_false_positive_rate_saves_level_for_power() -> None:
    low = float(stats.beta.ppf(LEVEL, 12, 1))
    assert math.log((low - 1e-5) / 0.01) == pytest.approx(many_runs_bound((12, 12), 0.01, 1e-5, LEVEL))


def test_threshold_of_first_half_rarely_exceeds_epsilon() -> None:
    stream = np.random.default_rng(23)
    mu = gaussian_mu(1.0, 1e-5)
    for bound in MANY_RUNS.values():
        bounds = []
        for _ in range(200):
            bounds.append(bound_by_scores(bound, stream.normal(mu, 1, 60), stream.normal(0, 1, 60), 1e-5, LEVEL))
        assert sum(np.array(bounds) > 1.0) <= 20  # of 200 at 5 %


@pytest.mark.parametrize(
    ("wins_without_alarms", "true_positives"),
    [(1.0, ((3, 5), (3, 4))), (2.0, ((1, 5), (1, 4)))],  # thresholds 4, with 3 of 4 and 1 of 3 positives, and 10
)
def test_threshold_is_chosen_on_first_half(wins_without_alarms: float, true_positives: tuple[Calls, Calls]) -> None:
    calls: list[tuple[Calls, Rate, float, float]] = []

    def bound(power: Calls, false: Rate, delta: float, level: float) -> float:
        calls.append((power, false, delta, level))
        return wins_without_alarms if false == (0, 3) else 0.25 * power[1]

    inside = np.array([10.0, 2.0, 6.0, 4.0, 1.0, 3.0, 4.0, 7.0, 11.0])
    outside = np.array([9.0, 3.0, 1.0, 0.0, 4.0, 5.0, 12.0])
    assert bound_by_scores(bound, inside, outside, 0.1, LEVEL) == 1.25
    assert calls[-1] == (*true_positives, 0.1, LEVEL)


def test_separated_runs_are_bounded_by_second_halves() -> None:
    apart = bound_by_scores(many_runs_bound, np.arange(40.0) + 40, np.arange(40.0), 1e-5, LEVEL)
    assert apart == pytest.approx(many_runs_bound((20, 20), (0, 20), 1e-5, LEVEL))
    for inside, outside in ((np.ones(1), np.zeros(2)), (np.ones(2), np.zeros(1))):
        assert bound_by_scores(many_runs_bound, inside, outside, 1e-5, LEVEL) == 0.0


def test_search_ends_at_its_limit() -> None:
    assert largest_rejected(lambda epsilon: True) == 64.0
    assert largest_rejected(lambda epsilon: False) == 0.0
    assert math.pi == pytest.approx(largest_rejected(lambda epsilon: epsilon < math.pi), abs=1e-6)
