"""Configuration of one density-model training: its images, the held-out rows and the evaluation.

A held-out fold belongs to a random partition of the rows, drawn either by Engram or by the released code.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from tasks.contract.job import ADDED_LATER
from tasks.contract.ranges import AtLeast, Ranged, Share
from tasks.datasets.copies import first_copies
from tasks.datasets.dataset import Dataset
from tasks.models.catalog import DensityModel
from tasks.models.custom import is_own
from tasks.numerics import seeds
from tasks.numerics.precision import DecoderPrecision, Precision
from tasks.training.chains import recorded_conflicts
from tasks.training.recipe import Count, Privacy, Rate, Recipe, check_precision

if TYPE_CHECKING:
    from tasks.datasets.images import PictureSet


REPETITIONS = FOLDS = 10


@lru_cache(maxsize=REPETITIONS)  # takes milliseconds for 60,000 rows and is needed for every fold
def fold_of(seed: int, rows: int, folds: int) -> NDArray[np.int32]:
    """Return the read-only fold of every row, (rows,), each in [0, folds), in the partition with this seed.

    All partitions into folds of rows / folds rows, to within one, are equally likely. Raises ValueError if there are
    more folds than rows.
    """
    if not 1 <= folds <= rows:
        raise ValueError(f"folds is {folds}; it must be from 1 to the number of rows, {rows}")
    fold = np.empty(rows, dtype=np.int32)
    fold[seeds.generator(seed, "partition").permutation(rows)] = np.arange(rows) % folds
    fold.flags.writeable = False
    return fold


RELEASED_SEED = 42  # used for every published result
SHUFFLE_SEEDS = 10_000  # number of shuffle seeds

LOW = 2**32 - 1
# For each word: its first shift, the shift back, which of its lower 32 bits are kept, their shift, and the factor of
# the seed plus one.
WORDS = (
    (6, 13, 0xFFFFFFFE, 18, 2),
    (2, 27, 0xFFFFFFF8, 2, 8),
    (13, 21, 0xFFFFFFF0, 7, 16),
    (3, 12, 0xFFFFFF80, 13, 128),
)


def sync_rng_numbers(seed: int) -> Iterator[int]:
    """Yield the numbers of the generator with this seed, each in [0, 2^32). The seed is in [0, 2^32 - 1).

    This is L'Ecuyer's LFSR113 as implemented by the package SyncRNG (1.3.1 to 1.3.4, which are equivalent). Its four
    words have 64 bits and keep the bits shifted out of the lower 32, so it differs from the published generator.
    L'Ecuyer 1999, "Tables of maximally equidistributed combined LFSR generators".
    """
    words = [factor * (seed + 1) for *_, factor in WORDS]
    while True:
        number = 0
        for index, (up, down, mask, shift, _) in enumerate(WORDS):
            word = words[index]
            # No shift reaches bit 64.
            word = ((word & mask) << shift) ^ (((word << up) ^ word) >> down)
            words[index] = word
            number ^= word
        yield number & LOW


def number_below(count: int, numbers: Iterator[int]) -> int:
    """Return a uniform number in [0, count): the first that does not fall into the incomplete last round of `count`."""
    rounds = 2**32 - 2**32 % count
    return next(number for number in numbers if number < rounds) % count


def shuffle_rows(rows: int, seed: int) -> list[int]:
    """Return 0 to rows - 1, shuffled by the generator with this seed."""
    numbers = sync_rng_numbers(seed)
    order = list(range(rows))
    for last in range(rows - 1, 0, -1):
        partner = number_below(last + 1, numbers)
        order[last], order[partner] = order[partner], order[last]
    return order


@lru_cache(maxsize=REPETITIONS)  # takes a tenth of a second for 60,000 rows and is needed for every fold
def released_fold_of(repetition: int, rows: int, folds: int = FOLDS, seed: int = RELEASED_SEED) -> NDArray[np.int32]:
    """Return the read-only fold of every row, (rows,), each in [0, folds), in a repetition, counted from 0.

    These are the partitions of the released code of "On memorization in probabilistic deep generative models". A
    generator with seed 42 yields a number for each repetition. This number modulo 10,000 is the seed of another
    generator, which shuffles the rows (Fisher & Yates, from the last position down). The folds are consecutive ranges
    of the shuffled rows, and the first rows % folds folds have one extra row.

    Raises ValueError for more folds than rows, or for a repetition below 0. Van den Burg & Williams 2021,
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

    partition: Annotated[int, AtLeast(0)]  # seed of the partition
    folds: Annotated[int, AtLeast(2)]
    number: int

    def conflicts(self) -> Iterator[str]:
        if not 0 <= self.number < self.folds:
            yield f"number is {self.number}; it must be from 0 to {self.folds - 1}"

    def fold_indices(self, rows: int) -> NDArray[np.int32]:
        """Return the fold of every row in this partition, (rows,)."""
        return fold_of(self.partition, rows, self.folds)


@dataclass(frozen=True)
class ReleasedFold(Fold):
    """A fold of a partition from the paper's released code. `partition` is its number there, counted from 0."""

    generator: int = RELEASED_SEED

    def fold_indices(self, rows: int) -> NDArray[np.int32]:
        return released_fold_of(self.partition, rows, self.folds, self.generator)


@dataclass(frozen=True)
class Row(Ranged):
    """One observation."""

    row: Annotated[int, AtLeast(0)]


class RowDesign(Protocol):
    """The rows of a training: the first `examples` training images (0: all) except those `held_out`."""

    @property
    def data(self) -> Dataset: ...

    @property
    def held_out(self) -> Fold | ReleasedFold | Row | None: ...

    @property
    def examples(self) -> int: ...

    @property
    def joins_copies(self) -> bool: ...


@dataclass(frozen=True)
class DensityTraining(Ranged):
    """One training of a density model, and its evaluation.

    The model is trained on the first `examples` training images (0: all) except those `held_out`. The observations are
    these training images. If the test split is `asked`, they are all test images instead, which no model is trained on,
    while the fold still refers to training images. log p of every observation is estimated with `samples` codes after
    the epochs in `recorded`. The inputs for an observation are drawn from `view`, and are shared by all models unless
    drawn `afresh` for each. After training, `drawn` samples are drawn. `outliers` is the share of a broad component for
    atypical images (0: none), and `width` the factor on the units of the model's hidden layers.
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
    # The recipe's text, which identifies states of chains, contains the precision.
    precision: Precision = field(default="float32", repr=False, metadata={ADDED_LATER: True})
    log_p_precision: DecoderPrecision = field(default="float32", repr=False, metadata={ADDED_LATER: True})
    """Number format of the decoder's products in estimates of log p. States of chains precede all estimates."""

    def conflicts(self) -> Iterator[str]:
        self.model.check(self.width)
        _ = self.recipe  # its ranges are checked on construction
        if self.privacy is not None and self.model.name != "vae":
            # Batch norm mixes the images of a minibatch, and a user's model may do the same.
            yield f"privacy is set and model is {self.model.name}; it must be vae, whose rows never mix"
        if self.privacy is not None:
            check_precision(self.precision)
        if self.outliers and is_own(self.model.name):
            yield f"outlier_share is {self.outliers}; it must be 0 for your own model, which may have such a component"
        yield from recorded_conflicts(self.recorded, self.epochs, first=1)

    @property
    def recipe(self) -> Recipe:
        """The training recipe, with torch's epsilon as in the paper. Raises ValueError if it is impossible."""
        return Recipe(self.epochs, self.batch, self.learning_rate, epsilon=1e-8, precision=self.precision)


@dataclass(frozen=True)
class RefinedTraining(DensityTraining):
    """A training whose encoder codes are fitted to each observation in `refine` steps to estimate log p."""

    refine: Annotated[int, AtLeast(1)] = 1

    def conflicts(self) -> Iterator[str]:
        yield from super().conflicts()
        if is_own(self.model.name):
            yield f"refinement_steps is {self.refine}; it must be 0 for your own model, which has no built-in codes"


def examples(config: RowDesign, images: PictureSet) -> int:
    """Return the number of images that are trained on or held out. Raises ValueError if the split has fewer."""
    count = config.examples or len(images.train)
    if count > len(images.train):
        raise ValueError(f"examples is {count}; {config.data.name} has {len(images.train)} training images")
    return count


def trained_on(config: RowDesign, count: int, copies: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Return the rows among the first `count` that are not held out.

    If `copies` gives the first copy of each row, exact copies are held out together.
    """
    match config.held_out:
        case Fold() as fold:
            folds = fold.fold_indices(count)
            return np.flatnonzero((folds if copies is None else folds[copies]) != fold.number)
        case Row(row):
            if row >= count:
                raise ValueError(f"row {row} is held out; the rows are 0 to {count - 1}")
            if count == 1:
                raise ValueError("the only row is held out; examples must be at least 2")
            if copies is not None:
                return np.flatnonzero(copies != copies[row])
            return np.delete(np.arange(count), row)
    return np.arange(count)


def joined_copies(config: RowDesign, images: PictureSet) -> NDArray[np.int64] | None:
    """Return the first exact copy of each possible training row, or None if copies are not held out together."""
    if config.joins_copies:
        return first_copies(images)[: examples(config, images)]
    return None
