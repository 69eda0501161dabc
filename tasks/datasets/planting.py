"""Plant observations in a user's data set, so that the correct result of an audit is known.

folder:scans#28x28#grey#inverted10      the first ten training images are inverted
folder:scans#28x28#grey#mislabelled10   the first ten training images get the label of the next class
folder:scans#28x28#grey#duplicated10    copies of the first ten training images replace the next ten

Planted observations come first, so that a run of any size trains on them. Test images do not change.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from tasks.datasets.dataset import DatasetError
from tasks.datasets.images import Images, Indices, Labels, PictureRows, PictureSet, Pixels
from tasks.datasets.large_images import LargeImages
from tasks.datasets.source import Hashes

Kind = Literal["inverted", "mislabelled", "duplicated"]
WORD = re.compile(rf"({'|'.join(get_args(Kind))})([1-9]\d{{0,5}})")


@dataclass(frozen=True)
class Planting:
    """How the first `count` training images are changed."""

    kind: Kind
    count: int

    def __str__(self) -> str:
        return f"{self.kind}{self.count}"

    @property
    def rows(self) -> int:
        """The number of training images, counted from the first, that are planted or replaced by copies."""
        return self.count * (2 if self.kind == "duplicated" else 1)

    def plant(self, images: Images) -> Images:
        """Plant the observations. Raises DatasetError if there are too few images or classes."""
        labels = self._plant_labels(images)
        pixels = images.train_images.copy()
        first_rows = np.arange(self.rows)
        pixels[first_rows] = self.read_pixels(images.train, first_rows)
        for array in (pixels, labels):
            array.flags.writeable = False
        # The origin of a replaced image would no longer be valid.
        origins = None if self.kind == "duplicated" else images.train_origins
        hashes = None if images.train_hashes is None else self._plant_hashes(images.train_hashes)
        return replace(images, train_images=pixels, train_labels=labels, train_origins=origins, train_hashes=hashes)

    def plant_by_rows(self, images: LargeImages) -> LargeImages:
        """Plant the observations in images that are read by rows. Raises DatasetError as `plant`."""
        return replace(
            images,
            train=PlantedRows(images.train, self, self._plant_labels(images)),
            train_hashes=self._plant_hashes(images.train_hashes),
            train_origins=None if images.train_origins is None else self._plant_hashes(images.train_origins),
        )

    def read_pixels(self, original: PictureRows, rows: Indices) -> Pixels:
        """Return the images of these rows after planting."""
        pixels = original.pixels(self._sources(rows))
        if self.kind == "inverted":
            is_planted = rows < self.count
            pixels[is_planted] = np.iinfo(pixels.dtype).max - pixels[is_planted]
        return pixels

    def _sources(self, rows: Indices) -> Indices:
        """Return the rows whose images are in these rows after planting."""
        if self.kind != "duplicated":
            return rows
        return np.where((rows >= self.count) & (rows < self.rows), rows - self.count, rows)

    def _plant_labels(self, images: PictureSet) -> Labels:
        """Return the labels of the training images after planting. Raises DatasetError as `plant`."""
        count = len(images.train)
        if count < self.rows:
            raise DatasetError(f"#{self} plants in {self.rows} training images; there are {count}")
        labels: Labels = images.train.labels[self._sources(np.arange(count))]
        if self.kind == "mislabelled":
            if images.classes < 2:
                raise DatasetError(f"#{self} requires a second class for wrong labels; there is only one")
            labels[: self.count] = (labels[: self.count] + 1) % images.classes
        return labels

    def _plant_hashes(self, hashes: Hashes) -> Hashes:
        """Return the hashes of the images after planting, by which copies are found."""
        planted_hashes: Hashes = hashes[self._sources(np.arange(len(hashes)))]
        if self.kind == "inverted":
            for row in range(self.count):
                inverted = hashlib.sha256(self.kind.encode() + hashes[row].tobytes()).digest()
                planted_hashes[row] = np.frombuffer(inverted, np.uint8)
        return planted_hashes


@dataclass(frozen=True, eq=False)
class PlantedRows:
    """A training split after planting, whose images are changed when they are read."""

    original: PictureRows
    planting: Planting
    labels: Labels

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.original.shape

    def __len__(self) -> int:
        return len(self.original)

    def pixels(self, rows: Indices) -> Pixels:
        return self.planting.read_pixels(self.original, np.asarray(rows))


def parse_planting(word: str) -> Planting | None:
    """Parse a data set option as a planting, or return None if it is a different option."""
    match = WORD.fullmatch(word)
    return None if match is None else Planting(match[1], int(match[2]))  # type: ignore[arg-type]
