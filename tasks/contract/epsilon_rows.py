"""Rows of a summary: lower bounds on epsilon, and beside them what the accountant says was spent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tasks.contract.summaries import Row, alone, row

CONFIDENCE = 0.95
LEVEL = 1 - CONFIDENCE
AT_LEAST, SPENT = "epsilon, at least", "epsilon by the accountant"
BOUND = "bound"  # of its setting
SHOWN_AT_MOST = "epsilon that so many could show"
SYMBOLS: Mapping[str, str] = {
    AT_LEAST: "a lower bound on epsilon: no more private than this",
    SHOWN_AT_MOST: "the lower bound if every one of so many trainings told what it was trained on",
    SPENT: "the epsilon that the accountant of private training says was spent",
    BOUND: "how epsilon is bounded: by bets on a ranking of canaries, guesses about one run, or calls in many runs",
}


@dataclass(frozen=True)
class Bound:
    """Epsilon from below by `n` of a unit, at CONFIDENCE; `most` is what the bound is where all of them tell."""

    name: str
    epsilon: float
    n: int
    unit: str
    p_value: float | None = None  # that epsilon is 0
    most: float | None = None


@dataclass(frozen=True)
class Spent:
    """Epsilon by the accountant, the largest of so many trainings."""

    epsilon: float
    trainings: int
    p_value: float | None = None  # that epsilon is no more than that


def epsilon_rows(bounds: Iterable[Bound], spent: Spent | None, delta: float) -> Iterator[Row]:
    """Each bound, and what was spent; None where training was not private."""
    for bound in bounds:
        setting = {BOUND: bound.name, "confidence": CONFIDENCE, "delta": delta}
        yield row(AT_LEAST, setting, alone(bound.epsilon, bound.n), bound.unit, 0.0, bound.p_value)
        if bound.most is not None:
            yield row(SHOWN_AT_MOST, setting, alone(bound.most, bound.n), bound.unit)
    if spent is not None:
        yield row(SPENT, {"delta": delta}, alone(spent.epsilon, spent.trainings), "training", None, spent.p_value)
