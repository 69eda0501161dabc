"""The questions that were handed out twice: whether one system answered them, and the key of what was handed out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tasks.audits.relational.config import Relational, given_system
from tasks.audits.relational.measures.repeats import TWICE
from tasks.contract.summaries import Rows, numerator, read_setting, select_rows
from tasks.external.causes import ALTERED, list_causes

MOST_TWO_ANSWERS = 0.05  # of the questions that were asked twice
GUESSED = (
    "The order of the questions follows from the run's seed (secret is empty), so an owner who tries seeds could have "
    "told which ones matter."
)
QUESTION_CAUSES = list_causes(
    "the system samples its answers (its temperature is above 0)", "it remembers earlier questions", ALTERED
)


@dataclass(frozen=True)
class Repeats:
    """Of `n` questions that were handed out twice, how many got two answers; `key` begins the SHA-256 of their key."""

    differing: int
    n: int
    key: str

    @property
    def are_consistent(self) -> bool:
        return self.differing <= MOST_TWO_ANSWERS * self.n


def read_repeats(rows: Rows) -> Repeats | None:
    for row in select_rows(rows, TWICE):
        if row["estimate"] is not None:
            return Repeats(numerator(row), row["n"], read_setting(row)["key"])
    return None


def describe_repeats(repeats: Repeats | None) -> str:
    """Why the file is not what one system says."""
    if repeats is None:
        return "the questions that were handed out twice could not be checked"
    return (
        f"{repeats.differing} of {repeats.n} questions that were handed out twice got two answers ({QUESTION_CAUSES})"
    )


def describe_key(config: Relational, repeats: Repeats | None) -> Iterator[str]:
    """The key of the questions that were handed out, as the README.txt that the owner got states it."""
    system = given_system(config)
    if system is None:
        return
    if system.is_guessable:
        yield GUESSED
    elif repeats is not None:
        yield f"The key of the questions that were handed out has a SHA-256 that begins with {repeats.key}."
        yield system.describe_draw()
