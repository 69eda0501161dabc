"""The configuration of the audit, and the settings of its summary."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from tasks.audits.text.question import (
    Identifiers,
    OtherTexts,
    OwnerQuestion,
    Question,
    RankedQuestion,
    Secrets,
)
from tasks.contract.job import ANSWER_ONLY
from tasks.contract.power import Resolution
from tasks.contract.ranges import AtLeast, Ranged, Share
from tasks.datasets.copies import CopyCount
from tasks.external.bound_draw import Draw, describe_draw
from tasks.worker.files import File

GUESSED = (
    "No secret was set, so an owner who tried seeds could have found out which of the texts are which: such a table "
    "proves nothing in the owner's favour."
)


@dataclass(frozen=True)
class Text(Ranged):
    """The question of a run, and the numbers by which its answer is decided."""

    question: Question = Secrets()
    """What the run tests: secrets, identifiers or texts, and of which models."""
    level: Annotated[float, Share(zero=False, one=False)] = 0.05
    """Ours: at most this share of the secrets that are found may be false."""
    negligible: Annotated[float, Share(zero=False)] = field(default=0.1, metadata={ANSWER_ONLY: True})
    """Ours: a secret that stands before half of all others and this share more is hardly known."""
    seed: Annotated[int, AtLeast(0)] = 0
    """Ours: the only source of chance."""

    def conflicts(self) -> Iterator[str]:
        if isinstance(self.question, RankedQuestion):
            yield from _rank_conflicts(self.question, self.level)

    @property
    def outputs(self) -> File | None:
        """The table that a model's owner returned; None if a model is evaluated here."""
        return self.question.outputs if isinstance(self.question, OwnerQuestion) else None

    @property
    def is_guessable(self) -> bool:
        """Whether an owner who tries seeds could have found out what each text of the returned table is."""
        return isinstance(self.question, OwnerQuestion) and self.outputs is not None and not self.question.secret

    @property
    def is_null(self) -> bool:
        return not isinstance(self.question, OtherTexts) and self.question.is_null

    @property
    def draw(self) -> Draw | None:
        """The draw of identifiers or secrets and of the order of the texts; None if no texts are handed out."""
        question = self.question
        if not isinstance(question, OwnerQuestion):
            return None
        return Draw(None, self, self.seed, question.secret, question.nonce, question.commitment)

    def describe_draw(self) -> str:
        """Who chose what a returned table was asked, and whether its owner could guess it; empty without a table."""
        question = self.question
        if not isinstance(question, OwnerQuestion) or question.outputs is None:
            return ""
        if self.is_guessable:
            return GUESSED
        what = "The order of the texts" if isinstance(question, OtherTexts) else "The draw of what was asked"
        return describe_draw(what, question.commitment, question.nonce, question.nonce_by)


def _rank_conflicts(question: RankedQuestion, level: float) -> Iterator[str]:
    tests, candidates = question.ranked, question.candidates
    if not Resolution(1 / candidates, tests, level, "secrets", "").finds_one:
        yield (
            f"{tests} secrets are ranked among {candidates}, and no single one of them could be found at level "
            f"{level:g}; they must be ranked among {round(tests / level)} or more (references, pattern)"
        )


@dataclass(frozen=True)
class About:
    """The settings of the summary."""

    level: float
    things: Literal["secrets", "identifiers"] = "secrets"
    copies: CopyCount = CopyCount()
    """The exact copies among the documents, texts or identifiers of the question."""


def about(config: Text) -> About:
    things: Literal["secrets", "identifiers"] = "secrets"
    if isinstance(config.question, Identifiers):
        things = "identifiers"
    return About(config.level, things, config.question.count_copies())


def tiny(config: Text) -> Text:
    """The config's shape on embedded data, in seconds."""
    return replace(config, question=config.question.tiny())
