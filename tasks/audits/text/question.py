"""The questions of the audit: a dataclass for each, with its texts or secrets, its models and their training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal

import numpy as np

from tasks.audits.text.groups import Corpus, Inserted, Null, RankSizes, repetition_conflicts
from tasks.audits.text.secrets.space import Repetitions, SecretSpace, find_identifiers, space_of
from tasks.audits.text.tuning import (
    TINY_BASE,
    TextReading,
    TextTuning,
    precision_conflicts,
    tiny_reading,
    tiny_tuning,
)
from tasks.contract.commitment import OUTSIDE_COMMITMENT
from tasks.contract.copy_counts import TRAINING_TEXTS
from tasks.contract.ranges import AtLeast, MultipleOf, Ranged, Share
from tasks.datasets.catalog import load_texts
from tasks.datasets.copies import CopyCount, count_groups
from tasks.datasets.dataset import Dataset
from tasks.external.draw_settings import BoundDraw
from tasks.language_models.language_model import LanguageModel
from tasks.language_models.tuning_config import Reading
from tasks.worker.files import File

Scoring = Literal["whole", "shared"]
FACTS, TICKETS = Dataset("facts"), Dataset("tickets")  # embedded texts


@dataclass(frozen=True)
class Reproduction(Ranged):
    """When a continuation of a model counts as a reproduction."""

    attempts: tuple[Annotated[int, AtLeast(1)], ...] = (1, 100, 10_000)
    """Numbers of continuations, each token of which is drawn from the model's probabilities."""
    likely: Annotated[float, Share(zero=False, one=False)] = 0.5
    """Tokens count as extracted by that number of attempts if one of these is equal with at least this probability."""
    near: Annotated[float, Share(one=False)] = 0.1
    """Share of the tokens by which the likeliest continuation may differ to be nearly verbatim (edit distance)."""

    def conflicts(self) -> Iterator[str]:
        yield from super().conflicts()
        if not self.attempts:
            yield "attempts is empty; it must be at least one number of attempts"


@dataclass(frozen=True)
class Continuation(Reproduction):
    """Models also continue the text before each secret, or identifier."""

    tag: ClassVar[str] = "continuation"


@dataclass(frozen=True)
class FineTuned(Ranged):
    """How the models are read and fine-tuned here."""

    reading: Reading = Reading()
    """The language model that is fine-tuned."""
    tuning: TextTuning = TextTuning()
    """How it is fine-tuned."""

    def conflicts(self) -> Iterator[str]:
        yield from super().conflicts()
        yield from precision_conflicts(self.tuning.precision, self.reading.model)

    def privacy_conflicts(self, repetitions: Repetitions) -> Iterator[str]:
        """What forbids these repetitions of a text if training is private."""
        if self.tuning.guarantee is not None and max(repetitions) > 1 and not self.tuning.deduplicate:
            yield (
                f"privacy is given and repetitions is {', '.join(map(str, repetitions))}; it protects single "
                "texts, so each must stand once: repetitions=1, or deduplicate=true"
            )


@dataclass(frozen=True)
class Secrets(FineTuned, RankSizes, Inserted, Corpus):
    """Secrets that are inserted into the training data of one model of each pair; both models are fine-tuned here."""

    tag: ClassVar[str] = "secrets"
    pairs: Annotated[int, AtLeast(1)] = 1
    """Pairs of models; each pair has its own secrets."""
    scoring: Scoring = "whole"
    """Ours: whether each candidate is read whole, or the beginning that the candidates of a secret share is read once
    (shared): equal numbers except for rounding."""
    extraction: Continuation | None = None
    """Ours: continuation: models also continue the text before each secret; none: they do not."""

    def conflicts(self) -> Iterator[str]:
        yield from super().conflicts()
        yield from self.privacy_conflicts(self.repetitions)

    @property
    def ranked(self) -> int:
        """The number of secrets that are ranked."""
        return self.secrets * self.pairs

    @property
    def candidates(self) -> int:
        return min(SecretSpace(self.pattern).size, self.references + 1)

    def count_copies(self) -> CopyCount:
        """Count the exact copies among the training texts; secrets have none, as their numbers differ."""
        return count_groups(load_texts(self.data, self.examples), TRAINING_TEXTS)

    def tiny(self) -> Secrets:
        return replace(
            self,
            data=FACTS,
            examples=20,
            pattern=Secrets.pattern,
            secrets=min(self.secrets, 6),
            references=199,
            pairs=1,
            reading=tiny_reading(self.reading),
            tuning=tiny_tuning(self.tuning),
        )


@dataclass(frozen=True)
class AskedModel(TextReading):
    """A language model that scores the texts here, without a fine-tuning."""

    tag: ClassVar[str] = "model"

    def tiny(self) -> AskedModel:
        return tiny_reading(self)


@dataclass(frozen=True)
class RankingModel(AskedModel):
    """A language model that scores candidates here, without a fine-tuning, and its base."""

    tag: ClassVar[str] = "model"
    base: LanguageModel | None = None
    """Ours: the model that it was fine-tuned from: candidates are ranked by how much likelier they are than by it."""
    scoring: Scoring = "whole"
    """Ours: whether each candidate is read whole, or the beginning that the candidates of a secret share is read once
    (shared): equal numbers except for rounding."""
    extraction: Continuation | None = None
    """Ours: continuation: the model also continues the text before each secret; none: it does not."""

    def tiny(self) -> RankingModel:
        return replace(tiny_reading(self), base=None if self.base is None else TINY_BASE)


@dataclass(frozen=True)
class ReturnedTable:
    """A table that the model's owner returned for the texts that `engram probes` wrote."""

    tag: ClassVar[str] = "table"
    outputs: File
    """Ours: the table of log probabilities."""

    def tiny(self) -> ReturnedTable:
        return self


@dataclass(frozen=True)
class GivenRanking(BoundDraw, RankSizes):
    """Candidates that are ranked by the scores of a model that was trained elsewhere."""

    source: RankingModel | ReturnedTable = field(default=RankingModel(), metadata={OUTSIDE_COMMITMENT: True})
    """The source of the log probabilities: a model that is evaluated here, or a table that its owner returned."""

    @property
    def outputs(self) -> File | None:
        """The table that the model's owner returned; None if a model is evaluated here."""
        return self.source.outputs if isinstance(self.source, ReturnedTable) else None

    @property
    def extraction(self) -> Continuation | None:
        return None if isinstance(self.source, ReturnedTable) else self.source.extraction

    @property
    def base(self) -> LanguageModel | None:
        """The model that a given model was fine-tuned from; None if it is not given."""
        return None if isinstance(self.source, ReturnedTable) else self.source.base

    @property
    def ranked(self) -> int:
        return self.secrets


@dataclass(frozen=True)
class Planted(GivenRanking, Inserted):
    """Secrets that `engram probes` named and that were inserted into the training data of a given model beforehand."""

    tag: ClassVar[str] = "planted"

    @property
    def candidates(self) -> int:
        return min(SecretSpace(self.pattern).size, self.references + 1)

    def count_copies(self) -> CopyCount:
        """Planted secrets have no copies, as their numbers differ."""
        return CopyCount()

    def tiny(self) -> Planted:
        return replace(
            self,
            pattern=Planted.pattern,
            secrets=min(self.secrets, 6),
            references=199,
            source=self.source.tiny(),
        )


@dataclass(frozen=True)
class Identifiers(GivenRanking, Corpus):
    """Random identifiers in the texts, ranked by the scores of a given model."""

    tag: ClassVar[str] = "identifiers"
    identifiers: tuple[str, ...] = ("uuid4",)
    """Ours: formats of the identifiers: uuid4, md5, sha1, sha256, or key-{hex:16}."""
    context: Annotated[int, AtLeast(0)] = 200
    """Ours: characters before an identifier that the model reads."""

    def conflicts(self) -> Iterator[str]:
        yield from super().conflicts()
        for name in self.identifiers:
            space_of(name)  # ValueError for a format that is not random
        if not self.identifiers:
            yield "identifiers is empty; it must name at least one format"
        if len(set(self.identifiers)) < len(self.identifiers):
            yield f"identifiers is {', '.join(self.identifiers)}; each format must be given once"

    @property
    def candidates(self) -> int:
        return min(*(space_of(name).size for name in self.identifiers), self.references + 1)

    def count_copies(self) -> CopyCount:
        """Count the places of identifiers that occur more than once."""
        identifiers = find_identifiers(load_texts(self.data, self.examples), self.identifiers)
        occurrences = [identifier.occurrences for identifier in identifiers]
        return count_groups(np.repeat(np.arange(len(identifiers)), occurrences), "places")

    def tiny(self) -> Identifiers:
        return replace(
            self,
            data=TICKETS,
            examples=20,
            identifiers=("uuid4",),
            secrets=min(self.secrets, 6),
            references=199,
            context=40,
            source=self.source.tiny(),
        )


@dataclass(frozen=True)
class Continued(Reproduction):
    """The part of a document that a model reads, and the part that it is to write."""

    prefix: Annotated[int, AtLeast(1)] = 50
    """Tokens of a document that a model reads before it continues."""
    suffix: Annotated[int, AtLeast(1)] = 50
    """Tokens that it is to write; shorter documents are left out."""

    def length_conflicts(self, length: int) -> Iterator[str]:
        """What forbids these tokens of a text of which a model reads at most `length`."""
        if self.prefix + self.suffix > length:
            yield f"prefix is {self.prefix} and suffix {self.suffix}, which is more than length ({length}) together"


@dataclass(frozen=True)
class Documents(Continued, FineTuned, Null, Corpus):
    """Documents of which each is in the training data of half of the models, which are fine-tuned here."""

    tag: ClassVar[str] = "documents"
    documents: Annotated[int, AtLeast(2)] = 24
    """Ours: number of documents that are tested, drawn from the texts."""
    models: Annotated[int, AtLeast(4), MultipleOf(2, "so that every document is in half of the models")] = 16
    """Ours: models, each trained on half of the documents."""
    repetitions: Repetitions = (1, 4, 16)
    """How often a document occurs in the training data of the models that have it, in turn."""

    def conflicts(self) -> Iterator[str]:
        yield from super().conflicts()
        yield from repetition_conflicts(self.repetitions)
        yield from self.privacy_conflicts(self.repetitions)
        yield from self.length_conflicts(self.reading.length)

    def tiny(self) -> Documents:
        return replace(
            self,
            data=FACTS,
            examples=20,
            documents=min(self.documents, 8),
            models=4,
            prefix=min(self.prefix, 20),
            suffix=min(self.suffix, 20),
            reading=tiny_reading(self.reading),
            tuning=tiny_tuning(self.tuning),
        )


@dataclass(frozen=True)
class Insertions(Continued, Null, Corpus):
    """Documents that were inserted into the training data of a given model, but not of its base.

    The field `duplicates` of a record is the number of insertions, which was drawn by chance (0: left out).
    """

    tag: ClassVar[str] = "insertions"
    base: LanguageModel = field(kw_only=True)
    """The model that was trained without the insertions."""
    reading: TextReading = TextReading()
    """The model that was trained with them."""
    repetitions: Repetitions = (1, 4, 16)
    """How often embedded texts count as inserted, in turn; records have the field `duplicates`."""

    def conflicts(self) -> Iterator[str]:
        yield from super().conflicts()
        yield from repetition_conflicts(self.repetitions)
        yield from self.length_conflicts(self.reading.length)

    def count_copies(self) -> CopyCount:
        """Insertions have no copies: a text that occurs twice is refused."""
        return CopyCount()

    def tiny(self) -> Insertions:
        return replace(
            self,
            data=FACTS,
            examples=40,
            base=TINY_BASE,
            prefix=min(self.prefix, 20),
            suffix=min(self.suffix, 20),
            reading=tiny_reading(self.reading),
        )


@dataclass(frozen=True)
class OtherTexts(BoundDraw, Corpus):
    """Texts that are compared with texts of another time or source, on which a given model was not trained."""

    tag: ClassVar[str] = "others"
    others: Dataset = field(kw_only=True)
    """Ours: the texts of another time or source."""
    source: AskedModel | ReturnedTable = field(default=AskedModel(), metadata={OUTSIDE_COMMITMENT: True})
    """The source of the log probabilities: a model that is evaluated here, or a table that its owner returned."""

    @property
    def outputs(self) -> File | None:
        """The table that the model's owner returned; None if a model is evaluated here."""
        return self.source.outputs if isinstance(self.source, ReturnedTable) else None

    def count_copies(self) -> CopyCount:
        """Count the exact copies among the texts and the others."""
        return count_groups([*load_texts(self.data, self.examples), *load_texts(self.others)], "texts")

    def tiny(self) -> OtherTexts:
        return replace(self, data=FACTS, examples=20, source=self.source.tiny())


Question = Secrets | Planted | Identifiers | Documents | Insertions | OtherTexts
OwnerQuestion = Planted | Identifiers | OtherTexts
RankedQuestion = Secrets | Planted | Identifiers
