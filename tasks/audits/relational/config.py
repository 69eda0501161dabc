"""Configuration of the audit: the questions and the system that answers them, or the paper's linear model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal

from tasks.contract.commitment import OUTSIDE_COMMITMENT
from tasks.contract.extras import OPACUS, Extra
from tasks.contract.job import ANSWER_ONLY
from tasks.contract.ranges import AtLeast, AtMost, Finite, Ranged, Share
from tasks.datasets.copies import CopyCount
from tasks.datasets.dataset import Dataset
from tasks.external.blinding import withheld
from tasks.external.bound_draw import OTHER_PARTY, check_secret, derive_secret_seed, describe_draw
from tasks.language_models.fine_tuning_config import Relation
from tasks.language_models.language_model import LanguageModel
from tasks.language_models.tuning_config import LanguageModelTuning, Reading
from tasks.question_answering.predictions import Predictions
from tasks.question_answering.question_sets import Corruption, DigitRemoval, Selection
from tasks.training.privacy_config import DifferentialPrivacy, LinkedTraining, guarantee_of, link_of
from tasks.training.recipe import LARGEST_EPSILON, Privacy
from tasks.worker.files import WITHHELD

SplitOrigin = Literal["given", "drawn"]

Epsilon = Annotated[float, Finite(), AtMost(LARGEST_EPSILON, "which hides nothing")]


@dataclass(frozen=True)
class QuestionTuning(LanguageModelTuning):
    """Fine-tuning of a language model on questions."""

    privacy: LinkedTraining | DifferentialPrivacy = LinkedTraining(1)
    """Differential privacy per question, or a division of the training into links."""

    @property
    def guarantee(self) -> Privacy | None:
        return guarantee_of(self.privacy)

    @property
    def link(self) -> int:
        """Epochs per link of a training run. 0 means that the whole run is one job."""
        return link_of(self.privacy)


# The published training on SQuAD: T5-small, text to text, AdaFactor.
T5_SMALL = Reading(LanguageModel("hub:t5-small"))
PUBLISHED_TUNING = QuestionTuning(epochs=20, batch=128, dropout=0.1)

TINY = 40  # largest number of samples or features of a tiny linear model


@dataclass(frozen=True)
class Trained(Ranged):
    """Models fine-tuned by the audit."""

    tag: ClassVar[str] = "trained"

    reading: Reading = T5_SMALL
    """Sequence model and maximum context length."""
    tuning: QuestionTuning = PUBLISHED_TUNING
    """Fine-tuning recipe."""
    relation: Relation = "kept"
    """Ours: kept trains on the true answers; redrawn is a control in which nothing can be memorised: in every epoch,
    each question gets the answer of another, randomly drawn question.
    """
    split: SplitOrigin = "given"
    """Ours: given keeps the split of the data set; drawn assigns contexts to parts at random, so that both parts have
    the same distribution.
    """
    replicates: Annotated[int, AtLeast(1)] = 1
    """Ours: number of fine-tuning runs, each with its own seed."""
    evaluation_interval: Annotated[int, AtLeast(0)] = 1
    """Epochs between evaluations; 0: evaluate only after the last epoch."""
    answer_length: Annotated[int, AtLeast(1)] = 32
    """Maximum answer length, in tokens."""

    @property
    def recorded(self) -> tuple[int, ...]:
        """Epochs after which the model is evaluated. 0 stands for the model before training."""
        epochs = self.tuning.epochs
        if self.evaluation_interval:
            return (*range(0, epochs, self.evaluation_interval), epochs)
        return (epochs,)

    def tiny(self) -> Trained:
        """Return the same system with a small model and at most two epochs."""
        tuning = replace(
            self.tuning,
            epochs=min(self.tuning.epochs, 2),
            batch=min(self.tuning.batch, 16),
            accumulate=1,
            privacy=LinkedTraining(1) if self.tuning.link else self.tuning.privacy,
        )
        return replace(
            self,
            reading=Reading(LanguageModel("tiny-t5#16x1"), min(self.reading.length, 128)),
            tuning=tuning,
            replicates=min(self.replicates, 2),
            evaluation_interval=1 if self.evaluation_interval else 0,
            answer_length=min(self.answer_length, 8),
        )


@dataclass(frozen=True)
class Given(Ranged):
    """An externally trained system: its owner receives the questions and returns the answers."""

    tag: ClassVar[str] = "given"

    predictions: Predictions | None = field(default=None, metadata={OUTSIDE_COMMITMENT: True})
    """Ours: file or folder of returned answers; not needed by `engram probes`."""
    secret: str = field(default="", repr=False, metadata={WITHHELD: withheld, OUTSIDE_COMMITMENT: True})
    """Ours: secret text that, together with `seed`, determines the question order; without it, an owner who tries seeds
    can find the order.
    """
    nonce: str = field(default="", metadata={OUTSIDE_COMMITMENT: True})
    """Ours: text chosen by the other party after receiving the commitment (`engram probes --commit`); it also
    determines the order, so that neither party chooses the order alone.
    """
    nonce_by: str = field(default=OTHER_PARTY, metadata={OUTSIDE_COMMITMENT: True})
    """Ours: source of the nonce: the system's owner, or a public beacon after the commitment."""
    commitment: str = field(default="", metadata={OUTSIDE_COMMITMENT: True})
    """Ours: commitment made before the nonce was chosen. It covers the configuration except the nonce, the secret and
    the returned answers; a run with another configuration is refused.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        check_secret(self.secret, self.nonce, self.nonce_by)

    @property
    def is_blinded(self) -> bool:
        """Whether the answers were given to blinded questions."""
        return self.predictions is not None and self.predictions.is_blinded

    @property
    def is_guessable(self) -> bool:
        """Whether an owner could have recognised the training questions by trying seeds."""
        return self.is_blinded and not self.secret

    def order(self, seed: int) -> int:
        """Derive the seed of the question order from the seed of the run."""
        return derive_secret_seed(seed, "order", self.secret, self.nonce)

    def describe_draw(self) -> str:
        """Describe who chose the order."""
        subject = "The order in which questions are handed out"
        return describe_draw(subject, self.commitment, self.nonce, self.nonce_by)


@dataclass(frozen=True)
class Answers(Ranged):
    """Answers to training and held-out questions whose contexts no longer contain the answer."""

    tag: ClassVar[str] = "answers"

    data: Dataset = Dataset("squad")
    """Data set with training questions and held-out questions."""
    corruption: Corruption = DigitRemoval()
    """Part of the contexts that is removed."""
    numeric: bool = True
    """Whether to ask only questions with a numeric answer; models train on all questions."""
    examples: Annotated[int, AtLeast(0)] = 0
    """Ours: number of training questions; 0: all."""
    held_out: Annotated[int, AtLeast(0)] = 0
    """Ours: number of held-out questions; 0: all."""
    system: Trained | Given = Trained()
    """System that answers: models trained by the audit, or one trained elsewhere."""
    negligible: Annotated[float, Share(zero=False, one=False)] = field(default=0.02, metadata={ANSWER_ONLY: True})
    """Ours: largest relational m that is considered negligible."""
    resamples: Annotated[int, AtLeast(1)] = 2000
    """Ours: number of bootstrap resamples of contexts for the intervals of m."""

    @property
    def selection(self) -> Selection:
        return Selection(self.examples, self.held_out, self.numeric)

    def tiny(self) -> Answers:
        """Return the same question on embedded data, with a small model trained by the audit."""
        stated = self.data.name.startswith("squad") or self.data.name == "facts-stated"
        system = self.system if isinstance(self.system, Trained) else Trained()
        return replace(
            self,
            data=Dataset("facts-stated" if stated else "facts"),
            examples=48,
            held_out=48,
            system=system.tiny(),
            resamples=min(self.resamples, 100),
        )


@dataclass(frozen=True)
class Linear(Ranged):
    """The paper's linear model: memorisation over time, and recovery of x."""

    tag: ClassVar[str] = "linear"

    sizes: tuple[tuple[int, int], ...] = ((300, 2000), (1000, 1000))
    """Pairs of sample count n and feature count d; by default, those of figure 5."""
    trainings: Annotated[int, AtLeast(1)] = 20
    """Number of training runs per size, each on its own samples."""
    per_decade: Annotated[int, AtLeast(1)] = 10
    """Number of curve points per factor of ten in time."""

    def conflicts(self) -> Iterator[str]:
        if not self.sizes or any(samples < 1 or features < 1 for samples, features in self.sizes):
            yield f"sizes is {self.sizes}; it must be pairs of samples and features, each at least 1"

    def tiny(self) -> Linear:
        """Return the same question with a few small models. The larger of samples and features stays the larger one."""
        sizes = []
        for samples, features in self.sizes:
            largest = max(samples, features)
            sizes.append((max(2, TINY * samples // largest), max(2, TINY * features // largest)))
        return Linear(tuple(sizes), min(self.trainings, 4), min(self.per_decade, 3))


@dataclass(frozen=True)
class PrivateLinear(Ranged):
    """A small version of the paper's linear model, trained with differential privacy."""

    tag: ClassVar[str] = "private"

    epsilons: tuple[Epsilon, ...] = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
    """Values of epsilon for differential privacy."""
    trainings: Annotated[int, AtLeast(1)] = 1000
    """Number of training runs per epsilon."""

    def conflicts(self) -> Iterator[str]:
        if not self.epsilons:
            yield "epsilons is empty; it must have at least one"

    def extras(self) -> tuple[Extra, ...]:
        return (OPACUS,)

    def tiny(self) -> PrivateLinear:
        """Return the same question with two epsilons and few training runs."""
        return PrivateLinear(self.epsilons[:2], min(self.trainings, 20))


Question = Answers | Linear | PrivateLinear


@dataclass(frozen=True)
class Relational(Ranged):
    """Configuration: the question, and the seed."""

    question: Question = Answers()
    """Answers of a language model to questions, or the paper's linear model, without or with privacy."""
    seed: Annotated[int, AtLeast(0)] = 0
    """Ours: seed of all random numbers."""


def _trained_system(config: Relational) -> Trained | None:
    """Return the models fine-tuned by the audit, or None if there are none."""
    match config.question:
        case Answers(system=Trained() as system):
            return system
    return None


def given_system(config: Relational) -> Given | None:
    """Return the externally trained system, or None if there is none."""
    match config.question:
        case Answers(system=Given() as system):
            return system
    return None


def is_null(config: Relational) -> bool:
    """Return whether the models were trained on redrawn answers, so that nothing can be memorised."""
    system = _trained_system(config)
    return system is not None and system.relation == "redrawn"


@dataclass(frozen=True)
class About:
    """Facts about a run that its summary needs.

    questions: The questions that the decisive m is computed from: numeric if digits are removed from contexts.
    epsilon: The epsilon of differential privacy. None if training is not private.
    cell: The column of table 2 in the paper that the run reproduces. Empty if it reproduces none.
    """

    questions: str = "numeric"
    epsilon: float | None = None
    cell: str = ""
    copies: CopyCount = CopyCount()
    """Exact copies among the questions."""
    chance: float | None = None
    """Accuracy of the best constant answer to the decisive held-out questions. None if no questions are asked."""
