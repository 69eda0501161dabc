"""Observations planted in a data set of one's own, so that it is known what an audit should find in it.

folder:scans#28x28#grey#inverted10      the first ten training images are shown as negatives
folder:scans#28x28#grey#mislabelled10   they have the next class's label
folder:scans#28x28#grey#duplicated10    each of them stands a second time in the place of one of the next ten

They are the first, so that they are among however many a run trains on. Test images stay as they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from tasks.datasets.dataset import DatasetError
from tasks.datasets.images import Images

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
        """The first so many training images are planted, or copied."""
        return self.count * (2 if self.kind == "duplicated" else 1)

    def plant(self, images: Images) -> Images:
        """The images with those that are planted; DatasetError where there are too few of them, or of classes."""
        pixels, labels = images.train_images.copy(), images.train_labels.copy()
        if len(pixels) < self.rows:
            raise DatasetError(f"#{self} plants in {self.rows} training images; there are {len(pixels)}")
        match self.kind:
            case "inverted":
                pixels[: self.count] = np.iinfo(pixels.dtype).max - pixels[: self.count]
            case "mislabelled":
                if images.classes < 2:
                    raise DatasetError(f"#{self} needs a second class to label images with; there is one")
                labels[: self.count] = (labels[: self.count] + 1) % images.classes
            case "duplicated":
                pixels[self.count : self.rows], labels[self.count : self.rows] = (
                    of[: self.count] for of in (pixels, labels)
                )
        for each in (pixels, labels):
            each.flags.writeable = False
        # What an image was made of is known no longer where another one stands in its place.
        origins = None if self.kind == "duplicated" else images.train_origins
        return replace(images, train_images=pixels, train_labels=labels, train_origins=origins)


def parse_planting(word: str) -> Planting | None:
    """The planting that an option of a data set's name asks for; None where it is another option."""
    found = WORD.fullmatch(word)
    return None if found is None else Planting(found[1], int(found[2]))  # type: ignore[arg-type]
