"""The power of an audit: the rules that limit when an audit may clear or accuse, and power statements for a plan.

*Clear only with power.* An average does not clear single items: the mean hardly changes if every model reveals three of
20,000 records. *Not detected* therefore also requires that a single memorised item could have been detected. If `tests`
items are tested at a level that is adjusted for their number, the smallest possible p-value of an item must be at most
level / tests. If it is larger, the answer is *undecided*, and `engram run --dry-run` reports this before training.

*Accuse only with size.* Two training runs that differ in one record always differ slightly, and ranks have no scale: an
exact test can detect an effect of 0.00002 nats. *Memorised* therefore also requires that effects of up to SMALLEST nats
can be rejected: the same test is repeated with the effect reduced by SMALLEST. If the test rejects only an effect of 0,
the answer is *below the relevant size*.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

from tasks.numerics.exact_test import smallest_p_value_among

ROUNDING = 1 + 1e-9  # tolerance when comparing with level / tests, a quotient of two floats
MOST_STEPS = 400  # number of sizes tried for advice, each a few percent larger than the previous one
SMALLEST = 0.1  # nats: the smallest effect that matters, which changes a probability by about a tenth


@dataclass(frozen=True)
class Resolution:
    """Whether one memorised item among `tests` items can be detected.

    `smallest` is the smallest possible p-value of an item, and `tests` is the number of items by which the level is
    divided. `item` names the items in the plural ("records"). `advice` is the change that makes clearing possible
    ("train 24 models").
    """

    smallest: float
    tests: int
    level: float
    item: str
    advice: str

    @property
    def finds_one(self) -> bool:
        return self.smallest * self.tests <= self.level * ROUNDING

    def explain(self) -> str:
        """Return a sentence on why the audit cannot clear, or an empty string if it can."""
        if self.finds_one:
            return ""
        return (
            f"A single memorised item among {self.tests:,} {self.item} could not be detected: its p-value is at least "
            f"{self.smallest:.2g}, but must be at most {self.level / self.tests:.2g}. To clear, {self.advice}."
        )

    def warn(self) -> Iterator[str]:
        """Yield the line that a plan prints before training. Yields nothing if an audit of this size can clear."""
        if not self.finds_one:
            yield f"this audit cannot answer “not detected”. {self.explain()}"


@dataclass(frozen=True)
class Power:
    """The detection rate of an audit for an effect of a stated size.

    `size` describes the effect ("one record remembered by 2 nats"), and `share` is the share of audits that detect it.
    `advice` states what would be required for detection in 95 % of audits. It is empty if the rate is already reached
    or no way to reach it is known.
    """

    size: str
    share: float
    advice: str = ""

    @property
    def line(self) -> str:
        more = ""
        if self.advice and self.share < GOAL:
            more = f"; for 95 % {self.advice}"
        return f"power: detects {self.size} in {100 * self.share:.0f} % of audits{more}"


ONE_SIDE = 0.025  # error on one side of a 95 % interval


def mean_rate(effect: float, error: float) -> float:
    """Return the share of audits whose 95 % interval is above 0, for a mean `effect` with this standard error."""
    return 0.5 * math.erfc((NormalDist().inv_cdf(1 - ONE_SIDE) - effect / error) / math.sqrt(2))


GOAL = 0.95  # share of audits that advice aims for


def smallest_size(first: int, step: int, enough: Callable[[int], bool], factor: float = 1.0) -> int | None:
    """Return the first of the sizes first, first + step, ... that is enough, or None if MOST_STEPS sizes are too small.

    If `factor` is above 1, sizes grow by this factor, rounded to a multiple of the step.
    """
    size = first
    for _ in range(MOST_STEPS):
        if enough(size):
            return size
        size += step * max(1, round(size * (factor - 1) / step))
    return None


def fewest_others(tests: int, level: float) -> int:
    """Return how many other items each item must be ranked among so that one memorised item can be detected."""
    return math.ceil(tests / level - 1e-9) - 1


def exact_test_resolution(models: int, draws: int, level: float, tests: int, item: str) -> Resolution:
    """Return whether the exact test over models could detect one of these items."""
    fewest = fewest_models(draws, level, tests)
    if fewest is None:
        advice = ""
    else:
        advice = f"train at least {fewest} models for {tests:,} {item}"
    return Resolution(smallest_p_value_among(models, draws, level, tests), tests, level, item, advice)


@lru_cache(maxsize=256)
def fewest_models(draws: int, level: float, tests: int) -> int | None:
    """Return the smallest even number of models with which the exact test can detect one of these items."""

    def enough(models: int) -> bool:
        return Resolution(smallest_p_value_among(models, draws, level, tests), tests, level, "", "").finds_one

    return smallest_size(4, 2, enough)


def single_item(item: str) -> str:
    """Return the condition for clearing as a clause of a rule."""
    return (
        f"a single memorised {item} could have been detected: its smallest possible p-value is at most the level "
        "divided by their number"
    )
