"""The recommendation of a search follows its rule.

Under its null hypothesis, its error rate is at most the stated one.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from orchestrator.inspection import search_results
from orchestrator.inspection.search_results import FRESH, RECOMMENDED, SEARCHED, SearchAnswer
from orchestrator.searches.recommendation import (
    NONE,
    NOT_SHOWN,
    NOT_USEFUL,
    difference,
    recommend,
    winner,
)
from orchestrator.searches.trials import FINISHED, Trial, Value
from tasks.contract.objectives import Objectives


def trial(number: int, memory: float, skill: float, part: str = SEARCHED, half: float = 0.5) -> Trial:
    setting = {} if number == 0 else {"rate": number / 100}
    value = Value(memory, memory - half, memory + half, 12, "pair of trainings")
    return Trial(number, part, setting, FINISHED, f"run-{number}-{part}", 8, 1, value, Value(skill, n=12))


def answer(objectives: Objectives, *trials: Trial, allowance: float = 0.05) -> SearchAnswer:
    return recommend(trials, objectives, allowance)


def test_difference_has_interval_of_independent_estimates() -> None:
    """For two means with equal symmetric intervals, the half width is sqrt(2) times theirs."""
    interval = difference(Value(5.0, 4.0, 6.0, 12), Value(2.0, 1.0, 3.0, 10))
    assert interval.estimate == 3.0
    assert interval.n == 10
    assert interval.low == pytest.approx(3 - math.sqrt(2))
    assert interval.high == pytest.approx(3 + math.sqrt(2))
    # One-sided ends: `low` combines the first one's lower and the second one's upper end, `high` the reverse.
    interval = difference(Value(5.0, 2.0, 6.0), Value(2.0, 1.5, 6.0))
    assert interval.low == pytest.approx(3 - 5.0)
    assert interval.high == pytest.approx(3 + math.hypot(1.0, 0.5))
    assert difference(Value(5.0), Value(2.0, 1.0, 3.0)).low is None


def test_winner_memorises_least_among_useful_trials(objectives: Objectives) -> None:
    trials = [trial(0, 5, 0.9), trial(1, 1, 0.5), trial(2, 2, 0.86), trial(3, 3, 0.95), trial(4, 6, 0.99)]
    best = winner(trials, objectives, 0.05)
    assert best is not None
    assert best.number == 2
    assert winner(trials[:2], objectives, 0.05) is None
    assert winner([replace(trials[0], state="failed"), *trials[1:]], objectives, 0.05) is None


def test_confirmed_winner_is_recommended(objectives: Objectives) -> None:
    trials = (trial(0, 5, 0.9), trial(2, 2, 0.89), trial(0, 5.2, 0.91, FRESH), trial(2, 2.4, 0.89, FRESH))
    search_answer = answer(objectives, *trials)
    assert search_answer.answer == RECOMMENDED
    assert search_answer.winner == 2
    assert search_answer.sentence == (
        "rate=0.02: memory falls from 5.2 [4.7, 5.7] to 2.4 [1.9, 2.9] nats for 2 points of skill (0.91 to 0.89); "
        "12 pairs of trainings each, with fresh seeds."
    )


def test_winner_by_chance_is_not_recommended(objectives: Objectives) -> None:
    search_answer = answer(
        objectives, trial(0, 5, 0.9), trial(2, 2, 0.9), trial(0, 5, 0.9, FRESH), trial(2, 4.8, 0.9, FRESH)
    )
    assert search_answer.answer == NOT_SHOWN
    assert "which is not above 0" in search_answer.sentence


def test_winner_with_too_large_loss_is_not_recommended(objectives: Objectives) -> None:
    search_answer = answer(
        objectives, trial(0, 5, 0.9), trial(2, 2, 0.9), trial(0, 5, 0.9, FRESH), trial(2, 1, 0.8, FRESH)
    )
    assert search_answer.answer == NOT_USEFUL


def test_no_better_trial_gives_no_recommendation(objectives: Objectives) -> None:
    search_answer = answer(objectives, trial(0, 1, 0.9), trial(2, 2, 0.9), trial(3, 0.5, 0.5))
    assert search_answer.answer == NONE
    assert search_answer.winner is None
    assert "None of 2 trials memorises less" in search_answer.sentence
    assert answer(objectives).answer == NONE


def test_winner_without_fresh_audit_is_not_recommended(objectives: Objectives) -> None:
    search_answer = answer(objectives, trial(0, 5, 0.9), trial(2, 2, 0.9), trial(0, 5, 0.9, FRESH))
    assert search_answer.answer == NOT_SHOWN
    assert search_answer.winner == 2


def test_answer_is_read_back_from_json(objectives: Objectives) -> None:
    search_answer = answer(
        objectives, trial(0, 5, 0.9), trial(2, 2, 0.89), trial(0, 5, 0.9, FRESH), trial(2, 2, 0.9, FRESH)
    )
    parsed = search_results.parse_answer(search_answer.as_json())
    assert search_answer == parsed


@pytest.mark.parametrize("n", [6, 12])
def test_false_recommendations_are_at_most_2_5_percent(objectives: Objectives, n: int) -> None:
    """2,000 searches of 24 trials with equal memorisation: the apparent winner of each is audited again."""
    draws = np.random.default_rng(0)
    reach = stats.t.ppf(0.975, n - 1)

    def estimate(number: int, part: str) -> Trial:
        values = draws.normal(size=n)
        return trial(number, float(values.mean()), 0.9, part, float(reach * values.std(ddof=1) / math.sqrt(n)))

    false_recommendations = lucky = 0
    for _ in range(2000):
        trials = [estimate(number, SEARCHED) for number in range(25)]
        best = winner(trials, objectives, 0.05)
        if best is None:
            continue
        fresh = [estimate(0, FRESH), estimate(best.number, FRESH)]
        false_recommendations += recommend([*trials, *fresh], objectives, 0.05).answer == RECOMMENDED
        luckiest = difference(*(entry.memorization for entry in (trials[0], best) if entry.memorization is not None))
        lucky += luckiest.low is not None and luckiest.low > 0
    # The upper end of 95 % of 2,000 searches at 2.5 %.
    assert false_recommendations <= stats.binom.ppf(0.975, 2000, 0.025)
    assert lucky > 4 * 50  # the error rate without the fresh audits
