"""The configuration of the audit, one type for each of its questions, and the facts that its summary needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

from tasks.audits.membership.given_config import FirstImages, GivenModel, Records
from tasks.contract import ranges
from tasks.contract.job import ANSWER_ONLY
from tasks.contract.ranges import AtLeast, Ranged
from tasks.datasets.copies import CopyCount
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import CanaryImages
from tasks.models.catalog import Network
from tasks.training.classifier_config import ClassifierTraining

TINY_RECORDS = 60


@dataclass(frozen=True)
class Halves(Ranged):
    """Models trained here, each on half of the records: which records change the outputs of models?"""

    tag: ClassVar[str] = "halves"

    data: Dataset = Dataset("mnist")
    """The images: each of the first `examples` training images is a record."""
    examples: Annotated[int, AtLeast(0)] = 0
    """Number of training images, from the first; 0: all."""
    models: Annotated[int, AtLeast(4), ranges.MultipleOf(2, "so that every record is in half of them")] = 16
    """Number of models; every record is in exactly half of the training sets."""
    unseen: bool = False
    """Ours: evaluate the models on the images that follow, on which no model was trained: a null."""
    level: Annotated[float, ranges.Share(zero=False, one=False)] = 0.05
    """Ours: at most this share of the records that are found may be false."""
    draws: Annotated[int, AtLeast(99)] = 9999
    """Ours: sets of models drawn for the exact test if there are more than 20,000 sets. Records with a small p-value
    get more draws, enough to find one record among all."""
    negligible: Annotated[float, ranges.Share(zero=False)] = field(default=0.01, metadata={ANSWER_ONLY: True})
    """Ours: an area under the curve this far above a half is negligible."""
    influences: Annotated[int, AtLeast(0)] = 0
    """Ours: number of listed pairs of records of which one helps models most to be right about the other; 0: none."""
    shifts: Annotated[int, AtLeast(0)] = 0
    """Ours: pixels by which copies of each record are shifted for another attack by labels; 0: no such attack."""


@dataclass(frozen=True)
class Canaries(Ranged):
    """Models trained here, each with canaries by a coin: how large is epsilon at least?"""

    tag: ClassVar[str] = "canaries"

    data: Dataset = Dataset("mnist")
    """The images: each of the first `examples` training images is a record."""
    examples: Annotated[int, AtLeast(0)] = 0
    """Number of training images, from the first; 0: all."""
    models: Annotated[int, AtLeast(1)] = 16
    """Number of models, each with its own coins."""
    canaries: Annotated[int, AtLeast(1)] = 100
    """Number of records that a fair coin puts into the training data of each model, in addition to all others."""
    mislabelled: bool = False
    """Whether canaries have a wrong label, which is remembered sooner than a right one."""
    canary_images: CanaryImages = "own"
    """The image of a canary: its record's own, noise like no record, or its own with a glyph drawn for it."""

    def conflicts(self) -> Iterator[str]:
        if self.canaries > self.examples > 0:
            yield f"canaries is {self.canaries}; it must be at most examples, which is {self.examples}"


Question = Halves | Canaries | GivenModel


@dataclass(frozen=True)
class Membership(Ranged):
    """Configuration: the question, with its records and models, and how models are trained here."""

    question: Question = Halves()
    """Halves of the records in the training data of models trained here, canaries in it, or a given model."""
    training: ClassifierTraining = ClassifierTraining()
    """How models are trained here."""
    seed: Annotated[int, AtLeast(0)] = 0
    """Ours: the only source of chance."""

    @property
    def data(self) -> Dataset:
        """The data set with the records."""
        return self.question.records.dataset if isinstance(self.question, GivenModel) else self.question.data


@dataclass(frozen=True)
class About:
    """Facts about a run that its summary needs."""

    level: float = 0.05
    """At most this share of the records that are found may be false; canaries are not found one by one."""
    copies: CopyCount = CopyCount()
    """The exact copies among the records."""
    chance: float | None = None
    """The accuracy of the best constant answer about the records; with canaries, about the validation images."""


def tiny(config: Membership) -> Membership:
    """The configuration's shape on embedded data, in seconds."""
    training = replace(config.training, network=Network("mlp1"), epochs=2, batch=min(config.training.batch, 32))
    return replace(config, question=_tiny_question(config.question), training=training)


def _tiny_question(question: Question) -> Question:
    match question:
        case Halves():
            few, models = _few_records(question.examples), min(question.models, 8)
            draws = min(question.draws, 99)
            return replace(question, data=Dataset("digits"), examples=few, models=models, draws=draws)
        case Canaries():
            few, models = _few_records(question.examples), min(question.models, 8)
            canaries = min(question.canaries, few // 2)
            return replace(question, data=Dataset("digits"), examples=few, models=models, canaries=canaries)
        case GivenModel():  # with fewer models nothing could be found
            return replace(question, records=_tiny_records(question.records), draws=min(question.draws, 99))


def _tiny_records(records: Records) -> Records:
    """Few of the same records; of embedded data in place of a published data set."""
    few = _few_records(records.examples)
    if isinstance(records, FirstImages):
        return replace(records, data=Dataset("digits"), examples=few, controls=0)
    return replace(records, examples=few, controls=0)


def _few_records(examples: int) -> int:
    return min(examples or TINY_RECORDS, TINY_RECORDS)
