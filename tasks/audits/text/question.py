"""The questions of the audit: one dataclass each, with its texts or secrets, its models and their training."""

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
from tasks.programs.config import Program
from tasks.worker.files import File

Scoring = Literal["whole", "shared"]
# Embedded texts.
FACTS = Dataset("facts")
TICKETS = Dataset("tickets")


@dataclass(frozen=True)
class Reproduction(Ranged):
    """Criteria for a reproduction."""

    attempts: tuple[Annotated[int, AtLeast(1)], ...] = (1, 100, 10_000)
    """Numbers of sampled continuations."""
    probability: Annotated[float, Share(zero=False, one=False)] = 0.5
    """Smallest probability that at least one of these continuations equals the text, for the text to count as
    reproduced.
    """
    edit_distance: Annotated[float, Share(one=False)] = 0.1
    """Largest edit distance of a near-verbatim continuation, as a share of the tokens."""

    def conflicts(self) -> Iterator[str]:
        yield from super().conflicts()
        if not self.attempts:
            yield "attempts: expected one or more numbers, got none. Give numbers such as attempts=1,100."


@dataclass(frozen=True)
class Continuation(Reproduction):
    """The models continue the text before each secret or identifier."""

    tag: ClassVar[str] = "continuation"


@dataclass(frozen=True)
class FineTuned(Ranged):
    """Fine-tuning by the audit."""

    reading: Reading = Reading()
    """Language model to fine-tune, and its longest text. Your own program chooses its model itself."""
    tuning: TextTuning | Program = TextTuning()
    """Fine-tuning settings, or your own program, which reads the texts in {data}."""

    program_results: ClassVar[tuple[str, ...]] = ("model",)  # what a program may return

    def conflicts(self) -> Iterator[str]:
        yield from super().conflicts()
        if isinstance(self.tuning, TextTuning):
            yield from precision_conflicts(self.tuning.precision, self.reading.model)
        elif self.tuning.returns not in self.program_results:
            allowed = " or ".join(self.program_results)
            best = self.program_results[0]
            yield f"returns: expected {allowed}, got {self.tuning.returns}. Set tuning.returns={best}."

    @property
    def is_deduplicated(self) -> bool:
        """Whether repeated training texts are used only once."""
        return isinstance(self.tuning, TextTuning) and self.tuning.deduplicate

    def privacy_conflicts(self, repetitions: Repetitions) -> Iterator[str]:
        """Yield the reason why private training does not permit these repetitions of a text."""
        if self.tuning.guarantee is not None and max(repetitions) > 1 and not self.is_deduplicated:
            yield (
                f"repetitions: expected 1 with privacy, got {', '.join(map(str, repetitions))}. Differential privacy "
                "protects single texts: set repetitions=1, or deduplicate=true."
            )


@dataclass(frozen=True)
class Secrets(FineTuned, RankSizes, Inserted, Corpus):
    """Secrets inserted into the training data of one model of each pair; the audit fine-tunes both models."""

    tag: ClassVar[str] = "secrets"
    pairs: Annotated[int, AtLeast(1)] = 1
    """Number of model pairs; each pair has its own secrets."""
    scoring: Scoring = "whole"
    """Ours: whole reads each candidate in full; shared reads the common prefix of the candidates only once. Results are
    equal except for rounding.
    """
    extraction: Continuation | None = None
    """Ours: continuation also tests whether models reproduce the secrets; none does not."""

    program_results: ClassVar[tuple[str, ...]] = ("log_likelihood", "model")

    def conflicts(self) -> Iterator[str]:
        yield from super().conflicts()
        yield from self.privacy_conflicts(self.repetitions)
        if isinstance(self.tuning, Program) and self.tuning.returns != "model" and self.extraction is not None:
            yield f"extraction: expected none, got continuation. It needs a model, not {self.tuning.returns}."

    @property
    def ranked(self) -> int:
        """Number of ranked secrets."""
        return self.secrets * self.pairs

    @property
    def candidates(self) -> int:
        return min(SecretSpace(self.pattern).size, self.references + 1)

    def count_copies(self) -> CopyCount:
        """Count the exact copies among the training texts. Secrets have none, because their numbers differ."""
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
            tuning=_tiny_training(self.tuning),
        )


def _tiny_training(tuning: TextTuning | Program) -> TextTuning | Program:
    """Return the same kind of training for seconds. A program is kept."""
    return tiny_tuning(tuning) if isinstance(tuning, TextTuning) else tuning


@dataclass(frozen=True)
class AskedModel(TextReading):
    """A given language model that the audit evaluates."""

    tag: ClassVar[str] = "model"

    def tiny(self) -> AskedModel:
        return tiny_reading(self)


@dataclass(frozen=True)
class RankingModel(AskedModel):
    """A given language model that the audit evaluates on candidates, and its base model."""

    tag: ClassVar[str] = "model"
    base: LanguageModel | None = None
    """Ours: base model; candidates are then ranked by their log-probability minus that under the base model."""
    scoring: Scoring = "whole"
    """Ours: whole reads each candidate in full; shared reads the common prefix of the candidates only once. Results are
    equal except for rounding.
    """
    extraction: Continuation | None = None
    """Ours: continuation also tests whether the model reproduces the secrets; none does not."""

    def tiny(self) -> RankingModel:
        return replace(tiny_reading(self), base=None if self.base is None else TINY_BASE)


@dataclass(frozen=True)
class ReturnedTable:
    """A table that the model's owner returned for the texts of `engram probes`."""

    tag: ClassVar[str] = "table"
    outputs: File
    """Ours: table of log-probabilities."""

    def tiny(self) -> ReturnedTable:
        return self


@dataclass(frozen=True)
class GivenRanking(BoundDraw, RankSizes):
    """Candidates that are ranked by the scores of a given model."""

    source: RankingModel | ReturnedTable = field(default=RankingModel(), metadata={OUTSIDE_COMMITMENT: True})
    """Source of the log-probabilities: a given model, or a table that its owner returned."""

    @property
    def outputs(self) -> File | None:
        """The table returned by the model's owner, or None if the audit evaluates the model."""
        if isinstance(self.source, ReturnedTable):
            return self.source.outputs
        return None

    @property
    def extraction(self) -> Continuation | None:
        if isinstance(self.source, ReturnedTable):
            return None
        return self.source.extraction

    @property
    def base(self) -> LanguageModel | None:
        """The base of the given model, or None if no base is given."""
        if isinstance(self.source, ReturnedTable):
            return None
        return self.source.base

    @property
    def ranked(self) -> int:
        return self.secrets


@dataclass(frozen=True)
class Planted(GivenRanking, Inserted):
    """Secrets from `engram probes` that were inserted into the training data of a given model."""

    tag: ClassVar[str] = "planted"

    @property
    def candidates(self) -> int:
        return min(SecretSpace(self.pattern).size, self.references + 1)

    def count_copies(self) -> CopyCount:
        """Return no copies, because the numbers of planted secrets differ."""
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
    """Ours: formats of the identifiers: uuid4, md5, sha1, sha256, or a pattern such as key-{hex:16}."""
    context: Annotated[int, AtLeast(0)] = 200
    """Ours: number of characters before an identifier that the model reads."""

    def conflicts(self) -> Iterator[str]:
        yield from super().conflicts()
        for name in self.identifiers:
            space_of(name)  # raises ValueError if the format is not random
        if not self.identifiers:
            yield "identifiers: expected one or more formats, got none. Give formats such as identifiers=uuid4."
        if len(set(self.identifiers)) < len(self.identifiers):
            yield f"identifiers: expected each format once, got {', '.join(self.identifiers)}. Remove the copy."

    @property
    def candidates(self) -> int:
        return min(*(space_of(name).size for name in self.identifiers), self.references + 1)

    def count_copies(self) -> CopyCount:
        """Count the occurrences of identifiers that occur more than once."""
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
    """How much of a document a model reads, and how much it continues."""

    prefix: Annotated[int, AtLeast(1)] = 50
    """Number of tokens of a document that a model reads before it continues."""
    suffix: Annotated[int, AtLeast(1)] = 50
    """Number of tokens in the continuation; shorter documents are left out."""

    def length_conflicts(self, length: int) -> Iterator[str]:
        """Yield the reason why a model that reads `length` tokens cannot continue these texts."""
        if self.prefix + self.suffix > length:
            yield (
                f"prefix + suffix: expected at most length={length}, got {self.prefix + self.suffix}. Lower one "
                "or raise length."
            )


@dataclass(frozen=True)
class Documents(Continued, FineTuned, Null, Corpus):
    """Documents, each in the training data of half of the models; the audit fine-tunes the models."""

    tag: ClassVar[str] = "documents"
    documents: Annotated[int, AtLeast(2)] = 24
    """Ours: number of tested documents, drawn from the texts."""
    models: Annotated[int, AtLeast(4), MultipleOf(2, "so that every document is in half of the models")] = 16
    """Ours: number of models, each trained on half of the documents."""
    repetitions: Repetitions = (1, 4, 16)
    """Numbers of occurrences in the training data of a model; documents take them in turn."""

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
            tuning=_tiny_training(self.tuning),
        )


@dataclass(frozen=True)
class Insertions(Continued, Null, Corpus):
    """Documents that were inserted into the training data of a given model, but not of its base.

    The record field `duplicates` is the number of insertions, which was drawn at random (0: left out).
    """

    tag: ClassVar[str] = "insertions"
    base: LanguageModel = field(kw_only=True)
    """Model trained without the insertions."""
    reading: TextReading = TextReading()
    """Model trained with the insertions."""
    repetitions: Repetitions = (1, 4, 16)
    """Numbers of insertions for embedded texts; records state theirs in the field `duplicates`."""

    def conflicts(self) -> Iterator[str]:
        yield from super().conflicts()
        yield from repetition_conflicts(self.repetitions)
        yield from self.length_conflicts(self.reading.length)

    def count_copies(self) -> CopyCount:
        """Return no copies, because a repeated text is an error here."""
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
class TextComparison(BoundDraw, Corpus):
    """Texts that are compared with texts on which a given model was not trained."""

    tag: ClassVar[str] = "comparison"
    comparison_texts: Dataset = field(kw_only=True)
    """Ours: texts of another time or source."""
    source: AskedModel | ReturnedTable = field(default=AskedModel(), metadata={OUTSIDE_COMMITMENT: True})
    """Source of the log-probabilities: a given model, or a table that its owner returned."""

    @property
    def outputs(self) -> File | None:
        """The table returned by the model's owner, or None if the audit evaluates the model."""
        if isinstance(self.source, ReturnedTable):
            return self.source.outputs
        return None

    def count_copies(self) -> CopyCount:
        """Count the exact copies among the texts and the comparison texts."""
        return count_groups([*load_texts(self.data, self.examples), *load_texts(self.comparison_texts)], "texts")

    def tiny(self) -> TextComparison:
        return replace(self, data=FACTS, examples=20, source=self.source.tiny())


Question = Secrets | Planted | Identifiers | Documents | Insertions | TextComparison
OwnerQuestion = Planted | Identifiers | TextComparison
RankedQuestion = Secrets | Planted | Identifiers
