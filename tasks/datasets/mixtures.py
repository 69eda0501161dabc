"""Training sets composed of shares of several data sets, and the images that two data sets have in common.

Shares of one part drawn with the same seed are nested: a tenth is a subset of every half. Images that belong together,
such as those of one patient, and exact copies are drawn as one group (`tasks.datasets.copies`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from tasks.contract import ranges
from tasks.contract.ranges import AtLeast, Ranged
from tasks.datasets.copies import (
    Digests,
    contents,
    distinct_numbers,
    first_copies,
    groups_of,
    is_outline,
    train_contents,
)
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.features import Family, Glyph, burn, draw_member
from tasks.datasets.images import PictureSet, Pixels
from tasks.datasets.picture_rows import Altered, Replaced, is_in_memory, whole_split
from tasks.numerics import seeds

Rows = NDArray[np.int64]
CanaryImages = Literal["own", "noise", "glyph"]


@dataclass(frozen=True)
class Part(Ranged):
    """A range of a data set's training images."""

    data: Dataset
    """The data set."""
    first: Annotated[int, AtLeast(0)] = 0
    """The first row."""
    examples: Annotated[int, AtLeast(0)] = 0
    """Number of rows; 0 selects all rows that follow."""
    without_copies: bool = False
    """Whether to leave out exact copies of rows before the first."""

    def rows(self, images: PictureSet) -> Rows:
        """Return the part's rows, ascending. Raises DatasetError if the data set has fewer rows."""
        count = len(images.train)
        end = self.first + self.examples if self.examples else count
        if self.first >= count or end > count:
            if self.examples:
                requested_rows = f"{self.first} to {end - 1}"
            else:
                requested_rows = f"{self.first} and later"
            raise DatasetError(f"{self.data.name} has the training images 0 to {count - 1}, but not {requested_rows}")
        rows = np.arange(self.first, end)
        if self.without_copies:
            return rows[first_copies(images)[rows] >= self.first]
        return rows

    def plainly(self, images: PictureSet) -> Part:
        """Return the same rows in the shortest form, so that equal parts have equal keys."""
        if self.first + self.examples == len(images.train):
            return replace(self, examples=0)
        return self


@dataclass(frozen=True)
class Remainder(Ranged):
    """A part minus a random share of its groups, in (0, 1), which is held out from all training."""

    part: Part
    held_back: Annotated[float, ranges.Share(zero=False, one=False)]
    seed: Annotated[int, AtLeast(0)] = 0

    @property
    def data(self) -> Dataset:
        return self.part.data

    def rows(self, images: PictureSet) -> Rows:
        """Return the remaining rows, ascending. Raises DatasetError if the part has only one group."""
        return self._split(images)[0]

    def held_rows(self, images: PictureSet) -> Rows:
        """Return the held-out rows, ascending: round(held_back x groups) groups, at least one but not all."""
        return self._split(images)[1]

    def _split(self, images: PictureSet) -> tuple[Rows, Rows]:
        rows = self.part.rows(images)
        groups = groups_of(images, rows)
        distinct_groups = distinct_numbers(groups)
        if len(distinct_groups) < 2:
            raise DatasetError(
                f"{self.data.name} has one image, or one group of images, from row {self.part.first}; holding some "
                "out requires at least two"
            )
        count = min(max(1, round(self.held_back * len(distinct_groups))), len(distinct_groups) - 1)
        is_held_back = np.isin(groups, seeds.generator(self.seed, "held back").permutation(distinct_groups)[:count])
        return rows[~is_held_back], rows[is_held_back]


@dataclass(frozen=True)
class Share(Ranged):
    """A random share of a part, in (0, 1]. A share of 1 has seed 0."""

    part: Part | Remainder
    share: Annotated[float, ranges.Share(zero=False)] = 1.0
    seed: int = 0

    def conflicts(self) -> Iterator[str]:
        if self.seed < 0 or (self.share == 1 and self.seed):
            yield f"seed is {self.seed}; it must be at least 0, and 0 for a whole part"

    def rows(self, images: PictureSet) -> Rows:
        """Return the drawn rows, ascending: all rows of round(share x groups) groups of the part, at least one."""
        rows = self.part.rows(images)
        if self.share == 1:
            return rows
        groups = groups_of(images, rows)
        distinct_groups = distinct_numbers(groups)
        count = max(1, round(self.share * len(distinct_groups)))
        drawn_groups = seeds.generator(self.seed, "share").permutation(distinct_groups)[:count]
        return rows[np.isin(groups, drawn_groups)]


@dataclass(frozen=True)
class CombinedShares(Ranged):
    """Shares of several parts of one data set."""

    shares: tuple[Share, ...]

    def conflicts(self) -> Iterator[str]:
        if not self.shares:
            yield "shares is empty; there must be at least one"
        if len({share.part.data for share in self.shares}) > 1:
            yield "shares have several data sets; row numbers refer to one"

    @property
    def part(self) -> Part | Remainder:
        """The part of the first share. All parts are of its data set."""
        return self.shares[0].part

    @property
    def data(self) -> Dataset:
        return self.part.data

    def rows(self, images: PictureSet) -> Rows:
        """Return the rows of all shares, ascending, each once."""
        return np.unique(np.concatenate([share.rows(images) for share in self.shares]))


@dataclass(frozen=True)
class BalancedHalf(Ranged):
    """The half of a part that model `number` of `models` is trained on. Half of the models are trained on each record.

    The models that are trained on a record are drawn uniformly from all halves of the set of models. Records form pairs
    with opposite halves, so that all models are trained on the same number of records. Models with the same seed belong
    to one design.
    """

    part: Part
    models: int
    number: int
    seed: int

    def conflicts(self) -> Iterator[str]:
        if self.models < 2 or self.models % 2:
            yield f"models is {self.models}; it must be an even number, at least 2"
        elif not 0 <= self.number < self.models:
            yield f"number is {self.number}; it must be from 0 to {self.models - 1}"

    def rows(self, images: PictureSet) -> Rows:
        """Return the rows of this half, ascending. Groups and exact copies are drawn as one record."""
        rows = self.part.rows(images)
        groups = groups_of(images, rows)
        distinct_groups = distinct_numbers(groups)
        member = draw_balanced_members(len(distinct_groups), self.models, self.seed)[self.number]
        return rows[np.isin(groups, distinct_groups[member])]


@dataclass(frozen=True)
class CoinHalf(Ranged):
    """The records of a part whose coin in pair `number` comes up heads, or all others (`is_complement`).

    The coins are fair and independent: one for each group of records in each pair. The coins of a pair do not depend on
    the number of pairs.
    """

    part: Part
    number: Annotated[int, AtLeast(0)]
    seed: int
    is_complement: bool = False

    def rows(self, images: PictureSet) -> Rows:
        """Return the rows of this half, ascending. Groups and exact copies have one coin."""
        rows = self.part.rows(images)
        distinct_groups, group = np.unique(groups_of(images, rows), return_inverse=True)
        is_heads = seeds.generator(self.seed, "coin half", self.number).random(len(distinct_groups)) < 0.5
        half: Rows = rows[is_heads[group] != self.is_complement]
        return half


@dataclass(frozen=True)
class CoinedCanaries(Ranged):
    """A part with canaries, each of which enters the training data of model `number` if a fair coin comes up heads.

    The canaries are drawn from the part once for all models with the same seed, and each model has its own independent
    coins. All models are trained on the other records. A mislabelled canary has a random wrong label, since a fixed
    shift of classes would be a rule that a model can learn. A canary's image is the image of its record, uniform noise,
    or the image of its record with a random glyph.
    """

    part: Part
    canaries: Annotated[int, AtLeast(1)]
    number: int
    seed: int
    mislabelled: bool = False
    canary_images: CanaryImages = "own"

    def canary_rows(self, images: PictureSet) -> Rows:
        """Return the rows of the canaries, ascending. Records with exact copies in the part cannot be canaries.

        Raises DatasetError if too few records remain.
        """
        rows = self.part.rows(images)
        first, sizes = np.unique(first_copies(images)[rows], return_counts=True)
        rows = rows[np.isin(first_copies(images)[rows], first[sizes == 1])]
        if self.canaries > len(rows):
            raise DatasetError(f"canaries is {self.canaries}; only {len(rows)} records have no exact copy")
        return np.sort(seeds.generator(self.seed, "canaries").permutation(rows)[: self.canaries])

    def is_inside(self) -> NDArray[np.bool_]:
        """Return whether each canary (canaries,) is in the training data."""
        return seeds.generator(self.seed, "coins", self.number).random(self.canaries) < 0.5

    def rows(self, images: PictureSet) -> Rows:
        """Return the rows that the model is trained on, ascending."""
        outside = self.canary_rows(images)[~self.is_inside()]
        return np.setdiff1d(self.part.rows(images), outside)

    def expected_count(self, images: PictureSet) -> int:
        """Return the expected number of training rows, which does not depend on the coins."""
        return len(self.part.rows(images)) - self.canaries // 2

    @property
    def is_altered(self) -> bool:
        """Return whether canaries differ from their records in label or image."""
        return self.mislabelled or self.canary_images != "own"

    def alter_canaries(self, images: PictureSet) -> PictureSet:
        """Return the images with the canaries' labels and images in place. Raises ValueError if no glyph fits."""
        rows = self.canary_rows(images)
        labels = images.train.labels
        if self.mislabelled:
            shifts = seeds.generator(self.seed, "wrong labels").integers(1, images.classes, self.canaries)
            labels = labels.copy()
            labels[rows] = (labels[rows] + shifts) % images.classes
        drawn = None
        if self.canary_images != "own":
            drawn = self.draw_images(images.train.pixels(rows))
        return Altered(images, Replaced(images.train, labels, rows, drawn))

    def draw_images(self, record_images: Pixels) -> Pixels:
        """Return the canaries' images (canaries, h, w, channels), derived from the images of their records."""
        if self.canary_images == "noise":
            return seeds.generator(self.seed, "noise").integers(0, 256, record_images.shape, dtype=np.uint8)
        glyphs = []
        for number in range(self.canaries):
            glyphs.append(
                draw_member(Glyph(), seeds.derive(self.seed, "glyph", number), Family(), record_images.shape[1:3])
            )
        return np.concatenate([burn(image[None], glyph) for image, glyph in zip(record_images, glyphs, strict=True)])


@lru_cache(maxsize=2)  # all models use the same masks
def draw_balanced_members(records: int, models: int, seed: int) -> NDArray[np.bool_]:
    """Return the read-only mask (models, records) of the records each model is trained on: see `BalancedHalf`."""
    stream = seeds.generator(seed, "balanced halves")
    balanced_half = np.arange(models) < models // 2
    pairs = stream.permuted(np.tile(balanced_half, ((records + 1) // 2, 1)), axis=1)  # (pairs, models)
    paired_members = np.stack([pairs, ~pairs], axis=1).reshape(-1, models)[:records]
    members = np.empty((records, models), dtype=bool)
    members[stream.permutation(records)] = paired_members
    members.setflags(write=False)
    return members.T


def overlap(first: PictureSet, first_rows: Rows, second: PictureSet, second_rows: Rows) -> list[tuple[int, int]]:
    """Return the images of `first` that are also in `second`: their rows, and the first matching row of `second`.

    Two images match if the content or origin of one equals the content or origin of the other, in shape and every
    pixel, or if their encoded bytes are equal and they have the same shape. The result follows the order of
    `first_rows`, with each row at most once.

    Image files that are decoded to a given shape (`folder:scans#64x64`) have no origin. They match if both data sets
    contain them in the same shape, which is the shape that models are trained on. Images that are not in memory match
    by their encoded bytes alone. Outlines have no images to compare.
    """
    if is_outline(first) or is_outline(second):
        return []
    row_of: dict[bytes, int] = {}
    for row, known_as in zip(second_rows.tolist(), identities(second, second_rows), strict=True):
        for digest in known_as:
            row_of.setdefault(digest, row)
    shared = []
    for row, known_as in zip(first_rows.tolist(), identities(first, first_rows), strict=True):
        matching_rows = [row_of[digest] for digest in known_as if digest in row_of]
        if matching_rows:
            shared.append((row, min(matching_rows)))
    return shared


def identities(images: PictureSet, rows: Rows) -> list[tuple[bytes, ...]]:
    """Return the digests that identify each training image: of its content, its origin and its bytes, if known."""
    columns = []
    if is_in_memory(images.train):
        columns.append(train_contents(images, rows))
    if images.train_origins is not None:
        columns.append(images.train_origins[rows])
    known_as = [[digests[index].tobytes() for digests in columns] for index in range(len(rows))]
    if images.train_hashes is not None:
        shape = repr(images.shape).encode()
        for index, file_hash in enumerate(images.train_hashes[rows]):
            known_as[index].append(shape + file_hash.tobytes())
    return [tuple(digests) for digests in known_as]


def origins(images: PictureSet) -> Digests:
    """Return the digest (n, 32) of each training image's original, or its own digest if it has none."""
    if images.train_origins is None:
        return contents(whole_split(images.train))
    return images.train_origins
