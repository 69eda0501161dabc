"""The configuration of the audit: what is asked of which models, or which linear models are trained in closed form."""

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
    """How a language model is fine-tuned on questions."""

    privacy: LinkedTraining | DifferentialPrivacy = LinkedTraining(1)
    """Whether fine-tuning is differentially private, by single questions, or can be divided into links."""

    @property
    def guarantee(self) -> Privacy | None:
        return guarantee_of(self.privacy)

    @property
    def link(self) -> int:
        """Epochs for each link of a training; 0 for one job."""
        return link_of(self.privacy)


# The published training on SQuAD: T5-small, text to text, AdaFactor.
T5_SMALL = Reading(LanguageModel("hub:t5-small"))
PUBLISHED_TUNING = QuestionTuning(epochs=20, batch=128, dropout=0.1)

TINY = 40  # samples and features of a linear model at most


@dataclass(frozen=True)
class Trained(Ranged):
    """Models that are fine-tuned here."""

    tag: ClassVar[str] = "trained"

    reading: Reading = T5_SMALL
    """The sequence model, and how much of a context it reads."""
    tuning: QuestionTuning = PUBLISHED_TUNING
    """How the model is fine-tuned on questions."""
    relation: Relation = "kept"
    """Ours: redrawn gives every training question the answer of another, another in every epoch: nothing to
    memorise, which is the null."""
    split: SplitOrigin = "given"
    """Ours: drawn draws by `seed` which contexts are trained on, so that both parts are alike; given keeps the
    data's own parts."""
    replicates: Annotated[int, AtLeast(1)] = 1
    """Ours: the number of fine-tunings, each from its own seed."""
    every: Annotated[int, AtLeast(0)] = 1
    """Epochs between rounds of questions; 0: after the last alone."""
    answer_length: Annotated[int, AtLeast(1)] = 32
    """Longest answer, in tokens."""

    @property
    def recorded(self) -> tuple[int, ...]:
        """The epochs after which the model is asked: if there are several, 0 (before training) is the first."""
        epochs = self.tuning.epochs
        return (*range(0, epochs, self.every), epochs) if self.every else (epochs,)

    def tiny(self) -> Trained:
        """The same with a small model and two epochs at most."""
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
            every=1 if self.every else 0,
            answer_length=min(self.answer_length, 8),
        )


@dataclass(frozen=True)
class Given(Ranged):
    """A system that was trained elsewhere: its owner is handed the questions and returns the answers."""

    tag: ClassVar[str] = "given"

    given: Predictions | None = field(default=None, metadata={OUTSIDE_COMMITMENT: True})
    """Ours: a file or a folder of answers; none until the owner has returned them."""
    secret: str = field(default="", repr=False, metadata={WITHHELD: withheld, OUTSIDE_COMMITMENT: True})
    """Ours: text that nobody can guess, which determines together with `seed` the order in which questions are handed
    out; without one, an owner who tries seeds finds the order."""
    nonce: str = field(default="", metadata={OUTSIDE_COMMITMENT: True})
    """Ours: text that the other party named once it had the commitment (`engram probes --commit`): the order follows
    from it, too, so that neither party chooses it."""
    nonce_by: str = field(default=OTHER_PARTY, metadata={OUTSIDE_COMMITMENT: True})
    """Ours: who named the nonce: the system's owner, or a public beacon of a time after the commitment."""
    commitment: str = field(default="", metadata={OUTSIDE_COMMITMENT: True})
    """Ours: the commitment that the nonce was named after. It holds the whole configuration except the nonce, the
    secret and the returned answers; a run with another configuration is refused."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_secret(self.secret, self.nonce, self.nonce_by)

    @property
    def is_blinded(self) -> bool:
        """Whether the answers are those to questions that were handed out blinded."""
        return self.given is not None and self.given.is_blinded

    @property
    def is_guessable(self) -> bool:
        """Whether an owner who tries seeds could have told which of the answered questions are which."""
        return self.is_blinded and not self.secret

    def order(self, seed: int) -> int:
        """The seed of the order in which questions are handed out, from the seed of the run."""
        return derive_secret_seed(seed, "order", self.secret, self.nonce)

    def describe_draw(self) -> str:
        """Who chose the order, in sentences."""
        what = "The order in which questions are handed out"
        return describe_draw(what, self.commitment, self.nonce, self.nonce_by)


@dataclass(frozen=True)
class Answers(Ranged):
    """Answers to questions of which some were trained on, with what they are read from taken out of the contexts."""

    tag: ClassVar[str] = "answers"

    data: Dataset = Dataset("squad")
    """Questions to train on and questions that are held out."""
    corruption: Corruption = DigitRemoval()
    """What is taken out of contexts."""
    numeric: bool = True
    """Whether only questions whose answer has a digit are asked; models are trained on all."""
    examples: Annotated[int, AtLeast(0)] = 0
    """Ours: how many training questions are used and asked; 0: all."""
    held_out: Annotated[int, AtLeast(0)] = 0
    """Ours: how many held-out questions are asked; 0: all."""
    system: Trained | Given = Trained()
    """Which system answers: models that are trained here, or one that was trained elsewhere."""
    negligible: Annotated[float, Share(zero=False, one=False)] = field(default=0.02, metadata={ANSWER_ONLY: True})
    """Ours: relational m below which the answer is not detected."""
    resamples: Annotated[int, AtLeast(1)] = 2000
    """Ours: bootstraps over contexts, for intervals of m."""

    @property
    def selection(self) -> Selection:
        return Selection(self.examples, self.held_out, self.numeric)

    def tiny(self) -> Answers:
        """The same on embedded data, answered by a small model that is trained here."""
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
    """The paper's linear model: what it memorises over time, and whether each x can be recovered."""

    tag: ClassVar[str] = "linear"

    sizes: tuple[tuple[int, int], ...] = ((300, 2000), (1000, 1000))
    """Pairs of samples n and features d, by default those of figure 5."""
    trainings: Annotated[int, AtLeast(1)] = 20
    """Trainings of each, on samples of its own."""
    per_decade: Annotated[int, AtLeast(1)] = 10
    """Points of its curves for every factor of ten in time."""

    def conflicts(self) -> Iterator[str]:
        if not self.sizes or any(samples < 1 or features < 1 for samples, features in self.sizes):
            yield f"sizes is {self.sizes}; it must be pairs of samples and features, each at least 1"

    def tiny(self) -> Linear:
        """The same with few small models; the larger one of samples and features stays the larger one."""
        sizes = []
        for samples, features in self.sizes:
            largest = max(samples, features)
            sizes.append((max(2, TINY * samples // largest), max(2, TINY * features // largest)))
        return Linear(tuple(sizes), min(self.trainings, 4), min(self.per_decade, 3))


@dataclass(frozen=True)
class PrivateLinear(Ranged):
    """The paper's linear model, a small one that is trained with differential privacy."""

    tag: ClassVar[str] = "private"

    epsilons: tuple[Epsilon, ...] = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
    """The epsilons of differential privacy."""
    trainings: Annotated[int, AtLeast(1)] = 1000
    """Trainings at each epsilon."""

    def conflicts(self) -> Iterator[str]:
        if not self.epsilons:
            yield "epsilons is empty; it must have at least one"

    def extras(self) -> tuple[Extra, ...]:
        return (OPACUS,)

    def tiny(self) -> PrivateLinear:
        """The same with two epsilons and few trainings."""
        return PrivateLinear(self.epsilons[:2], min(self.trainings, 20))


Question = Answers | Linear | PrivateLinear


@dataclass(frozen=True)
class Relational(Ranged):
    """What is measured: the answers of a language model, or the paper's linear model without or with privacy."""

    question: Question = Answers()
    """What is measured: answers to questions, or a linear model, which needs neither data nor language model."""
    seed: Annotated[int, AtLeast(0)] = 0
    """Ours: the only source of chance."""


def _trained_system(config: Relational) -> Trained | None:
    """The models that are fine-tuned and asked; None if answers are given, or none are asked for."""
    match config.question:
        case Answers(system=Trained() as system):
            return system
    return None


def given_system(config: Relational) -> Given | None:
    """The system whose answers are given; None if models are trained here, or no answers are asked for."""
    match config.question:
        case Answers(system=Given() as system):
            return system
    return None


def is_null(config: Relational) -> bool:
    """Whether the models that are asked were trained here with nothing to memorise."""
    system = _trained_system(config)
    return system is not None and system.relation == "redrawn"


@dataclass(frozen=True)
class About:
    """What the summary needs to know of the run besides the tables.

    The decisive m is that of these `questions`: numeric where digits are taken out of contexts. `epsilon` is that of
    differential privacy; None without. `cell` is the column of the paper's table 2 that the run repeats; empty for
    none.
    """

    questions: str = "numeric"
    epsilon: float | None = None
    cell: str = ""
    copies: CopyCount = CopyCount()
    """The exact copies among the questions that are asked."""
    chance: float | None = None
    """The accuracy of the best constant answer to the held-out questions that decide; None if no question is asked."""
