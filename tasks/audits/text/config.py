"""Configuration of the audit, and the settings of its summary."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from tasks.audits.text.question import (
    Identifiers,
    OwnerQuestion,
    Question,
    RankedQuestion,
    Secrets,
    TextComparison,
)
from tasks.contract.job import ANSWER_ONLY
from tasks.contract.power import Resolution
from tasks.contract.ranges import AtLeast, Ranged, Share
from tasks.datasets.copies import CopyCount
from tasks.external.bound_draw import Draw, describe_draw
from tasks.worker.files import File

GUESSED = (
    "No secret was set. The owner could have identified the tested texts by trying seeds, so this table is no evidence "
    "in the owner's favour."
)


@dataclass(frozen=True)
class Text(Ranged):
    """Configuration: the question, and the thresholds of its verdict."""

    question: Question = Secrets()
    """What is tested, and on which models: secrets, identifiers or documents, with models trained by the audit or a
    given model.
    """
    level: Annotated[float, Share(zero=False, one=False)] = 0.05
    """Ours: false discovery rate of the secrets that are found."""
    negligible: Annotated[float, Share(zero=False)] = field(default=0.1, metadata={ANSWER_ONLY: True})
    """Ours: largest excess over 0.5 that is considered negligible for the mean share of references that a secret
    outranks.
    """
    seed: Annotated[int, AtLeast(0)] = 0
    """Ours: the only source of randomness."""

    def conflicts(self) -> Iterator[str]:
        if isinstance(self.question, RankedQuestion):
            yield from _rank_conflicts(self.question, self.level)

    @property
    def outputs(self) -> File | None:
        """The table returned by the model's owner, or None if the audit evaluates the model."""
        if isinstance(self.question, OwnerQuestion):
            return self.question.outputs
        return None

    @property
    def is_guessable(self) -> bool:
        """Whether the owner who returned a table could have identified the tested texts by trying seeds."""
        return isinstance(self.question, OwnerQuestion) and self.outputs is not None and not self.question.secret

    @property
    def is_null(self) -> bool:
        return not isinstance(self.question, TextComparison) and self.question.is_null

    @property
    def draw(self) -> Draw | None:
        """The draw of the tested items and of the text order, or None if no texts are exported."""
        question = self.question
        if not isinstance(question, OwnerQuestion):
            return None
        return Draw(None, self, self.seed, question.secret, question.nonce, question.commitment)

    def describe_draw(self) -> str:
        """State who chose the texts of a returned table, and whether they could be guessed.

        Returns an empty string if no table was returned.
        """
        question = self.question
        if not isinstance(question, OwnerQuestion) or question.outputs is None:
            return ""
        if self.is_guessable:
            return GUESSED
        subject = "The draw of the tested items"
        if isinstance(question, TextComparison):
            subject = "The order of the texts"
        return describe_draw(subject, question.commitment, question.nonce, question.nonce_by)


def _rank_conflicts(question: RankedQuestion, level: float) -> Iterator[str]:
    tests = question.ranked
    candidates = question.candidates
    if not Resolution(1 / candidates, tests, level, "secrets", "").finds_one:
        yield (
            f"secrets: no single one of {tests} could be found at level={level:g}, as each is ranked among "
            f"{candidates}. Rank each among {round(tests / level)} or more (references, pattern)."
        )


@dataclass(frozen=True)
class About:
    """Settings of the summary."""

    level: float
    things: Literal["secrets", "identifiers"] = "secrets"
    copies: CopyCount = CopyCount()
    """Exact copies among the documents, texts or identifiers of the question."""


def about(config: Text) -> About:
    things: Literal["secrets", "identifiers"] = "secrets"
    if isinstance(config.question, Identifiers):
        things = "identifiers"
    return About(config.level, things, config.question.count_copies())


def tiny(config: Text) -> Text:
    """Return the same kind of run on embedded data, which takes seconds."""
    return replace(config, question=config.question.tiny())
