"""The config of one training of a density model: its images, what it leaves out, and how the model is evaluated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from tasks.contract.job import ADDED_LATER, text_of
from tasks.contract.ranges import AtLeast, Ranged, Share
from tasks.datasets.dataset import Dataset
from tasks.datasets.partitions import RELEASED_SEED, fold_of, released_fold_of
from tasks.models.catalog import DensityModel
from tasks.models.custom import is_own
from tasks.training.chains import recorded_conflicts
from tasks.training.recipe import Count, Privacy, Rate, Recipe

if TYPE_CHECKING:
    from tasks.datasets.images import Images

Split = Literal["train", "test"]


@dataclass(frozen=True)
class Fold(Ranged):
    """A fold of a random partition of the observations."""

    partition: Annotated[int, AtLeast(0)]  # its seed
    folds: Annotated[int, AtLeast(2)]
    number: int

    def conflicts(self) -> Iterator[str]:
        if not 0 <= self.number < self.folds:
            yield f"number is {self.number}; it must be from 0 to {self.folds - 1}"

    def fold_indices(self, rows: int) -> NDArray[np.int32]:
        """The fold of every row in this partition, (rows,)."""
        return fold_of(self.partition, rows, self.folds)


@dataclass(frozen=True)
class ReleasedFold(Fold):
    """A fold of a partition that the paper's released code draws; `partition` is its number there, from 0."""

    generator: int = RELEASED_SEED

    def fold_indices(self, rows: int) -> NDArray[np.int32]:
        return released_fold_of(self.partition, rows, self.folds, self.generator)


@dataclass(frozen=True)
class Row(Ranged):
    """One observation."""

    row: Annotated[int, AtLeast(0)]


@dataclass(frozen=True)
class DensityTraining(Ranged):
    """One training of a density model, and how the model is evaluated.

    It is trained on the first `examples` training images (0: all) but for those `held_out`. The observations are these
    training images; with the test split `asked` they are all test images, of which none is trained on, and the fold is
    one of the training images all the same. log p of every observation is estimated with `samples` codes after the
    epochs `recorded`. What models see of an observation is drawn from `view`, the same for all, or `afresh` for each.
    At the end `drawn` images are drawn. `outliers` is the share of a broad component for what is atypical (0: none),
    and `width` the factor on the units of the model's hidden layers.
    """

    data: Dataset
    model: DensityModel = DensityModel("vae")
    seed: Annotated[int, AtLeast(0)] = 0
    held_out: Fold | ReleasedFold | Row | None = None
    asked: Split = "train"
    examples: Annotated[int, AtLeast(0)] = 0
    epochs: Count = 100
    recorded: tuple[int, ...] = (100,)
    batch: Count = 64
    learning_rate: Rate = 1e-3
    samples: Annotated[int, AtLeast(1)] = 256
    view: Annotated[int, AtLeast(0)] = 0
    afresh: bool = False
    drawn: Annotated[int, AtLeast(0)] = 0
    outliers: Annotated[float, Share(one=False)] = 0.0
    privacy: Privacy | None = None
    width: float = field(default=1.0, metadata={ADDED_LATER: True})

    def __repr__(self) -> str:
        return text_of(self)  # which checkpoints know their training by

    def conflicts(self) -> Iterator[str]:
        self.model.check(self.width)
        _ = self.recipe  # its ranges are checked on construction
        if self.privacy is not None and self.model.name != "vae":
            # Batch norm shares images within a minibatch, and of one's own model nothing is known.
            yield f"privacy is given and model is {self.model.name}; it must be vae, whose rows never mix"
        if self.outliers and is_own(self.model.name):
            yield f"outliers is {self.outliers}; it must be 0 for a model of your own, which may hold its own"
        yield from recorded_conflicts(self.recorded, self.epochs, first=1)

    @property
    def recipe(self) -> Recipe:
        """How it is trained; ValueError where that is impossible. Epsilon is torch's own, which the paper kept."""
        return Recipe(self.epochs, self.batch, self.learning_rate, epsilon=1e-8)


@dataclass(frozen=True, repr=False)
class RefinedTraining(DensityTraining):
    """The same, with the encoder's codes fitted to each observation by `refine` steps wherever log p is estimated."""

    refine: Annotated[int, AtLeast(1)] = 1

    def conflicts(self) -> Iterator[str]:
        yield from super().conflicts()
        if is_own(self.model.name):
            yield f"refine is {self.refine}; it must be 0 for a model of your own, which has no codes of ours"


def examples(config: DensityTraining, images: Images) -> int:
    """The number of images to train on or to hold out; ValueError where the split has fewer."""
    count = config.examples or len(images.train_images)
    if count > len(images.train_images):
        raise ValueError(f"examples is {count}; {config.data.name} has {len(images.train_images)} to train on")
    return count


def trained_on(config: DensityTraining, count: int) -> NDArray[np.int64]:
    """The rows, of the first `count`, that are not held out."""
    match config.held_out:
        case Fold() as fold:
            return np.flatnonzero(fold.fold_indices(count) != fold.number)
        case Row(row):
            if row >= count:
                raise ValueError(f"row {row} is held out; the rows are 0 to {count - 1}")
            if count == 1:
                raise ValueError("the one row there is is held out; examples must be at least 2")
            return np.delete(np.arange(count), row)
    return np.arange(count)
