"""The questions of the audit: a dataclass for each, with its texts or secrets, its models and their training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from tasks.audits.text.secrets.space import Repetitions, SecretSpace, Told, space_of
from tasks.contract.commitment import OUTSIDE_COMMITMENT
from tasks.contract.ranges import AtLeast, MultipleOf, Ranged, Share
from tasks.datasets.dataset import Dataset
from tasks.external.draw_settings import BoundDraw
from tasks.language_models.fine_tuning_config import Precision
from tasks.language_models.language_model import LanguageModel
from tasks.language_models.tuning_config import FineTuning, Full, LowRank, Reading
from tasks.training.privacy_config import DifferentialPrivacy, WithoutPrivacy, guarantee_of
from tasks.training.recipe import Privacy
from tasks.worker.files import File

Scoring = Literal["whole", "shared"]


@dataclass(frozen=True)
class TextReading(Reading):
    """How a language model reads texts that it is not trained on here."""

    precision: Precision = "float32"
    """Ours: numbers that a model from a folder computes with."""

    def conflicts(self) -> Iterator[str]:
        yield from super().conflicts()
        yield from precision_conflicts(self.precision, self.model)


def precision_conflicts(precision: Precision, model: LanguageModel) -> Iterator[str]:
    """What forbids a model to compute with numbers of this precision."""
    if precision == "bfloat16" and model.tiny_sizes is not None:
        yield f"precision is bfloat16; the model must come from a folder, and {model.name} does not"


@dataclass(frozen=True)
class TextLowRank(LowRank):
    """Adapters are trained, and the weights of the model stay unchanged."""

    precision: Precision = "float32"
    """Ours: numbers that a model from a folder computes with; its adapters are float32 in any case."""


@dataclass(frozen=True)
class WholeGradients(WithoutPrivacy):
    """Training without differential privacy: the gradient of a step is computed for all of its texts together."""

    checkpointing: bool = False
    """Ours: whether the values of layers are computed again for gradients: less memory, and a third more time."""


@dataclass(frozen=True)
class TextTuning(FineTuning):
    """How a language model is fine-tuned on texts."""

    adaptation: Full | TextLowRank = Full()
    """Which weights are trained: all weights (full), or adapters of low rank (lora)."""
    privacy: WholeGradients | DifferentialPrivacy = WholeGradients()
    """Whether fine-tuning is differentially private, by single texts."""
    deduplicate: bool = False
    """Ours: whether a text that occurs several times in the training data is kept once."""

    @property
    def guarantee(self) -> Privacy | None:
        return guarantee_of(self.privacy)

    @property
    def precision(self) -> Precision:
        """Numbers that the model computes with."""
        return self.adaptation.precision if isinstance(self.adaptation, TextLowRank) else "float32"

    @property
    def job_fields(self) -> dict[str, Any]:
        return {
            **super().job_fields,
            "precision": self.precision,
            "checkpointing": isinstance(self.privacy, WholeGradients) and self.privacy.checkpointing,
            "deduplicate": self.deduplicate,
        }


@dataclass(frozen=True)
class Corpus(Ranged):
    """The texts that a question is about, or that secrets are inserted into."""

    data: Dataset = Dataset("facts")
    """The texts: records with a field `text` (records:FILE), or the contexts of a set of questions."""
    examples: Annotated[int, AtLeast(0)] = 0
    """The number of texts, from the first; 0: all."""


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
class Null(Ranged):
    """Whether a run is a null."""

    told: Told = "secrets"
    """Ours: others makes the run a null: other secrets or documents replace those in the training data, and other
    identifiers those that are ranked."""

    @property
    def is_null(self) -> bool:
        return self.told == "others"


@dataclass(frozen=True)
class RankSizes(Null):
    """How many things are ranked, and among how many others."""

    secrets: Annotated[int, AtLeast(2)] = 24
    """Secrets of a pair of models, or at most this number of identifiers."""
    references: Annotated[int, AtLeast(19)] = 499
    """Others of the space among which each is ranked: all if the space has fewer."""


@dataclass(frozen=True)
class Inserted(Ranged):
    """The secrets of a format, and how often each occurs in the training data."""

    pattern: str = "Patient {number}: code {digits:6}."
    """The format of the secrets: {number} is the secret's own number, and {digits:N}, {letters:N} and {hex:N} are
    drawn."""
    repetitions: Repetitions = (1, 4, 16)
    """How often a secret occurs in the training data, in turn."""

    def conflicts(self) -> Iterator[str]:
        yield from super().conflicts()
        SecretSpace(self.pattern)  # ValueError for a pattern that cannot be drawn from
        yield from repetition_conflicts(self.repetitions)


def repetition_conflicts(repetitions: Repetitions) -> Iterator[str]:
    if not repetitions or min(repetitions) < 1:
        yield f"repetitions is {repetitions}; there must be one at least, and each must be at least 1"


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


@dataclass(frozen=True)
class AskedModel(TextReading):
    """A language model that scores the texts here, without a fine-tuning."""

    tag: ClassVar[str] = "model"


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


@dataclass(frozen=True)
class ReturnedTable:
    """A table that the model's owner returned for the texts that `engram probes` wrote."""

    tag: ClassVar[str] = "table"
    outputs: File
    """Ours: the table of log probabilities."""


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


Question = Secrets | Planted | Identifiers | Documents | Insertions | OtherTexts
OwnerQuestion = Planted | Identifiers | OtherTexts
RankedQuestion = Secrets | Planted | Identifiers
