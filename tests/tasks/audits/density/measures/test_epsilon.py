"""Scores beside epsilon, where the densities of private mechanisms are known exactly."""

import json
import math
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from scipy import integrate, stats
from scipy.special import expit

from tasks.audits.density.measures.scores import SCORES, Check, check_epsilon, privacy
from tasks.training.recipe import Privacy
from tests.support.calibration import DRAWS, assert_rate, bounds

EPSILON = 0.7


def exactly(score: float, epsilon: float = EPSILON) -> Check:
    """The check of one row whose densities are known: every trial says the same."""
    return check_epsilon(np.array([5]), np.full((1, 3), score - 100), np.full((1, 3), -100.0), epsilon)


def answered(truth: bool, chance: np.random.Generator, trials: int) -> np.ndarray:
    """Randomised response to whether the row is among the data: true with probability e^epsilon / (1 + e^epsilon)."""
    return (chance.random(trials) < 1 / (1 + math.exp(-EPSILON))) == truth


def response(high: float, low: float) -> float:
    """The score where a model gives the row `high` after the answer yes and `low` after no."""
    likely = math.exp(EPSILON)
    return math.log((high * likely + low) / (high + low * likely))


def test_randomised_response_reaches_epsilon_and_never_passes_it() -> None:
    assert EPSILON == pytest.approx(response(0.3, 0.0), abs=1e-12)
    assert exactly(response(0.3, 0.0), EPSILON + 1e-9).above == 0
    for high, low in ((0.3, 0.1), (0.9, 0.89), (0.2, 0.5)):
        assert response(high, low) < EPSILON
        found = exactly(response(high, low))
        assert (0, 1.0, 0) == (found.above, found.p_value, found.surely)


def laplace(given: float, without: float, step: float) -> float:
    """The score of a 1 by Laplace's mechanism on a count, with and without it: a model says 1 with probability
    sigmoid((released - 4) / step)."""

    def density(count: float) -> float:
        noise = stats.laplace(count, 1 / EPSILON)
        return integrate.quad(lambda c: noise.pdf(c) * expit((c - 4) / step), -60, 60, points=[count, 4], limit=500)[0]

    return math.log(density(given) / density(without))


def test_a_count_with_laplace_noise_keeps_within_epsilon() -> None:
    # A step at 4, above both counts, where the noise's densities are e^epsilon apart throughout.
    assert EPSILON == pytest.approx(laplace(3, 2, 0.01), abs=1e-3)
    for step in (0.5, 2.0, 10.0):
        score = laplace(3, 2, step)
        assert 0 < score < EPSILON
        assert exactly(score).above == 0


def test_an_algorithm_that_is_not_private_passes_it() -> None:
    # Shares of ten rows with one of their own kind, of three kinds, one added to each: 2 / 13 with it, 1 / 12 without.
    score = math.log(2 / 13) - math.log(1 / 12)
    found = exactly(score, epsilon=0.5)
    assert (5, 1, 1, 0.0) == (found.row, found.above, found.surely, found.p_value)
    assert score == pytest.approx(found.largest.value)
    assert 0 == exactly(score, epsilon=0.7).above


@pytest.mark.slow  # 5,000 checks
def test_the_interval_covers_epsilon_where_the_score_is_epsilon() -> None:
    # Of all that forty trials can answer, each as likely as it is, 96.2 % have an interval that covers epsilon, 1.0 %
    # lie above it and 2.9 % have p <= 5 %: so few trials are too few for 5 %, and the errors are on the safe side.
    high, low, trials = 0.9, 0.02, 40
    score, found = response(high, low), Counter[str]()
    chance = np.random.default_rng(0)
    for _ in range(DRAWS):
        sides = [np.log(np.where(answered(truth, chance, trials), high, low))[None] for truth in (True, False)]
        one = check_epsilon(np.array([0]), *sides, epsilon=score)
        assert one.largest.low is not None
        assert one.largest.high is not None
        assert one.p_value is not None
        found["above"] += one.largest.low > score
        found["below"] += one.largest.high < score
        found["rejected"] += one.p_value <= 0.05
    assert_rate(0.00958, found["above"])
    assert_rate(0.02840, found["below"])
    assert_rate(0.02947, found["rejected"])


@pytest.mark.slow  # 5,000 checks
def test_of_twenty_rows_whose_scores_are_epsilon_one_is_called_in_one_run_of_twenty() -> None:
    # Normal scores, of which the smallest of 20 p-values is at most 0.05 / 20 in 4.9 %, and the same share has a
    # discovery at 5 % false ones. The row was chosen by its score: the p-value of all rows pays for it, and so does the
    # interval, which lies above epsilon where one of 20 that cover 1 - 0.05 / 20 does, or less often.
    rng, rows, trials = np.random.default_rng(1), 20, 10
    found = Counter[str]()
    for trained, held_out in rng.normal(-100, 0.1, (DRAWS, 2, rows, trials)):
        one = check_epsilon(np.arange(rows), trained + 0.5, held_out, 0.5)
        assert one.p_value is not None
        assert one.surely is not None
        assert one.largest.low is not None
        found["rejected"] += one.p_value <= 0.05
        found["discovered"] += one.surely > 0
        found["above"] += one.largest.low > 0.5
    assert_rate(1 - (1 - 0.05 / rows) ** rows, found["rejected"])
    assert_rate(0.05, found["discovered"])
    assert found["above"] <= bounds(0.025)[1]


def test_the_largest_row_is_named_and_pays_for_having_been_chosen() -> None:
    chance = np.random.default_rng(1)
    trained, held_out = chance.normal(-100, 1, (2, 50, 20))
    trained[7] += 12
    alone = check_epsilon(np.array([7]), trained[7:8], held_out[7:8], 3.0, 1e-5)
    found = check_epsilon(np.arange(100, 150), trained, held_out, 3.0, 1e-5)
    assert (107, 50, 1, False) == (found.row, found.rows, found.surely, found.bounded)
    assert found.largest.value == alone.largest.value
    assert alone.largest.low is not None
    assert found.largest.low is not None
    assert found.largest.low < alone.largest.low
    assert alone.p_value is not None
    assert 50 * alone.p_value == pytest.approx(found.p_value)


def test_the_interval_is_the_jackknifes_by_hand() -> None:
    # Scores without each of three trials: logs of means of two.
    trained, held_out = np.log([[1.0, 2.0, 6.0]]), np.log([[1.0, 1.0, 4.0]])
    found = check_epsilon(np.array([0]), trained, held_out, 0.1)
    without = np.log([(2 + 6) / (1 + 4), (1 + 6) / (1 + 4), (1 + 2) / (1 + 1)])
    half = stats.t.ppf(0.975, 2) * math.sqrt(2 / 3 * ((without - without.mean()) ** 2).sum())
    assert math.log(9 / 6) == pytest.approx(found.largest.value)
    assert math.log(9 / 6) + half == pytest.approx(found.largest.high)
    assert stats.t.sf((math.log(9 / 6) - 0.1) / (half / stats.t.ppf(0.975, 2)), 2) == pytest.approx(found.p_value)


def test_one_trial_and_missing_ones_have_a_score_but_no_interval() -> None:
    one = check_epsilon(np.array([3]), np.array([[-90.0]]), np.array([[-100.0]]), 1.0)
    assert (10.0, None, None, None, None) == (
        one.largest.value,
        one.largest.low,
        one.largest.high,
        one.p_value,
        one.surely,
    )
    trained = np.array([[-90.0, np.nan], [np.nan, np.nan]])
    found = check_epsilon(np.array([3, 4]), trained, np.full((2, 2), -100.0), 1.0)
    assert (3, 1, 1) == (found.row, found.rows, found.above)
    with pytest.raises(ValueError, match="no row has a score"):
        check_epsilon(np.array([4]), trained[1:], np.full((1, 2), -100.0), 1.0)


def test_scores_of_folds_are_refused() -> None:
    with pytest.raises(ValueError, match="estimator is kfold; epsilon is about a single row"):
        check_epsilon(np.array([0]), np.zeros((1, 2)), np.zeros((1, 2)), 1.0, estimator="kfold")


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.0), (math.inf, 0.0), (1.0, 1.0), (1.0, -0.1)])
def test_what_is_no_promise_is_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(ValueError, match="finite and above 0"):
        check_epsilon(np.array([0]), np.zeros((1, 2)), np.zeros((1, 2)), epsilon, delta)


def test_the_summary_names_the_row_and_the_delta() -> None:
    sides = {"trained": [[-90.0, -91.0, -90.5], [-100.0, None, -99.0]], "held_out": [[-100.0, -101.0, -99.0]] * 2}
    columns = {"row": [4, 9], "m": [10.0, 0.5], **sides}
    table = pa.table({name: pa.array(values, SCORES.field(name).type) for name, values in columns.items()})
    largest, above = privacy(table, Privacy(2.0, 1e-5))
    assert {"epsilon": 2.0, "delta": 1e-5, "row": 4} == json.loads(largest["setting"])
    assert (3, "trial") == (largest["n"], largest["unit"])
    assert largest["low"] < largest["estimate"] < largest["high"]
    assert (0.5, 2, 0.0) == (above["estimate"], above["n"], above["null"])
    nobody = table.set_column(1, "m", pa.nulls(2, pa.float64()))
    assert [] == list(privacy(nobody, Privacy(2.0)))
