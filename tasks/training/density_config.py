"""The config of one training of a density model: its images, what it leaves out, and how the model is evaluated.

A fold that it leaves out is one of a random partition of the rows: of ours, or of one that the released code drew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from tasks.contract.ranges import AtLeast, Ranged, Share
from tasks.datasets.copies import first_copies
from tasks.datasets.dataset import Dataset
from tasks.models.catalog import DensityModel
from tasks.models.custom import is_own
from tasks.numerics import seeds
from tasks.training.chains import recorded_conflicts
from tasks.training.recipe import Count, Privacy, Rate, Recipe

if TYPE_CHECKING:
    from tasks.datasets.images import Images


def fold_of(seed: int, rows: int, folds: int) -> NDArray[np.int32]:
    """The fold of every row, (rows,), each in [0, folds): the partition of this seed.

    Every partition into folds of rows / folds, to within one, is equally likely. ValueError for more folds than rows.
    """
    if not 1 <= folds <= rows:
        raise ValueError(f"folds is {folds}; it must be from 1 to the number of rows, {rows}")
    fold = np.empty(rows, dtype=np.int32)
    fold[seeds.generator(seed, "partition").permutation(rows)] = np.arange(rows) % folds
    return fold


RELEASED_SEED = 42  # of every published result
REPETITIONS = FOLDS = 10
SHUFFLE_SEEDS = 10_000  # of the shuffles

LOW = 2**32 - 1
# Of each word: its first shift, the shift back, the bits that are kept of its lower 32, and their shift; and its factor
# of the seed plus one.
WORDS = (
    (6, 13, 0xFFFFFFFE, 18, 2),
    (2, 27, 0xFFFFFFF8, 2, 8),
    (13, 21, 0xFFFFFFF0, 7, 16),
    (3, 12, 0xFFFFFF80, 13, 128),
)


def sync_rng_numbers(seed: int) -> Iterator[int]:
    """The numbers that the generator of this seed draws, each in [0, 2^32); the seed is in [0, 2^32 - 1).

    It is L'Ecuyer's LFSR113 in the form of the package SyncRNG (1.3.1 to 1.3.4, which draw alike): its four words
    are of 64 bits and keep what is shifted out of the lower 32, so that it draws other numbers than the published
    generator.
    L'Ecuyer 1999, "Tables of maximally equidistributed combined LFSR generators".
    """
    words = [factor * (seed + 1) for *_, factor in WORDS]
    while True:
        drawn = 0
        for place, (up, down, kept, shift, _) in enumerate(WORDS):
            word = words[place]
            # None of the shifts reaches bit 64.
            word = ((word & kept) << shift) ^ (((word << up) ^ word) >> down)
            words[place] = word
            drawn ^= word
        yield drawn & LOW


def number_below(count: int, drawn: Iterator[int]) -> int:
    """A number in [0, count), each equally likely: the first that is no part of an incomplete round of `count`."""
    rounds = 2**32 - 2**32 % count
    return next(number for number in drawn if number < rounds) % count


def shuffle_rows(rows: int, seed: int) -> list[int]:
    """0 to rows - 1, shuffled by the generator of this seed."""
    drawn, order = sync_rng_numbers(seed), list(range(rows))
    for last in range(rows - 1, 0, -1):
        other = number_below(last + 1, drawn)
        order[last], order[other] = order[other], order[last]
    return order


@lru_cache(maxsize=REPETITIONS)  # of 60,000 rows it takes a tenth of a second, and every fold's training asks
def released_fold_of(repetition: int, rows: int, folds: int = FOLDS, seed: int = RELEASED_SEED) -> NDArray[np.int32]:
    """The fold of every row, (rows,), each in [0, folds), in the repetition of this number, from 0. Read-only.

    These are the partitions that the released code of "On memorization in probabilistic deep generative models" draws.
    One generator, of seed 42, gives a number for each repetition; modulo 10,000 it is the seed of another generator,
    which shuffles the rows (Fisher & Yates, from the last place down). The folds are consecutive runs of the shuffled
    rows, and the first rows % folds of them have one row more than the others.

    ValueError for more folds than rows, or a repetition below 0. Van den Burg & Williams 2021,
    github.com/alan-turing-institute/memorization (scripts/seed_generator.py, dataset.py and Makefile: ten repetitions,
    ten folds).
    """
    if not 1 <= folds <= rows:
        raise ValueError(f"folds is {folds}; it must be from 1 to the number of rows, {rows}")
    if repetition < 0:
        raise ValueError(f"repetition is {repetition}; it must be at least 0")
    order = shuffle_rows(rows, next(islice(sync_rng_numbers(seed), repetition, None)) % SHUFFLE_SEEDS)
    size, longer = divmod(rows, folds)
    fold = np.empty(rows, np.int32)
    fold[order] = np.repeat(np.arange(folds), [size + (number < longer) for number in range(folds)])
    fold.flags.writeable = False
    return fold


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
    width: float = 1.0
    joins_copies: bool = False
    """Whether exact copies are held out together."""

    def conflicts(self) -> Iterator[str]:
        self.model.check(self.width)
        _ = self.recipe  # its ranges are checked on construction
        if self.privacy is not None and self.model.name != "vae":
            # Batch norm shares images within a minibatch, and of one's own model nothing is known.
            yield f"privacy is given and model is {self.model.name}; it must be vae, whose rows never mix"
        if self.outliers and is_own(self.model.name):
            yield f"outlier_share is {self.outliers}; it must be 0 for a model of your own, which may hold its own"
        yield from recorded_conflicts(self.recorded, self.epochs, first=1)

    @property
    def recipe(self) -> Recipe:
        """How it is trained; ValueError where that is impossible. Epsilon is torch's own, which the paper kept."""
        return Recipe(self.epochs, self.batch, self.learning_rate, epsilon=1e-8)


@dataclass(frozen=True)
class RefinedTraining(DensityTraining):
    """The same, with the encoder's codes fitted to each observation by `refine` steps wherever log p is estimated."""

    refine: Annotated[int, AtLeast(1)] = 1

    def conflicts(self) -> Iterator[str]:
        yield from super().conflicts()
        if is_own(self.model.name):
            yield f"refinement_steps is {self.refine}; it must be 0 for a model of your own, which has no codes of ours"


def examples(config: DensityTraining, images: Images) -> int:
    """The number of images to train on or to hold out; ValueError where the split has fewer."""
    count = config.examples or len(images.train_images)
    if count > len(images.train_images):
        raise ValueError(f"examples is {count}; {config.data.name} has {len(images.train_images)} to train on")
    return count


def trained_on(config: DensityTraining, count: int, copies: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """The rows, of the first `count`, that are not held out.

    With `copies`, the first copy of each row, exact copies are held out together.
    """
    match config.held_out:
        case Fold() as fold:
            folds = fold.fold_indices(count)
            return np.flatnonzero((folds if copies is None else folds[copies]) != fold.number)
        case Row(row):
            if row >= count:
                raise ValueError(f"row {row} is held out; the rows are 0 to {count - 1}")
            if count == 1:
                raise ValueError("the one row there is is held out; examples must be at least 2")
            if copies is not None:
                return np.flatnonzero(copies != copies[row])
            return np.delete(np.arange(count), row)
    return np.arange(count)


def joined_copies(config: DensityTraining, images: Images) -> NDArray[np.int64] | None:
    """The first exact copy of each row that may be trained on; None if copies are not held out together."""
    return first_copies(images)[: examples(config, images)] if config.joins_copies else None
