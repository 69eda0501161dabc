"""Configuration of the audit, one type per question, and the facts that its summary needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, TypeVar

from tasks.contract.job import ADDED_LATER, ANSWER_ONLY
from tasks.contract.ranges import AtLeast, Finite, Ranged, Share
from tasks.datasets.copies import CopyCount
from tasks.datasets.dataset import Dataset
from tasks.datasets.options import split as split_name
from tasks.datasets.planting import Planting
from tasks.models.catalog import DensityModel
from tasks.models.custom import is_own
from tasks.numerics.precision import DecoderPrecision, Precision
from tasks.programs.config import Program, Returns, StatedPrivacy, row_conflicts
from tasks.training.density_config import FOLDS, REPETITIONS, Split
from tasks.training.privacy_config import DifferentialPrivacy, LinkedTraining, guarantee_of, link_of
from tasks.training.recipe import Count, Privacy, Rate, check_precision

RETURNS: tuple[Returns, ...] = ("log_likelihood",)  # of a user's program
RELEASED = ("mnist", "cifar10", "celeba")  # data sets for which the paper's code draws partitions


@dataclass(frozen=True)
class KFold(Ranged):
    """Each model is trained without one fold of the data, and one more model on all data."""

    tag: ClassVar[str] = "kfold"

    folds: Annotated[int, AtLeast(2)] = 10
    """Folds of a partition (K), each with a model trained without it."""
    evaluation_split: Split = "train"
    """Ours: split of the evaluated images; with test images, which no model was trained on, the run is a control."""


@dataclass(frozen=True)
class PublishedFolds(Ranged):
    """Each model is trained without one fold of the partitions that the paper's released code draws."""

    tag: ClassVar[str] = "released"

    folds: ClassVar[int] = FOLDS
    evaluation_split: ClassVar[Split] = "train"


@dataclass(frozen=True)
class SingleRows(Ranged):
    """Some models are trained without one image, the others on all images."""

    tag: ClassVar[str] = "loo"

    held_out_rows: Annotated[int, AtLeast(0)] = 0
    """Number of images that are held out one by one, drawn at random; 0: all."""


@dataclass(frozen=True)
class ScoreMeasure:
    """The score of each image, which is always computed."""

    tag: ClassVar[str] = "scores"


@dataclass(frozen=True)
class OutlierMeasure(Ranged):
    """The share of outliers among highly memorised images."""

    tag: ClassVar[str] = "outliers"

    outlier_bin: Annotated[float, Finite()] = 10.0
    """Width of the bins of log p, in nats."""


@dataclass(frozen=True)
class NeighbourMeasure(Ranged):
    """The distance of training images to samples of the model, relative to that of other images."""

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

    The defaults are the published setting for MNIST.
    """

    tag: ClassVar[str] = "density"

    model: DensityModel = DensityModel("vae")
    """Density model: a name in `tasks.models.catalog`, or your own as package.module:factory."""
    width: Annotated[float, Finite()] = 1.0
    """Ours: factor for the number of hidden units (vae only), rounded; the size of the code does not change."""
    epochs: Count = 100
    """Epochs of training."""
    evaluation_interval: Annotated[int, AtLeast(0)] = 5
    """Epochs between estimates of log p; 0: only after the last epoch."""
    batch: Count = 64
    """Images per optimiser step."""
    learning_rate: Rate = 1e-3
    """Adam learning rate."""
    outlier_share: Annotated[float, Share(one=False)] = 0.0
    """Share of an outlier component in the likelihood (section 5); 0: none."""
    privacy: LinkedTraining | DifferentialPrivacy = LinkedTraining()
    """Differential privacy (section 5), or the division of non-private training into links."""
    precision: Precision = field(default="float32", metadata={ADDED_LATER: True})
    """Ours: number format of the products in training; weights are always float32."""

    def conflicts(self) -> Iterator[str]:
        self.model.check(self.width)
        if self.guarantee is not None:
            check_precision(self.precision)
        yield from ()

    @property
    def guarantee(self) -> Privacy | None:
        """Differential privacy guarantee, or None if training is not private."""
        return guarantee_of(self.privacy)

    @property
    def link(self) -> int:
        """Epochs per link of a training. 0 for one job."""
        return link_of(self.privacy)

    @property
    def recorded(self) -> tuple[int, ...]:
        """Epochs after which log p is estimated, including the last."""
        if self.evaluation_interval:
            return (*range(self.evaluation_interval, self.epochs, self.evaluation_interval), self.epochs)
        return (self.epochs,)


@dataclass(frozen=True)
class Memorization(Ranged):
    """Which images does a density model memorise? Models are trained here, each without part of the data.

    The defaults are the published setting for MNIST.
    """

    tag: ClassVar[str] = "memorization"

    data: Dataset = Dataset("mnist")
    """Images."""
    training: ModelTraining | Program = ModelTraining()
    """How each model is trained: a density model by Engram, or your own program, which returns a log-likelihood of each
    record."""
    estimator: KFold | PublishedFolds | SingleRows = KFold()
    """Data held out of each model: a fold (kfold), one of the paper's folds (released), or one image (loo)."""
    repetitions: Annotated[int, AtLeast(1)] = 10
    """Number of random partitions into folds (L); for loo, number of models trained on all data, and of models trained
    without each held-out image."""
    measures: tuple[Measured, ...] = (ScoreMeasure(),)
    """Measures; scores are always computed. Without samples of the model or without images, as with your own program,
    measures that need them are left out."""
    examples: Annotated[int, AtLeast(0)] = 0
    """Ours: number of training images, from the first; 0: all."""
    samples: Annotated[int, AtLeast(1)] = 256
    """Number of codes per estimate of log p, for density models by Engram."""
    log_p_precision: DecoderPrecision = field(default="float32", metadata={ADDED_LATER: True})
    """Ours: number format of the decoder's products in estimates of log p, for density models by Engram."""
    resample_pixels: bool = False
    """Whether binarised or dequantised pixels are drawn again for each model, as published; false: once for all models.
    """
    refinement_steps: Annotated[int, AtLeast(0)] = 0
    """Ours: number of optimiser steps that fit the codes to each image before log p is estimated; 0: none."""
    negligible: Annotated[float, Finite(zero=True)] = 0.1
    """Ours: largest effect that counts as negligible, on an image or as generalisation gap, in nats."""
    detectable: Annotated[float, Finite()] = field(default=10.0, metadata={ANSWER_ONLY: True})
    """Ours: largest detection limit for a single image, in nats, at which the answer can be not detected."""
    permutations: Annotated[int, AtLeast(1)] = 99_999
    """Ours: number of permutations for an image's p-value; very small p-values use all permutations. With fewer than
    9,999, p-values are not counted together."""
    draws: Annotated[int, AtLeast(1)] = 64
    """Ours: number of draws to average the matched-count score over."""
    seed: Annotated[int, AtLeast(0)] = 0
    """Ours: seed of all random numbers."""

    def conflicts(self) -> Iterator[str]:
        if not self.detectable > self.negligible:
            yield f"detectable is {self.detectable}; it must be above negligible, {self.negligible}"
        if isinstance(self.training, Program):
            yield from row_conflicts(self.training, RETURNS, "a log-likelihood in nats")
            if self.is_null:
                yield (
                    f"evaluation_split is test and training is {self.training.tag}; it must be train, since a program "
                    "scores the rows of the training images"
                )
        if self.log_p_precision != "float32" and not self.has_decoder:
            yield (
                f"log_p_precision is {self.log_p_precision}; it must be float32 for your own model or program, whose "
                "log p has no built-in decoder"
            )
        if isinstance(self.estimator, SingleRows) and self.measure(NeighbourMeasure) is not None:
            yield "measures has neighbours; estimator must be kfold for it, which trains a model to draw from"
        if self.has_released_partitions:
            yield from self._released_conflicts()

    def _released_conflicts(self) -> Iterator[str]:
        """Yield the settings for which the paper's released code has no partitions."""
        if self.data.name not in RELEASED or self.examples:
            if self.examples:
                examples = f"the first {self.examples} images of "
            else:
                examples = ""
            yield (
                f"estimator is released and there is no such partition of {examples}{self.data.name}; data must be one "
                f"of {', '.join(RELEASED)} and examples 0, all of them"
            )
        if self.repetitions > REPETITIONS:
            yield f"repetitions is {self.repetitions}; it must be at most {REPETITIONS}, the released partitions"

    def measure(self, kind: type[M]) -> M | None:
        """Return the requested measure of this kind. None if it is not requested."""
        return next((measure for measure in self.measures if isinstance(measure, kind)), None)

    @property
    def has_decoder(self) -> bool:
        """Whether log p is estimated with the decoder of a built-in model."""
        return isinstance(self.training, ModelTraining) and not is_own(self.training.model.name)

    @property
    def recorded(self) -> tuple[int, ...]:
        """Epochs after which log p is estimated, including the last. A program counts as one epoch."""
        return (1,) if isinstance(self.training, Program) else self.training.recorded

    @property
    def guarantee(self) -> Privacy | None:
        """The privacy guarantee of the training, which a program only states, or None without one."""
        guarantee = self.training.guarantee
        if isinstance(guarantee, StatedPrivacy):
            return Privacy(guarantee.epsilon, guarantee.delta)
        return guarantee

    @property
    def leaves_out_rows(self) -> bool:
        """Whether models hold out single images."""
        return isinstance(self.estimator, SingleRows)

    @property
    def has_released_partitions(self) -> bool:
        return isinstance(self.estimator, PublishedFolds)

    @property
    def evaluation_split(self) -> Split:
        """The data split that models are evaluated on."""
        if isinstance(self.estimator, SingleRows):
            return "train"
        return self.estimator.evaluation_split

    @property
    def models(self) -> int:
        """Number of models per repetition (K): one per fold, or two for loo (with and without the image)."""
        if isinstance(self.estimator, SingleRows):
            return 2
        return self.estimator.folds

    @property
    def is_null(self) -> bool:
        """Whether models are evaluated on images that none was trained on."""
        return self.evaluation_split == "test"

    @property
    def planting(self) -> Planting | None:
        """The kind of images planted in the evaluated data, or None if there are none."""
        if self.evaluation_split == "train":
            return split_name(self.data.name)[1].planting
        return None


@dataclass(frozen=True)
class NearDuplicates(Ranged):
    """Which training images are closest to one another? No model is trained."""

    tag: ClassVar[str] = "duplicates"

    data: Dataset = Dataset("cifar10")
    """Images."""
    examples: Annotated[int, AtLeast(0)] = 0
    """Number of training images, from the first; 0: all."""


@dataclass(frozen=True)
class KernelDensity(Ranged):
    """A one-dimensional density whose scores are known exactly, as an illustration."""

    tag: ClassVar[str] = "kernel"

    seed: Annotated[int, AtLeast(0)] = 0
    """Seed of all random numbers."""


Question = Memorization | NearDuplicates | KernelDensity


@dataclass(frozen=True)
class Density(Ranged):
    """Configuration: the question, its data and its models."""

    question: Question = Memorization()
    """Memorisation by trained models, near duplicates in the data, or a density that is known exactly."""


@dataclass(frozen=True)
class About:
    """Configuration of the summary: facts about a run that its tables do not contain.

    `planned` is the number of models planned per image and `smallest` the smallest p-value that an image can have.
    `published` names the cell of the paper whose settings the run repeats (empty if there is none). `privacy` is the
    guarantee of models that hold out a single image. `together` states whether p-values may be counted together
    (tasks.audits.density.tail). `planted` names the images planted in the evaluated data, such as inverted10 (empty if
    there are none). `copies` counts the exact copies among the images, which are held out together.
    """

    planned: int = 0
    smallest: float = 1.0
    published: str = ""
    privacy: Privacy | None = None
    together: bool = True
    planted: str = ""
    copies: CopyCount = CopyCount()
