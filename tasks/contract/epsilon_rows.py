"""Lower bounds on epsilon and the accountant's epsilon: summary rows, and the answer if they contradict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tasks.contract.summaries import Row, alone, row
from tasks.contract.verdict import Answer, Meaning

CONFIDENCE = 0.95
LEVEL = 1 - CONFIDENCE
BROKEN: Answer = "promise broken"
BROKEN_MEANING = Meaning("the training is less private than its accountant states", "accused")
AT_LEAST = "epsilon, at least"
SPENT = "epsilon by the accountant"
BOUND = "bound"  # key in the setting of a row
SHOWN_AT_MOST = "epsilon that so many could show"
SYMBOLS: Mapping[str, str] = {
    AT_LEAST: "a lower bound on epsilon: the training was at most this private",
    SHOWN_AT_MOST: "the largest lower bound that this number of trainings can show",
    SPENT: "epsilon as reported by the accountant of private training",
    BOUND: "method of the bound: bets on a ranking of canaries, guesses about one run, or decisions in many runs",
}


@dataclass(frozen=True)
class Bound:
    """A lower bound on epsilon from `n` units, at confidence CONFIDENCE.

    `most` is the bound that would result if every unit revealed its data.
    """

    name: str
    epsilon: float
    n: int
    unit: str
    p_value: float | None = None  # of the hypothesis that epsilon is 0
    most: float | None = None


@dataclass(frozen=True)
class Spent:
    """The epsilon reported by the accountant: the maximum over the training runs."""

    epsilon: float
    trainings: int
    p_value: float | None = None  # of the hypothesis that the true epsilon is at most `epsilon`


def list_bounds(table_rows: Iterable[Row], units: str, unit: str) -> list[Bound]:
    """Return the bounds in the rows of an epsilon table. `units` is the column that counts the units.

    Only the first, decisive bound keeps its p-value.
    """
    bounds: list[Bound] = []
    for table_row in table_rows:
        p_value = None if bounds else table_row["p_value"]
        bounds.append(Bound(table_row["bound"], table_row["epsilon"], table_row[units], unit, p_value))
    return bounds


def epsilon_rows(bounds: Iterable[Bound], spent: Spent | None, delta: float) -> Iterator[Row]:
    """Yield one row per bound, and one for the epsilon spent. `spent` is None if the training was not private."""
    for bound in bounds:
        setting = {BOUND: bound.name, "confidence": CONFIDENCE, "delta": delta}
        yield row(AT_LEAST, setting, alone(bound.epsilon, bound.n), bound.unit, 0.0, bound.p_value)
        if bound.most is not None:
            yield row(SHOWN_AT_MOST, setting, alone(bound.most, bound.n), bound.unit)
    if spent is not None:
        yield row(SPENT, {"delta": delta}, alone(spent.epsilon, spent.trainings), "training", None, spent.p_value)
