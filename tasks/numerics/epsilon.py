"""Lower bounds on epsilon, the privacy parameter of a mechanism, from the success of an attack.

An independent fair coin decides for each canary whether it is in the training data, and an attack ranks the canaries or
guesses their membership. A bound exceeds the true epsilon in at most a fraction `level` of audits. Neighbouring data
sets differ by adding or removing one record, as in DP-SGD with Poisson sampling.

Selecting the threshold with the largest bound would increase this error rate. There are three remedies: the number of
guesses is fixed in advance, the level is divided among a few numbers (`guess_counts`), or the bound is valid for all
thresholds at once (`betting_bound`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from tasks.numerics.statistics import proportion_at_least

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
TOLERANCE = 1e-7  # absolute error of epsilon
LARGEST = 64.0  # largest epsilon searched; no count distinguishes a probability of e^-64 from 0
FEWEST_GUESSES = 8


def one_run_p_value(epsilon: float, delta: float, canaries: int, guesses: int, correct: int) -> float:
    """Return an upper bound on the probability of `correct` right guesses in one (epsilon, delta)-private training.

    beta + 2 m delta max_i (P[B >= v - i] - beta) / i, with beta = P[B >= v] and B ~ Binomial(guesses, q), q = e^epsilon
    / (1 + e^epsilon). Steinke, Nasr & Jagielski 2023, "Privacy auditing with one (1) training run".
    """
    from scipy import special

    at_least = special.bdtrc(np.arange(correct - 1, -2, -1), guesses, special.expit(epsilon))  # for v, v - 1, ..., 0
    beta = float(at_least[0])
    if not correct:
        return beta
    excess = float(((at_least[1:] - beta) / np.arange(1, correct + 1)).max())
    return min(1.0, beta + 2 * canaries * delta * excess)


def one_run_bound(delta: float, canaries: int, guesses: int, correct: int, level: float) -> float:
    """Bound epsilon from below by the correct guesses about one training. `guesses` must be fixed beforehand."""
    return largest_rejected(lambda epsilon: one_run_p_value(epsilon, delta, canaries, guesses, correct) <= level)


def gaussian_one_run_bound(delta: float, canaries: int, guesses: int, correct: int, level: float) -> float:
    """Bound epsilon against the stronger claim that the training is as private as a Gaussian mechanism.

    This is the epsilon at `delta` of the most private Gaussian mechanism that is not rejected. A mechanism that is not
    Gaussian may exceed it and still be (epsilon, delta)-private.
    """
    return largest_rejected(
        lambda epsilon: gaussian_excess(gaussian_mu(epsilon, delta), canaries, guesses, correct, level) > 0
    )


def gaussian_excess(mu: float, canaries: int, guesses: int, correct: int, level: float) -> float:
    """Return by how much the correct guesses exceed the limit of mu-Gaussian privacy, which is rejected above 0.

    If at least v correct guesses had a probability above `level`, the probabilities of all results would sum to more
    than 1. Mahloujifar, Melis & Chaudhuri 2025, "Auditing f-differential privacy in one run", audit_rh_with_cap, with
    the blow-up function Phi(Phi^-1(x) - mu).
    """
    from scipy.special import ndtr, ndtri

    correct_mass = level * correct / canaries
    incorrect_mass = level * (guesses - correct) / canaries
    for remaining in range(correct - 1, -1, -1):
        next_incorrect_mass = max(incorrect_mass, float(ndtr(ndtri(correct_mass) - mu)))
        if next_incorrect_mass == incorrect_mass:
            break  # neither value changes any more
        correct_mass = min(
            1.0, correct_mass + remaining / (guesses - remaining) * (next_incorrect_mass - incorrect_mass)
        )
        incorrect_mass = next_incorrect_mass
    return correct_mass + incorrect_mass - guesses / canaries


def betting_bound(inside: Mask, delta: float, level: float) -> float:
    """Bound epsilon by betting down a ranking. `inside` is the membership of each canary, likeliest first."""
    return largest_rejected(lambda epsilon: betting_p_value(epsilon, inside, delta) <= level)


def betting_p_value(epsilon: float, inside: Mask, delta: float) -> float:
    """Return an upper bound on the probability of this gain from bets in one (epsilon, delta)-private training.

    Given the earlier canaries, each canary is in with a probability of at most q = e^epsilon / (1 + e^epsilon). A
    bettor who stakes the share c on "in" multiplies the stake by 1 - c + c / q after a hit and by 1 - c after a miss,
    with an expected gain of 0. The wealth with c uniform in (0, 1) is the mean, over all theta = q + c (1 - q), of
    (theta / q)^hits ((1 - theta) / (1 - q))^misses. The probability that it ever reaches w is at most 1 / w (Ville
    1939). It decreases with epsilon, so the rejected values form an interval from 0.

    With delta, the probability may exceed q. The expected sum of the excess over canaries is at most m delta / (2 (1 +
    e^epsilon)). The excess of one canary is (a - e^epsilon b)+ / ((a + b) (1 + e^epsilon)), where a and b are the
    probabilities of the output with and without it, given the earlier coins. The output has the weight (a + b) / 2, and
    (a - e^epsilon b)+ sums to at most delta, for any number of given coins (Jensen). Therefore m delta / 4 is added to
    the p-value.
    """
    from scipy import special

    hits = np.cumsum(inside, dtype=np.float64)
    misses = np.arange(1, len(inside) + 1) - hits
    q = special.expit(epsilon)
    rest = special.expit(-epsilon)
    with np.errstate(divide="ignore"):  # parts of the integral that underflow count as 0
        part = np.log(special.betainc(misses + 1, hits + 1, rest))
    wealth = special.betaln(hits + 1, misses + 1) + part - hits * np.log(q) - (misses + 1) * np.log(rest)
    return min(1.0, math.exp(-float(wealth.max(initial=0.0))) + len(inside) * delta / 4)


def guess_counts(canaries: int) -> tuple[int, ...]:
    """Return the numbers of guesses that share a level: half of the canaries, a quarter, and so on."""
    counts = []
    while (canaries := canaries // 2) >= FEWEST_GUESSES:
        counts.append(canaries)
    return tuple(counts)


def best_of_guesses(bound: Callable[..., float], inside: Mask, delta: float, level: float) -> float:
    """Return the largest `bound` computed from the first canaries of a ranking.

    The level is divided among `guess_counts`.
    """
    counts = guess_counts(len(inside))
    bounds = []
    for count in counts:
        bounds.append(bound(delta, len(inside), count, int(inside[:count].sum()), level / len(counts)))
    return max(bounds, default=0.0)


Calls = tuple[int, int]  # positive runs, all runs
Rate = Calls | float  # alternatively, the probability of a positive run, if known


def many_runs_bound(power: Calls, false: Rate, delta: float, level: float) -> float:
    """Bound epsilon from independent runs: the positive runs with the record, and those without it.

    Uses Clopper and Pearson's limits, each at half the level, or the limit of the power at the full level if the false
    positive rate is known. Jagielski, Ullman & Oprea 2020, section 4.
    """
    return least_epsilon(*_limits(power, false, level), delta)


def gaussian_many_runs_bound(power: Calls, false: Rate, delta: float, level: float) -> float:
    """Bound epsilon assuming that the mechanism is as private as a Gaussian one. Nasr et al. 2023, section 4.2."""
    from scipy.special import ndtri

    surely, at_most = _limits(power, false, level)
    return gaussian_epsilon(max(0.0, float(ndtri(surely) - ndtri(at_most))), delta)


MANY_RUNS: Mapping[str, Callable[[Calls, Rate, float, float], float]] = {
    "many runs": many_runs_bound,
    "many runs, Gaussian": gaussian_many_runs_bound,
}


def bound_by_scores(
    bound: Callable[[Calls, Rate, float, float], float], inside: Array, outside: Array, delta: float, level: float
) -> float:
    """Return the `bound` from the scores of runs with and without the record, where scores are higher with it.

    The first half of each array determines the threshold for positive runs, and only the second half is counted, so
    choosing the threshold costs only the first half. Runs at the same position in both arrays may share random numbers.
    """
    (first_in, in_rest), (first_out, out_rest) = _halves(inside), _halves(outside)
    if not len(first_in) or not len(first_out):
        return 0.0

    def worth(threshold: float) -> tuple[float, float]:
        power = _calls(first_in, threshold)
        false = _calls(first_out, threshold)
        return bound(power, false, delta, level), power[0] / power[1] - false[0] / false[1]

    threshold = max(np.unique(np.concatenate([first_in, first_out])).tolist(), key=worth)
    return bound(_calls(in_rest, threshold), _calls(out_rest, threshold), delta, level)


def _halves(scores: Array) -> tuple[Array, Array]:
    return scores[: len(scores) // 2], scores[len(scores) // 2 :]


def _calls(scores: Array, threshold: float) -> Calls:
    return int((scores >= threshold).sum()), len(scores)


def _limits(power: Calls, false: Rate, level: float) -> tuple[float, float]:
    """Return the lower limit of the power and the upper limit of the false positive rate."""
    if isinstance(false, float):
        return proportion_at_least(*power, 1 - level), false
    calls, runs = false
    return (
        proportion_at_least(*power, 1 - level / 2),
        1 - proportion_at_least(runs - calls, runs, 1 - level / 2),
    )


def least_epsilon(power: float, level: float, delta: float) -> float:
    """Return the smallest epsilon for which a test with this false positive rate may have this power.

    This is the inverse of `tasks.training.recipe.Privacy.power`: 0 if every epsilon allows it, infinite if none does.
    """
    with_it = power - delta
    without = 1 - delta - level
    missed = 1 - power
    steep = math.log(with_it / level) if with_it > 0 else 0.0
    if without <= 0:
        flat = 0.0
    elif missed <= 0:
        flat = math.inf
    else:
        flat = math.log(without / missed)
    return max(0.0, steep, flat)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return the delta at epsilon of the Gaussian mechanism whose means differ by mu standard deviations.

    Phi(mu / 2 - epsilon / mu) - e^epsilon Phi(-mu / 2 - epsilon / mu). Balle & Wang 2018, theorem 8.
    """
    from scipy.special import log_ndtr

    if not mu:
        return 0.0
    near = log_ndtr(mu / 2 - epsilon / mu)
    far = epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    return float(math.exp(near) * -math.expm1(min(0.0, far - near)))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon at which the Gaussian mechanism is (epsilon, delta)-private."""
    return largest_rejected(lambda epsilon: gaussian_delta(mu, epsilon) > delta)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu for which the Gaussian mechanism is (epsilon, delta)-private."""
    return largest_rejected(lambda mu: gaussian_delta(mu, epsilon) <= delta)


def largest_rejected(is_rejected: Callable[[float], bool]) -> float:
    """Return the upper end of the interval of rejected values, which starts at 0, to within TOLERANCE from below.

    Returns 0 if 0 is not rejected.
    """
    if not is_rejected(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while is_rejected(high):
        if high >= LARGEST:
            return high
        low, high = high, 2 * high
    while high - low > TOLERANCE:
        middle = (low + high) / 2
        low, high = (middle, high) if is_rejected(middle) else (low, middle)
    return low
