"""The configuration of the audit, one type for each of its questions, and the facts that its summary needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, TypeVar

from tasks.contract.job import ANSWER_ONLY
from tasks.contract.ranges import AtLeast, Finite, Ranged, Share
from tasks.datasets.copies import CopyCount
from tasks.datasets.dataset import Dataset
from tasks.datasets.options import split as split_name
from tasks.datasets.planting import Planting
from tasks.models.catalog import DensityModel
from tasks.training.density_config import FOLDS, REPETITIONS, Split
from tasks.training.privacy_config import DifferentialPrivacy, LinkedTraining, guarantee_of, link_of
from tasks.training.recipe import Count, Privacy, Rate

RELEASED = ("mnist", "cifar10", "celeba")  # the data whose partitions the paper's code draws


@dataclass(frozen=True)
class KFold(Ranged):
    """Each model leaves out a fold of the data; one more model is trained on all data."""

    tag: ClassVar[str] = "kfold"

    folds: Annotated[int, AtLeast(2)] = 10
    """Folds of a partition (K), with a model for each that has not seen it."""
    asked: Split = "train"
    """Ours: train is the audit; test evaluates images that no model was trained on, which is a null."""


@dataclass(frozen=True)
class PublishedFolds(Ranged):
    """Each model leaves out a fold of one of the first partitions that the paper's released code draws."""

    tag: ClassVar[str] = "released"

    folds: ClassVar[int] = FOLDS
    asked: ClassVar[Split] = "train"


@dataclass(frozen=True)
class SingleRows(Ranged):
    """Some models leave out one observation, the others none."""

    tag: ClassVar[str] = "loo"

    left_out: Annotated[int, AtLeast(0)] = 0
    """Number of observations that are left out, drawn at random; 0: every one."""


@dataclass(frozen=True)
class ScoreMeasure:
    """The score of each observation, which is always computed."""

    tag: ClassVar[str] = "scores"


@dataclass(frozen=True)
class OutlierMeasure(Ranged):
    """Whether highly memorised observations are outliers."""

    tag: ClassVar[str] = "outliers"

    outlier_bin: Annotated[float, Finite()] = 10.0
    """Width of the bins of log p, in nats."""


@dataclass(frozen=True)
class NeighbourMeasure(Ranged):
    """Whether samples of the model lie closer to training images than other images do."""

    tag: ClassVar[str] = "neighbours"

    score_bin: Annotated[float, Finite()] = 2.0
    """Width of the bins of the score, in nats."""


@dataclass(frozen=True)
class DuplicateMeasure:
    """The closest pairs of training images."""

    tag: ClassVar[str] = "duplicates"


Measured = ScoreMeasure | OutlierMeasure | NeighbourMeasure | DuplicateMeasure
M = TypeVar("M")


@dataclass(frozen=True)
class ModelTraining(Ranged):
    """A density model trained by Engram.

    The defaults are the published setting for MNIST. Another way of training is another type: the field `training` then
    has alternatives, which their tags distinguish.
    """

    tag: ClassVar[str] = "density"

    model: DensityModel = DensityModel("vae")
    """The density model: one of `tasks.models.catalog`, or your own as package.module:factory."""
    width: Annotated[float, Finite()] = 1.0
    """Ours: the factor on the units of its hidden layers (vae alone), rounded to whole ones; its code stays."""
    epochs: Count = 100
    """Epochs of training."""
    every: Annotated[int, AtLeast(0)] = 5
    """Epochs between estimates of log p; 0: after the last alone."""
    batch: Count = 64
    """Images a step."""
    learning_rate: Rate = 1e-3
    """The learning rate of Adam."""
    outliers: Annotated[float, Share(one=False)] = 0.0
    """The share of an outlier component in the likelihood (section 5); 0: none."""
    privacy: LinkedTraining | DifferentialPrivacy = LinkedTraining()
    """Whether training is differentially private (section 5), or can be divided into links."""

    def conflicts(self) -> Iterator[str]:
        self.model.check(self.width)
        yield from ()

    @property
    def guarantee(self) -> Privacy | None:
        """The guarantee of differential privacy; None without one."""
        return guarantee_of(self.privacy)

    @property
    def link(self) -> int:
        """Epochs for each link of a training; 0 for one job."""
        return link_of(self.privacy)

    @property
    def recorded(self) -> tuple[int, ...]:
        """The epochs after which log p is estimated, the last among them."""
        return (*range(self.every, self.epochs, self.every), self.epochs) if self.every else (self.epochs,)


@dataclass(frozen=True)
class Memorization(Ranged):
    """Which observations does a density model memorise? Models are trained here, each without some of the data.

    The defaults are the published setting for MNIST.
    """

    tag: ClassVar[str] = "memorization"

    data: Dataset = Dataset("mnist")
    """The observations: images."""
    training: ModelTraining = ModelTraining()
    """How models are trained."""
    estimator: KFold | PublishedFolds | SingleRows = KFold()
    """What each model leaves out: a fold of the data (kfold), one of the paper's folds (released), or
    one observation (loo)."""
    repetitions: Annotated[int, AtLeast(1)] = 10
    """Random partitions into folds (L); of loo, models of all data (T), and the same number without each row."""
    measures: tuple[Measured, ...] = (ScoreMeasure(),)
    """The measures; scores are always computed."""
    examples: Annotated[int, AtLeast(0)] = 0
    """Ours: train on the first so many training images; 0: all."""
    samples: Annotated[int, AtLeast(1)] = 256
    """Codes with which log p of an observation is estimated."""
    afresh: bool = False
    """Whether each model sees a view of its own of an observation, as published, or all see one."""
    refine: Annotated[int, AtLeast(0)] = 0
    """Ours: steps by which codes are first fitted to each observation; 0: they are the encoder's."""
    negligible: Annotated[float, Finite(zero=True)] = 0.1
    """Ours: nats from which an observation, or the generalisation gap, counts as memorised."""
    detectable: Annotated[float, Finite()] = field(default=10.0, metadata={ANSWER_ONLY: True})
    """Ours: not detected is answered only where one observation memorised by so many nats would be found."""
    permutations: Annotated[int, AtLeast(1)] = 99_999
    """Ours: scores that an observation's is compared with for its p-value, or all where hardly any reaches it;
    below 9,999 p-values are not counted together."""
    draws: Annotated[int, AtLeast(1)] = 64
    """Ours: draws whose mean the matched-count score is."""
    seed: Annotated[int, AtLeast(0)] = 0
    """Ours: the only source of chance."""

    def conflicts(self) -> Iterator[str]:
        if not self.detectable > self.negligible:
            yield f"detectable is {self.detectable}; it must be above negligible, {self.negligible}"
        if isinstance(self.estimator, SingleRows) and self.measure(NeighbourMeasure) is not None:
            yield "measures has neighbours; estimator must be kfold for it, which trains a model to draw from"
        if self.has_released_partitions:
            yield from self._released_conflicts()

    def _released_conflicts(self) -> Iterator[str]:
        """What the paper's released code drew no partitions for."""
        if self.data.name not in RELEASED or self.examples:
            examples = f"the first {self.examples} images of " if self.examples else ""
            yield (
                f"estimator is released and there is no such partition of {examples}{self.data.name}; data must be one "
                f"of {', '.join(RELEASED)} and examples 0, all of them"
            )
        if self.repetitions > REPETITIONS:
            yield f"repetitions is {self.repetitions}; it must be at most {REPETITIONS}, the released partitions"

    def measure(self, kind: type[M]) -> M | None:
        """The requested measure of this kind; None if it is not requested."""
        return next((measure for measure in self.measures if isinstance(measure, kind)), None)

    @property
    def leaves_out_rows(self) -> bool:
        """Whether models leave out single observations."""
        return isinstance(self.estimator, SingleRows)

    @property
    def has_released_partitions(self) -> bool:
        return isinstance(self.estimator, PublishedFolds)

    @property
    def asked(self) -> Split:
        """The images that models are evaluated on."""
        return "train" if isinstance(self.estimator, SingleRows) else self.estimator.asked

    @property
    def models(self) -> int:
        """Models of a repetition (K): one for each fold; of loo the two with and without a row."""
        return 2 if isinstance(self.estimator, SingleRows) else self.estimator.folds

    @property
    def is_null(self) -> bool:
        """Whether models are asked about images that none was trained on."""
        return self.asked == "test"

    @property
    def planting(self) -> Planting | None:
        """What is planted in the images that the models are asked about."""
        return split_name(self.data.name)[1].planting if self.asked == "train" else None


@dataclass(frozen=True)
class NearDuplicates(Ranged):
    """Which training images are closest to one another? Nothing is trained."""

    tag: ClassVar[str] = "duplicates"

    data: Dataset = Dataset("cifar10")
    """The images."""
    examples: Annotated[int, AtLeast(0)] = 0
    """Number of training images, from the first; 0: all."""


@dataclass(frozen=True)
class KernelDensity(Ranged):
    """What is memorisation? A density in one dimension, whose scores are known exactly."""

    tag: ClassVar[str] = "kernel"

    seed: Annotated[int, AtLeast(0)] = 0
    """The only source of chance."""


Question = Memorization | NearDuplicates | KernelDensity


@dataclass(frozen=True)
class Density(Ranged):
    """Configuration: the question, with its data and models."""

    question: Question = Memorization()
    """Memorization that trained models memorise, near duplicates in the data, or a density that is known exactly."""


@dataclass(frozen=True)
class About:
    """The config of the summary: the facts about a run that its tables do not hold.

    `planned` is the number of models planned for an observation, `smallest` the smallest p-value that it can have,
    `published` the cell of the paper whose every setting the run has, if any, `privacy` the guarantee of models that
    left out a single row, and `together` whether p-values may be counted together (tasks.audits.density.tail).
    `copies` are the exact copies among the observations, which are held out together. `planted` says what is planted in
    the data that the models are asked about, such as inverted10; empty for nothing.
    """

    planned: int = 0
    smallest: float = 1.0
    published: str = ""
    privacy: Privacy | None = None
    together: bool = True
    planted: str = ""
    copies: CopyCount = CopyCount()
