"""The configuration of the audit, and the settings of its summary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, TypeVar

import numpy as np

from tasks.audits.text.question import (
    AskedModel,
    Documents,
    Identifiers,
    Insertions,
    OtherTexts,
    OwnerQuestion,
    Planted,
    Question,
    RankedQuestion,
    RankingModel,
    ReturnedTable,
    Secrets,
    TextReading,
    TextTuning,
)
from tasks.audits.text.secrets.space import find_identifiers
from tasks.contract.copy_counts import TRAINING_TEXTS
from tasks.contract.job import ANSWER_ONLY
from tasks.contract.power import Resolution
from tasks.contract.ranges import AtLeast, Ranged, Share
from tasks.datasets.catalog import load_texts
from tasks.datasets.copies import CopyCount, count_groups
from tasks.datasets.dataset import Dataset
from tasks.external.bound_draw import Draw, describe_draw
from tasks.language_models.language_model import LanguageModel
from tasks.language_models.tuning_config import Full, Reading
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
            yield from rank_conflicts(self.question, self.level)

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


def rank_conflicts(question: RankedQuestion, level: float) -> Iterator[str]:
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
    return About(config.level, things, count_text_copies(config.question))


def count_text_copies(question: Question) -> CopyCount:
    """Count the exact copies among the documents, texts or identifiers of the question.

    Secrets have none, as their numbers differ, and insertions are refused with a text that stands twice.
    """
    match question:
        case Planted() | Insertions():
            return CopyCount()
        case Identifiers():
            identifiers = find_identifiers(load_texts(question.data, question.examples), question.identifiers)
            occurrences = [identifier.occurrences for identifier in identifiers]
            return count_groups(np.repeat(np.arange(len(identifiers)), occurrences), "places")
        case OtherTexts():
            texts: Sequence[str] = load_texts(question.data, question.examples)
            return count_groups([*texts, *load_texts(question.others)], "texts")
        case Documents():
            return count_groups(load_texts(question.data, question.examples), "texts")
        case Secrets():
            return count_groups(load_texts(question.data, question.examples), TRAINING_TEXTS)


TINY_FORMATS = ("uuid4",)  # formats in the embedded tickets
TINY_MODEL, TINY_BASE = LanguageModel("tiny-gpt#16x1"), LanguageModel("tiny-gpt#32x1")
TINY_LENGTH = 128
AnyReading = TypeVar("AnyReading", bound=Reading)


def tiny(config: Text) -> Text:
    """The config's shape on embedded data, in seconds."""
    return replace(config, question=tiny_question(config.question))


def tiny_question(question: Question) -> Question:
    facts = Dataset("facts")
    match question:
        case Secrets():
            return replace(
                question,
                data=facts,
                examples=20,
                pattern=Secrets.pattern,
                secrets=min(question.secrets, 6),
                references=199,
                pairs=1,
                reading=tiny_reading(question.reading),
                tuning=tiny_tuning(question.tuning),
            )
        case Planted():
            return replace(
                question,
                pattern=Planted.pattern,
                secrets=min(question.secrets, 6),
                references=199,
                source=tiny_source(question.source),
            )
        case Identifiers():
            return replace(
                question,
                data=Dataset("tickets"),
                examples=20,
                identifiers=TINY_FORMATS,
                secrets=min(question.secrets, 6),
                references=199,
                context=40,
                source=tiny_source(question.source),
            )
        case Documents():
            return replace(
                question,
                data=facts,
                examples=20,
                documents=min(question.documents, 8),
                models=4,
                prefix=min(question.prefix, 20),
                suffix=min(question.suffix, 20),
                reading=tiny_reading(question.reading),
                tuning=tiny_tuning(question.tuning),
            )
        case Insertions():
            return replace(
                question,
                data=facts,
                examples=40,
                base=TINY_BASE,
                prefix=min(question.prefix, 20),
                suffix=min(question.suffix, 20),
                reading=tiny_reading(question.reading),
            )
        case OtherTexts(source=AskedModel() as source):
            return replace(question, data=facts, examples=20, source=tiny_reading(source))
        case OtherTexts():
            return replace(question, data=facts, examples=20)


def tiny_reading(reading: AnyReading) -> AnyReading:
    tiny = replace(reading, model=TINY_MODEL, length=TINY_LENGTH)
    return replace(tiny, precision="float32") if isinstance(tiny, TextReading) else tiny


def tiny_source(source: RankingModel | ReturnedTable) -> RankingModel | ReturnedTable:
    if isinstance(source, ReturnedTable):
        return source
    return replace(tiny_reading(source), base=None if source.base is None else TINY_BASE)


def tiny_tuning(tuning: TextTuning) -> TextTuning:
    return replace(tuning, adaptation=Full(), epochs=2, batch=16, accumulate=1)
