"""Training sets mixed from shares of several data sets' training images.

Shares of one part drawn by one seed are nested: a tenth of it lies inside every half of it. Where images come in
groups, such as a patient's, whole groups are drawn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tasks import seeds
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.images import Images
from tasks.ranges import check_minimums, share

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Part:
    """Some of a data set's training images, one after another."""

    data: Dataset
    """The data set."""
    first: int = 0
    """The first row."""
    examples: int = 0
    """How many rows; 0: all that follow."""

    def __post_init__(self) -> None:
        check_minimums(self, {"first": 0, "examples": 0})

    def rows(self, images: Images) -> Rows:
        """The part's rows, ascending; a DatasetError where the data set has not that many."""
        there = len(images.train_images)
        end = self.first + self.examples if self.examples else there
        if self.first >= there or end > there:
            wanted = f"{self.first} to {end - 1}" if self.examples else f"{self.first} on"
            raise DatasetError(f"{self.data.name} has the training images 0 to {there - 1}, not those from {wanted}")
        return np.arange(self.first, end)

    def plainly(self, images: Images) -> Part:
        """The same rows written as few numbers as need be, so that equal parts have equal keys."""
        return replace(self, examples=0) if self.first + self.examples == len(images.train_images) else self


@dataclass(frozen=True)
class Remainder:
    """A part less a random share of its groups that is held back, on which nothing is trained; above 0 and below 1."""

    part: Part
    held_back: float
    seed: int = 0

    def __post_init__(self) -> None:
        share(self, "held_back", zero=False, one=False)
        check_minimums(self, {"seed": 0})

    @property
    def data(self) -> Dataset:
        return self.part.data

    def rows(self, images: Images) -> Rows:
        """The rows that are left, ascending; a DatasetError where the part has a single group."""
        return self._split(images)[0]

    def held_rows(self, images: Images) -> Rows:
        """The rows that are held back, ascending: round(held_back x groups), at least one, and not all of them."""
        return self._split(images)[1]

    def _split(self, images: Images) -> tuple[Rows, Rows]:
        rows = self.part.rows(images)
        groups = groups_of(images, rows)
        there = np.unique(groups)
        if len(there) < 2:
            raise DatasetError(
                f"{self.data.name} has one image, or one group of images, from row {self.part.first} on; to hold some "
                "back there must be two at least"
            )
        count = min(max(1, round(self.held_back * len(there))), len(there) - 1)
        held = np.isin(groups, seeds.generator(self.seed, "held back").permutation(there)[:count])
        return rows[~held], rows[held]


def groups_of(images: Images, rows: Rows) -> Rows:
    """The group of each of these training images; the row itself where images have none."""
    return rows if images.train_groups is None else images.train_groups[rows]


@dataclass(frozen=True)
class Share:
    """A random share of a part, in (0, 1]; of all of it there is one, whose seed is 0."""

    part: Part | Remainder
    share: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        share(self, "share", zero=False)
        if self.seed < 0 or (self.share == 1 and self.seed):
            raise ValueError(f"seed is {self.seed}; it must be at least 0, and 0 for all of a part")

    def rows(self, images: Images) -> Rows:
        """The rows drawn, ascending: round(share x groups) of the part's groups, at least one of them."""
        rows = self.part.rows(images)
        if self.share == 1:
            return rows
        groups = groups_of(images, rows)
        there = np.unique(groups)
        count = max(1, round(self.share * len(there)))
        drawn = seeds.generator(self.seed, "share").permutation(there)[:count]
        return rows[np.isin(groups, drawn)]
