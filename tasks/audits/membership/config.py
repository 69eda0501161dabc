"""Configuration of the audit, with one class per question, and the facts that its summary needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

from tasks.audits.membership.given_config import FirstImages, GivenModel, Records
from tasks.audits.membership.loss_config import LossAttack, ModelAndSets, OutputsAndSets, Recording, TrainedExample
from tasks.contract import ranges
from tasks.contract.job import ANSWER_ONLY
from tasks.contract.power import SMALLEST
from tasks.contract.ranges import AtLeast, Ranged
from tasks.datasets.copies import CopyCount
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import CanaryImages
from tasks.models.catalog import Network
from tasks.programs.config import Program
from tasks.training.classifier_config import ClassifierTraining

TINY_RECORDS = 60


@dataclass(frozen=True)
class Halves(Ranged):
    """Models trained here, each on half of the records: which records can be identified as training data?"""

    tag: ClassVar[str] = "halves"

    data: Dataset = Dataset("mnist")
    """Data set; its first `examples` training images are the records."""
    examples: Annotated[int, AtLeast(0)] = 0
    """Number of records, from the first training image; 0: all."""
    models: Annotated[int, AtLeast(4), ranges.MultipleOf(2, "so that every record is in half of them")] = 16
    """Number of models; each record is in the training data of exactly half of them."""
    is_null: bool = False
    """Ours: whether to test non-members that follow the records, as a control run in which nothing can be memorised."""
    level: Annotated[float, ranges.Share(zero=False, one=False)] = 0.05
    """Ours: false discovery rate of the identified records."""
    draws: Annotated[int, AtLeast(99)] = 9999
    """Ours: random halves of the models for the exact test, if there are more than 20,000 halves. Records with a small
    p-value get more draws."""
    negligible: Annotated[float, ranges.Share(zero=False)] = field(default=0.01, metadata={ANSWER_ONLY: True})
    """Ours: largest excess of an area under the curve over 0.5 that counts as negligible."""
    influence_pairs: Annotated[int, AtLeast(0)] = 0
    """Ours: number of record pairs to list, those with the largest influence on each other; 0: none."""
    shift_pixels: Annotated[int, AtLeast(0)] = 0
    """Ours: shift of image copies for a further label-only attack, in pixels; 0: no such attack."""


@dataclass(frozen=True)
class Canaries(Ranged):
    """Models trained here, with a coin flip per canary: how large is epsilon at least?"""

    tag: ClassVar[str] = "canaries"

    data: Dataset = Dataset("mnist")
    """Data set; its first `examples` training images are the records."""
    examples: Annotated[int, AtLeast(0)] = 0
    """Number of records, from the first training image; 0: all."""
    models: Annotated[int, AtLeast(1)] = 16
    """Number of models, each with its own coin flips."""
    canaries: Annotated[int, AtLeast(1)] = 100
    """Number of canaries: records that a fair coin adds to the training data of each model, or leaves out."""
    mislabelled: bool = False
    """Whether canaries have a wrong label, which models memorise sooner."""
    canary_images: CanaryImages = "own"
    """Image of a canary: the record's own image, noise, or the record's own image with a random glyph."""

    def conflicts(self) -> Iterator[str]:
        if self.canaries > self.examples > 0:
            yield f"canaries is {self.canaries}; it must be at most examples, which is {self.examples}"


@dataclass(frozen=True)
class ModelPairs(Ranged):
    """Pairs of models trained here, until the evidence decides: can a record be identified as training data?"""

    tag: ClassVar[str] = "pairs"

    data: Dataset = Dataset("mnist")
    """Data set; its first `examples` training images are the records."""
    examples: Annotated[int, AtLeast(0)] = 0
    """Number of records, from the first training image; 0: all."""
    pairs: Annotated[int, AtLeast(1)] = 40
    """Maximum number of pairs of models. A coin per record decides which model of a pair is trained on it."""
    is_null: bool = False
    """Ours: whether to test non-members that follow the records, as a control run in which nothing can be memorised."""
    stopping_level: Annotated[float, ranges.Share(one=False)] = 0.0
    """Ours: error rate of a run that ends at the first deciding pair; 0: all pairs, at an error rate of 5 %."""

    @property
    def level(self) -> float:
        """Error rate of the answer, and false discovery rate of the identified records."""
        return self.stopping_level or Halves.level


Question = Halves | Canaries | ModelPairs | GivenModel | LossAttack


@dataclass(frozen=True)
class Membership(Ranged):
    """Configuration: the question, with its records and models, and the training recipe."""

    question: Question = Halves()
    """Models trained on halves of the records, with canaries, or in pairs until decided; a given model, or its loss."""
    training: ClassifierTraining | Program = ClassifierTraining()
    """How each model is trained: a classifier by Engram, or your own program."""
    seed: Annotated[int, AtLeast(0)] = 0
    """Ours: seed of all random numbers."""

    def conflicts(self) -> Iterator[str]:
        if isinstance(self.training, Program) and isinstance(self.question, LossAttack):
            yield (
                f"training is {self.training.tag} and question is loss; it must be halves, canaries, pairs or given, "
                "since "
                "reference models are trained by Engram"
            )

    @property
    def recipe(self) -> ClassifierTraining:
        """The recipe of models that Engram trains. Raises ValueError if a program trains them."""
        if isinstance(self.training, Program):
            raise ValueError(f"training is {self.training.tag}; it must be classifier for this question")
        return self.training

    @property
    def smallest_effect(self) -> float:
        """The largest negligible effect of a record, in nats. 0 for samples, whose scores are distances."""
        if isinstance(self.training, Program) and self.training.returns == "samples":
            return 0.0
        return SMALLEST

    @property
    def data(self) -> Dataset | None:
        """Data set of the records. None for a recording, which does not name its data."""
        question = self.question
        if isinstance(question, GivenModel):
            return question.records.dataset
        if not isinstance(question, LossAttack):
            return question.data
        match question.source:
            case Recording():
                return None
            case ModelAndSets(members=members) | OutputsAndSets(members=members):
                return members
            case TrainedExample(data=data):
                return data


@dataclass(frozen=True)
class About:
    """Facts about a run that its summary needs."""

    level: float = 0.05
    """False discovery rate of the identified records. Not used for canaries."""
    copies: CopyCount = CopyCount()
    """Exact copies among the records."""
    smallest_effect: float = SMALLEST
    """Largest negligible effect of a record, in nats."""
    chance: float | None = None
    """Accuracy of the best constant answer on the records or, with canaries, on the validation images."""


def tiny(config: Membership) -> Membership:
    """Reduce the configuration to a run of seconds on embedded data. A program keeps its data set."""
    question = _tiny_question(config.question)
    if isinstance(config.training, Program):
        if config.data is not None and not isinstance(question, GivenModel | LossAttack):
            question = replace(question, data=config.data)
        return replace(config, question=question)
    training = replace(config.training, network=Network("mlp1"), epochs=2, batch=min(config.training.batch, 32))
    if training.optimiser == "nesterov":  # its learning rates are for airbench
        training = replace(training, optimiser="adam", learning_rate=ClassifierTraining.learning_rate)
    return replace(config, question=question, training=training)


def _tiny_question(question: Question) -> Question:
    match question:
        case Halves():
            few = _few_records(question.examples)
            models = min(question.models, 8)
            draws = min(question.draws, 99)
            return replace(question, data=Dataset("digits"), examples=few, models=models, draws=draws)
        case Canaries():
            few = _few_records(question.examples)
            models = min(question.models, 8)
            canaries = min(question.canaries, few // 2)
            return replace(question, data=Dataset("digits"), examples=few, models=models, canaries=canaries)
        case ModelPairs():
            few = _few_records(question.examples)
            return replace(question, data=Dataset("digits"), examples=few, pairs=min(question.pairs, 4))
        case GivenModel():  # keeps its models, since the test has no power with fewer
            return replace(question, records=_tiny_records(question.records), draws=min(question.draws, 99))
        case LossAttack(source=TrainedExample() as source):
            few_source = replace(source, data=Dataset("digits"), examples=_few_records(source.examples))
            return LossAttack(few_source, min(question.references, 8))
        case LossAttack():
            return replace(question, references=min(question.references, 8))


def _tiny_records(records: Records) -> Records:
    """Return a few of the same records. Embedded data replace a published data set."""
    few = _few_records(records.examples)
    if isinstance(records, FirstImages):
        return replace(records, data=Dataset("digits"), examples=few, non_member_examples=0)
    return replace(records, examples=few, non_member_examples=0)


def _few_records(examples: int) -> int:
    return min(examples or TINY_RECORDS, TINY_RECORDS)
