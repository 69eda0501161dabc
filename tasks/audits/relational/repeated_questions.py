"""Questions that were handed out twice: whether their answers agree, and the key of the handed-out set."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tasks.audits.relational.config import Relational, given_system
from tasks.audits.relational.measures.repeats import TWICE
from tasks.contract.summaries import Rows, numerator, read_setting, select_rows
from tasks.external.causes import ALTERED, list_causes

MOST_TWO_ANSWERS = 0.05  # tolerated share of the repeated questions
GUESSED = (
    "The order of the questions follows from the seed of the run (secret is empty), so an owner who tries seeds could "
    "have recognised the training questions."
)
QUESTION_CAUSES = list_causes(
    "the system samples its answers (temperature above 0)", "it remembers earlier questions", ALTERED
)


@dataclass(frozen=True)
class Repeats:
    """Number `n` of repeated questions, and how many of them received two different answers.

    `key` is the beginning of the SHA-256 of the key.
    """

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
    """Explain why the file may not hold the answers of one system."""
    if repeats is None:
        return "repeated questions could not be checked"
    return f"{repeats.differing} of {repeats.n} repeated questions received two different answers ({QUESTION_CAUSES})"


def describe_key(config: Relational, repeats: Repeats | None) -> Iterator[str]:
    """Yield sentences about the key of the handed-out questions, as stated in the owner's README.txt."""
    system = given_system(config)
    if system is None:
        return
    if system.is_guessable:
        yield GUESSED
    elif repeats is not None:
        yield f"The SHA-256 of the key of the handed-out questions begins with {repeats.key}."
        yield system.describe_draw()
