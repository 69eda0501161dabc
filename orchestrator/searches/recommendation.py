"""What a search recommends: the trial that remembers least for the accuracy that is needed, audited once more.

The rule. Of the whole trials whose utility is at most `allowance` worse than that of the start, the one that remembers
least is the winner. It was chosen for its number, which is therefore too good; so it and the start are audited again
with fresh seeds and canaries, the same for both, and the answer rests on these two numbers alone. The winner is
recommended if the 95 % interval of what it remembers less than the start lies above 0, and if it is again at most
`allowance` less useful.

Error. A winner that remembers as much as the start, or more, is recommended in at most 2.5 % of searches, however many
trials they have. The interval of the difference is that of two independent estimates (MOVER: Donner & Zou 2012,
"Closed-form confidence intervals for functions of the normal mean and standard deviation", eq. 3); that the two share
their canaries makes it wider than it need be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.inspection.search_results import FRESH, RECOMMENDED, SEARCHED, START
from orchestrator.quantities import format_count
from orchestrator.searches.trials import Trial, Value
from orchestrator.spec.fields import text
from tasks.objectives import SHARE, Objective, Objectives

NOT_SHOWN, NOT_USEFUL, NONE = "not shown", "not useful enough", "none"  # answers, besides RECOMMENDED
HARDLY = 1e-3  # of what may be given up: a difference that is none


@dataclass(frozen=True)
class Recommendation:
    """What the search answers: one of the four words, and why in a sentence.

    `difference` is what the winner remembers less than the start, by their fresh audits; None without both.
    """

    answer: str
    sentence: str
    winner: int | None = None
    difference: Value | None = None


def winner(trials: Sequence[Trial], objectives: Objectives, allowance: float) -> Trial | None:
    """The trial of the search that remembers least among those that are useful enough, and less than the start."""
    start = _find(trials, SEARCHED, START)
    if start is None or not start.whole:
        return None
    there = [
        trial
        for trial in trials
        if trial.whole
        and trial.part == SEARCHED
        and loss(start, trial, objectives) <= allowance
        and less(start, trial, objectives) > 0
    ]
    return max(there, key=lambda trial: (less(start, trial, objectives), -trial.number), default=None)


def recommend(trials: Sequence[Trial], objectives: Objectives, allowance: float) -> Recommendation:
    """The answer of a search whose winner and start have been audited again, as far as there is one."""
    made = [trial for trial in trials if trial.part == SEARCHED and trial.number != START]
    start, best = _find(trials, SEARCHED, START), winner(trials, objectives, allowance)
    given_up = f"at most {format_amount(objectives.utility, allowance)} of {objectives.utility.name} given up"
    if start is None or not start.whole:
        return Recommendation(NONE, "No answer: what the search begins from has no estimate.")
    if best is None:
        return Recommendation(
            NONE, f"None of {len(made)} trials remembers less than what the search began from with {given_up}."
        )
    fresh = [_find(trials, FRESH, number) for number in (START, best.number)]
    if fresh[0] is None or fresh[1] is None or not (fresh[0].whole and fresh[1].whole):
        said = (
            f"{describe_choices(best)} remembers least in the search, and has not been audited again with fresh seeds."
        )
        return Recommendation(NOT_SHOWN, f"Nothing is recommended yet: {said}", best.number)
    return _compare_fresh(fresh[0], fresh[1], objectives, allowance)


def less(start: Trial, other: Trial, objectives: Objectives) -> float:
    """How much less another trial remembers."""
    assert start.memorization is not None
    assert other.memorization is not None
    return objectives.memorization.sign * (other.memorization.estimate - start.memorization.estimate)


def loss(start: Trial, other: Trial, objectives: Objectives) -> float:
    """How much less useful another trial is."""
    assert start.utility is not None
    assert other.utility is not None
    return objectives.utility.sign * (start.utility.estimate - other.utility.estimate)


def difference(one: Value, other: Value) -> Value:
    """One estimate less another that is independent of it, with its 95 % interval; none where one of them has none.

    With x - y the difference, [l, u] and [m, v] their intervals,

        low = x - y - sqrt((x - l)^2 + (v - y)^2),  high = x - y + sqrt((u - x)^2 + (y - m)^2)

    Donner & Zou 2012, eq. 3.
    """
    value, n = one.estimate - other.estimate, min(one.n, other.n)
    if None in (one.low, one.high, other.low, other.high):
        return Value(value, n=n, unit=one.unit)
    assert one.low is not None
    assert one.high is not None
    assert other.low is not None
    assert other.high is not None
    return Value(
        value,
        value - math.hypot(one.estimate - one.low, other.high - other.estimate),
        value + math.hypot(one.high - one.estimate, other.estimate - other.low),
        n,
        one.unit,
    )


def describe_choices(trial: Trial) -> str:
    """The choices of a trial in words: `dropout=true, learning_rate=0.0003`."""
    return ", ".join(f"{name}={text(value)}" for name, value in trial.setting.items()) or "what it began from"


def _compare_fresh(start: Trial, best: Trial, objectives: Objectives, allowance: float) -> Recommendation:
    """The answer by the fresh audits of the start and the winner."""
    memorization, utility = objectives.memorization, objectives.utility
    assert start.memorization is not None
    assert best.memorization is not None
    assert start.utility is not None
    assert best.utility is not None
    pair = (start.memorization, best.memorization)
    gained = difference(*(pair if memorization.better == "lower" else pair[::-1]))
    lost = loss(start, best, objectives)
    cost = f"{'for' if lost > 0 else 'with a gain of'} {format_amount(utility, abs(lost))} of {utility.name}"
    if abs(lost) <= HARDLY * allowance:
        cost = f"at the same {utility.name}"
    levels = f"{_number(start.utility.estimate)} to {_number(best.utility.estimate)}"
    values = (
        f"from {format_interval(start.memorization)} to {format_interval(best.memorization)}"
        f" {memorization.unit} {cost} ({levels}); "
        f"{format_count(best.memorization.n, best.memorization.unit)} each, with fresh seeds"
    )
    if gained.low is None or gained.low <= 0:
        doubt = (
            "no interval"
            if gained.low is None
            else f"the difference is {format_interval(gained)}, which is not above 0"
        )
        return Recommendation(
            NOT_SHOWN,
            f"Nothing is recommended: {describe_choices(best)} remembers least in the search, but audited again its "
            f"{memorization.name} goes {values}: {doubt}.",
            best.number,
            gained,
        )
    if lost > allowance:
        return Recommendation(
            NOT_USEFUL,
            f"Nothing is recommended: with {describe_choices(best)} {memorization.name} falls {values}, and at most "
            f"{format_amount(utility, allowance)} were to be given up.",
            best.number,
            gained,
        )
    falls = "falls" if memorization.better == "lower" else "rises"
    return Recommendation(
        RECOMMENDED, f"{describe_choices(best)}: {memorization.name} {falls} {values}.", best.number, gained
    )


def recommendation_json(recommendation: Recommendation) -> dict[str, Any]:
    """The recommendation as JSON."""
    gained = recommendation.difference
    return {
        "answer": recommendation.answer,
        "sentence": recommendation.sentence,
        "winner": recommendation.winner,
        "difference": None if gained is None else {"estimate": gained.estimate, "low": gained.low, "high": gained.high},
    }


def _find(trials: Sequence[Trial], part: str, number: int) -> Trial | None:
    return next((trial for trial in trials if (trial.part, trial.number) == (part, number)), None)


def format_amount(objective: Objective, value: float) -> str:
    """An amount of utility in words: of a share in points of a hundred."""
    if objective.unit == SHARE:
        points = f"{100 * value:.2g}"
        return f"{points} point" if points == "1" else f"{points} points"
    return f"{value:.2g} {objective.unit}"


def format_interval(value: Value) -> str:
    if value.low is None or value.high is None:
        return _number(value.estimate)
    return f"{_number(value.estimate)} [{_number(value.low)}, {_number(value.high)}]"


def _number(value: float) -> str:
    return f"{value:.3g}"
