"""Lower bounds on epsilon: values that others publish, formulas by a second way, and how often bounds are too high."""

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

LEVEL, DELTA, EACH = 0.05, 1e-6, 10_000
Counts = NDArray[np.int64]


def corner_counts(shift: float) -> tuple[Counts, Counts]:
    """Guesses and correct ones at the corners of the ROC's convex hull; 10,000 members N(shift, 1), others N(0, 1).

    jax_privacy (`auditing.py`, 2026) divides its level by the number of these corners.
    """
    others = stats.norm.ppf((np.arange(EACH) + 0.5) / EACH)
    thresholds = np.append(np.union1d(others, others + shift), np.inf)
    points = np.stack([np.searchsorted(others + shift, thresholds), np.searchsorted(others, thresholds)], axis=1)
    while True:
        steps = np.diff(points, axis=0)
        kept = np.r_[True, steps[:-1, 1] * steps[1:, 0] - steps[1:, 1] * steps[:-1, 0] > 0, True]
        if kept.all():
            break
        points = points[kept]
    correct = EACH - points[:, 0]
    return 2 * EACH - points.sum(axis=1), correct


@pytest.mark.parametrize(
    ("shift", "one_run", "gaussian"), [(1, 1.13346, 2.164749), (2, 2.311945, 4.7218075), (4, 4.395568, 9.133752)]
)
def test_the_bounds_on_quantiles_of_normal_scores_are_those_that_others_publish(
    shift: float, one_run: float, gaussian: float
) -> None:
    guesses, correct = corner_counts(shift)
    pairs = [(int(some), int(right)) for some, right in zip(guesses, correct, strict=True) if some]
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
def test_the_p_value_of_one_run_is_the_sum_of_its_formula(guesses: int, correct: int, delta: float) -> None:
    mass = [math.comb(guesses, hits) * 0.75**hits * 0.25 ** (guesses - hits) for hits in range(guesses + 1)]
    beta = sum(mass[correct:])
    excess = max((sum(mass[correct - i : correct]) / i for i in range(1, correct + 1)), default=0.0)
    expected = min(1.0, beta + 2 * 100 * delta * excess)
    assert expected == pytest.approx(one_run_p_value(math.log(3), delta, 100, guesses, correct))


def test_the_wealth_of_bets_is_the_integral_over_all_stakes() -> None:
    inside, q = np.array([True, True, True, False, True, True]), 0.6

    def wealth(first: int) -> float:
        factors = np.where(inside[:first], 1 / q, 0.0)
        value, _ = integrate.quad(lambda stake: float(np.prod(1 - stake + stake * factors)), 0, 1)
        return value

    expected = 1 / max(wealth(first) for first in range(1, len(inside) + 1))
    assert expected == pytest.approx(betting_p_value(float(special.logit(q)), inside, 0.0))
    assert expected + 6 * 0.01 / 4 == pytest.approx(betting_p_value(float(special.logit(q)), inside, 0.01))


def test_bets_reject_an_interval_from_0_and_nothing_without_a_hit() -> None:
    inside = np.random.default_rng(0).random(300) < np.linspace(0.99, 0.01, 300)
    p_values = [betting_p_value(epsilon, inside, 1e-5) for epsilon in np.linspace(0, 6, 60)]
    assert p_values == sorted(p_values)
    bound = betting_bound(inside, 1e-5, LEVEL)
    assert 1.0 < bound < 4.6
    assert betting_p_value(bound, inside, 1e-5) <= LEVEL < betting_p_value(bound + 1e-5, inside, 1e-5)
    assert 0.0 == betting_bound(np.zeros(100, bool), 0.0, LEVEL) == betting_bound(inside, 0.01, LEVEL)
    assert 1.0 == betting_p_value(0.0, np.zeros(0, bool), 0.0) == betting_p_value(0.0, np.zeros(100, bool), 1.0)


def response(epsilon: float, delta: float, canaries: int, stream: np.random.Generator) -> Mask:
    """Which of the canaries are in, ranked by randomised response that gives coins away with probability delta."""
    inside = stream.random(canaries) < 0.5
    said = np.where(stream.random(canaries) < special.expit(epsilon), inside, ~inside).astype(float)
    said += np.where(stream.random(canaries) < delta, 4.0 * inside - 2.0, 0.0)
    return inside[np.argsort(-said, kind="stable")]


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.0), (1.0, 0.0), (4.0, 0.0), (1.0, 4e-4)])
def test_bets_and_guesses_exceed_the_epsilon_of_randomised_response_as_seldom_as_is_said(
    epsilon: float, delta: float
) -> None:
    counts, wrong = guess_counts(200), [0, 0]
    for run in range(400):
        inside = response(epsilon, delta, 200, np.random.default_rng((17, run)))
        wrong[0] += betting_p_value(epsilon, inside, delta) <= LEVEL
        wrong[1] += any(
            one_run_p_value(epsilon, delta, 200, count, int(inside[:count].sum())) <= LEVEL / len(counts)
            for count in counts
        )
    assert max(wrong) <= 34  # of 400 at 5 %: more with a chance of 1 in 500


def test_the_bound_of_one_run_against_a_gaussian_mechanism_is_seldom_too_high() -> None:
    mu, counts = gaussian_mu(2.0, 1e-5), guess_counts(200)
    wrong = 0
    for run in range(200):
        stream = np.random.default_rng((18, run))
        inside = stream.random(200) < 0.5
        ranked = inside[np.argsort(-stream.normal(mu * inside))]
        correct = [(count, int(ranked[:count].sum())) for count in counts]
        wrong += any(gaussian_excess(mu, 200, *each, LEVEL / len(counts)) > 0 for each in correct)
    assert wrong <= 20  # of 200 at 5 %: more with a chance of 1 in 700


def test_of_several_numbers_of_guesses_the_best_counts_at_a_share_of_the_level() -> None:
    assert guess_counts(100) == (50, 25, 12)
    assert (guess_counts(16), guess_counts(15)) == ((8,), ())
    inside = np.arange(100) < 50
    single = [one_run_bound(0.0, 100, count, count, LEVEL / 3) for count in (50, 25, 12)]
    assert max(single) == best_of_guesses(one_run_bound, inside, 0.0, LEVEL)
    asked: list[tuple[float, ...]] = []

    def bound_of(*its: float) -> float:
        asked.append(its)
        return its[2]

    assert best_of_guesses(bound_of, np.arange(100) < 20, 1e-3, LEVEL) == 50
    assert [(1e-3, 100, count, min(count, 20), LEVEL / 3) for count in (50, 25, 12)] == asked
    assert special.logit((LEVEL / 3) ** (1 / 50)) == pytest.approx(single[0], abs=1e-6)  # 50 of 50 are right
    assert best_of_guesses(one_run_bound, inside[:10], 0.0, LEVEL) == 0.0
    bound = gaussian_one_run_bound(1e-5, 100, 50, 50, LEVEL / 3)
    assert bound > single[0]
    assert pytest.approx(gaussian_excess(gaussian_mu(bound, 1e-5), 100, 50, 50, LEVEL / 3), abs=1e-4) == 0.0


def test_results_of_a_gaussian_mechanism_exceed_all_chances_by_the_steps_of_their_recursion() -> None:
    def blow_up(chance: float) -> float:
        return float(special.ndtr(special.ndtri(chance) - 0.1))

    right, wrong = 0.2 * 5 / 12, 0.2 * 1 / 12  # 5 of 6 guesses are right, of 12 canaries
    for still, left in ((4, 2), (3, 3), (2, 4), (1, 5), (0, 6)):
        missed = max(wrong, blow_up(right))
        right, wrong = right + still / left * (missed - wrong), missed
    assert right < 1
    assert right + wrong - 0.5 == pytest.approx(gaussian_excess(0.1, 12, 6, 5, 0.2))
    # Where what is wrong is likelier than that at first, nothing is added.
    assert pytest.approx(gaussian_excess(0.5, 10, 5, 2, 0.1)) == 0.1 * 5 / 10 - 0.5
    assert pytest.approx(gaussian_excess(1e-9, 10, 10, 10, LEVEL)) == 1.0  # no chance is above 1


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
def test_a_test_of_such_power_needs_an_epsilon_that_bounds_both_of_its_errors(
    power: float, level: float, delta: float, epsilon: float
) -> None:
    assert epsilon == pytest.approx(least_epsilon(power, level, delta))


def test_the_gaussian_mechanism_has_the_delta_of_its_privacy_curve() -> None:
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
def test_many_runs_exceed_the_epsilon_of_a_gaussian_mechanism_as_seldom_as_is_said(
    bound: Callable[[tuple[int, int], tuple[int, int], float, float], float],
) -> None:
    stream, mu = np.random.default_rng(19), gaussian_mu(1.0, 1e-5)
    called, false = (stream.binomial(100, float(special.ndtr(shift - 0.5)), 200) for shift in (mu, 0.0))
    bounds = [bound((int(a), 100), (int(b), 100), 1e-5, LEVEL) for a, b in zip(called, false, strict=True)]
    assert sum(np.array(bounds) > 1.0) <= 20  # of 200 at 5 %


def test_a_known_false_positive_rate_leaves_the_whole_level_to_the_power() -> None:
    low = float(stats.beta.ppf(LEVEL, 12, 1))
    assert math.log((low - 1e-5) / 0.01) == pytest.approx(many_runs_bound((12, 12), 0.01, 1e-5, LEVEL))


def test_a_threshold_that_half_of_the_runs_chose_exceeds_epsilon_as_seldom_as_is_said() -> None:
    stream, mu = np.random.default_rng(23), gaussian_mu(1.0, 1e-5)
    for bound in MANY_RUNS.values():
        bounds = [
            bound_by_scores(bound, stream.normal(mu, 1, 60), stream.normal(0, 1, 60), 1e-5, LEVEL) for _ in range(200)
        ]
        assert sum(np.array(bounds) > 1.0) <= 20  # of 200 at 5 %


@pytest.mark.parametrize(
    ("wins_without_alarms", "called"),
    [(1.0, ((3, 5), (3, 4))), (2.0, ((1, 5), (1, 4)))],  # at 4, where 3 of 4 and 1 of 3 were called; at 10
)
def test_a_threshold_is_chosen_by_the_first_half_for_the_bound_and_then_for_the_rates_and_counted_on_the_rest(
    wins_without_alarms: float, called: tuple[Calls, Calls]
) -> None:
    asked: list[tuple[Calls, Rate, float, float]] = []

    def bound(power: Calls, false: Rate, delta: float, level: float) -> float:
        asked.append((power, false, delta, level))
        return wins_without_alarms if false == (0, 3) else 0.25 * power[1]

    inside = np.array([10.0, 2.0, 6.0, 4.0, 1.0, 3.0, 4.0, 7.0, 11.0])
    outside = np.array([9.0, 3.0, 1.0, 0.0, 4.0, 5.0, 12.0])
    assert bound_by_scores(bound, inside, outside, 0.1, LEVEL) == 1.25
    assert (*called, 0.1, LEVEL) == asked[-1]


def test_runs_that_are_apart_are_bounded_by_their_second_halves_and_single_runs_by_nothing() -> None:
    apart = bound_by_scores(many_runs_bound, np.arange(40.0) + 40, np.arange(40.0), 1e-5, LEVEL)
    assert apart == pytest.approx(many_runs_bound((20, 20), (0, 20), 1e-5, LEVEL))
    for inside, outside in ((np.ones(1), np.zeros(2)), (np.ones(2), np.zeros(1))):
        assert bound_by_scores(many_runs_bound, inside, outside, 1e-5, LEVEL) == 0.0


def test_a_search_ends_where_everything_is_rejected() -> None:
    assert largest_rejected(lambda epsilon: True) == 64.0
    assert largest_rejected(lambda epsilon: False) == 0.0
    assert math.pi == pytest.approx(largest_rejected(lambda epsilon: epsilon < math.pi), abs=1e-6)
