"""The power of an audit: the rule by which every audit clears and accuses, and statements of power for a plan.

*Clear only with power.* An average clears no single item: three records of 20,000 that every model reveals leave a mean
unchanged. So *not detected* also requires that a single remembered item could have been found. With `tests`
items that are tested at a level, adjusted for their number, the smallest p-value that an item can have must be at most
level / tests. If it is larger, the answer is *undecided*, and `engram plan` reports it before anything is trained.

*Accuse only with size.* Two trainings that differ in one record differ by something, however little, and ranks have no
scale: an exact test finds an effect of 0.00002 nats. So *memorised* requires that an effect of at most SMALLEST nats is
rejected: the same test is repeated with the effect reduced by that much. If only the effect of 0 is rejected, the
answer is *below the relevant size*.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

from tasks.numerics.exact_test import smallest_p_value_among

ROUNDING = 1 + 1e-9  # of level / tests, a quotient of two floats
MOST_STEPS = 400  # sizes that are tried for advice, each a few percent larger than the one before
SMALLEST = 0.1  # nats: the smallest effect that matters, a change of a probability by about a tenth


@dataclass(frozen=True)
class Resolution:
    """Whether one remembered item among `tests` items can be found.

    `smallest` is the smallest p-value that an item can have, `tests` the number of items that the level is divided by,
    `item` their name in the plural ("records"), and `advice` what makes the answer possible ("train 24 models").
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
        """Why nothing can be cleared, in a sentence; empty if it can."""
        if self.finds_one:
            return ""
        return (
            f"A single remembered one of {self.tests:,} {self.item} could not be found: its p-value is at least "
            f"{self.smallest:.2g}, and would have to be {self.level / self.tests:.2g}. To clear, {self.advice}."
        )

    def warn(self) -> Iterator[str]:
        """The line that a plan prints before anything is trained; none if an audit of this size can clear."""
        if not self.finds_one:
            yield f"not detected cannot be the answer. {self.explain()}"


@dataclass(frozen=True)
class Power:
    """How often an audit finds something of a stated size.

    `size` is what is to be found ("one record remembered by 2 nats"), `share` how many of audits find it, and
    `advice` what is needed to find it in 95 % of audits, empty if this is reached or nothing is known to reach it.
    """

    size: str
    share: float
    advice: str = ""

    @property
    def line(self) -> str:
        more = f"; for 95 % {self.advice}" if self.advice and self.share < GOAL else ""
        return f"power: detects {self.size} in {100 * self.share:.0f} % of audits{more}"


ONE_SIDE = 0.025  # of a 95 % interval


def mean_rate(effect: float, error: float) -> float:
    """The share of audits whose 95 % interval of a mean lies above 0, if it is `effect` with this standard error."""
    return 0.5 * math.erfc((NormalDist().inv_cdf(1 - ONE_SIDE) - effect / error) / math.sqrt(2))


GOAL = 0.95  # the share of audits that advice aims at


def smallest_size(first: int, step: int, enough: Callable[[int], bool], factor: float = 1.0) -> int | None:
    """The first of first, first + step, ... that is enough; None if none of MOST_STEPS is.

    With a `factor` above 1 sizes grow by it, rounded up to the next multiple of the step.
    """
    size = first
    for _ in range(MOST_STEPS):
        if enough(size):
            return size
        size += step * max(1, round(size * (factor - 1) / step))
    return None


def fewest_others(tests: int, level: float) -> int:
    """The others among which each of so many items must be ranked, for one remembered item to be found."""
    return math.ceil(tests / level - 1e-9) - 1


def exact_test_resolution(models: int, draws: int, level: float, tests: int, item: str) -> Resolution:
    """Whether one of these items could be found by the exact test over models."""
    fewest = fewest_models(draws, level, tests)
    advice = "" if fewest is None else f"with {tests:,} {item} train {fewest} models"
    return Resolution(smallest_p_value_among(models, draws, level, tests), tests, level, item, advice)


@lru_cache(maxsize=256)
def fewest_models(draws: int, level: float, tests: int) -> int | None:
    """The smallest even number of models with which the exact test can find one of so many items."""

    def enough(models: int) -> bool:
        return Resolution(smallest_p_value_among(models, draws, level, tests), tests, level, "", "").finds_one

    return smallest_size(4, 2, enough)


def single_item(item: str) -> str:
    """The condition of clearing as a clause of a rule."""
    return (
        f"a single remembered {item} could have been found: the smallest p-value that it can have is at most the level "
        "divided by their number"
    )
