"""Plant observations in a user's data set, so that the correct result of an audit is known.

folder:scans#28x28#grey#inverted10      the first ten training images are inverted
folder:scans#28x28#grey#mislabelled10   the first ten training images get the label of the next class
folder:scans#28x28#grey#duplicated10    copies of the first ten training images replace the next ten

Planted observations come first, so that a run of any size trains on them. Test images do not change.
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
        """The number of training images, counted from the first, that are planted or replaced by copies."""
        return self.count * (2 if self.kind == "duplicated" else 1)

    def plant(self, images: Images) -> Images:
        """Plant the observations. Raises DatasetError if there are too few images or classes."""
        pixels = images.train_images.copy()
        labels = images.train_labels.copy()
        if len(pixels) < self.rows:
            raise DatasetError(f"#{self} plants in {self.rows} training images; there are {len(pixels)}")
        match self.kind:
            case "inverted":
                pixels[: self.count] = np.iinfo(pixels.dtype).max - pixels[: self.count]
            case "mislabelled":
                if images.classes < 2:
                    raise DatasetError(f"#{self} requires a second class for wrong labels; there is only one")
                labels[: self.count] = (labels[: self.count] + 1) % images.classes
            case "duplicated":
                pixels[self.count : self.rows], labels[self.count : self.rows] = (
                    values[: self.count] for values in (pixels, labels)
                )
        for array in (pixels, labels):
            array.flags.writeable = False
        # The origin of a replaced image would no longer be valid.
        origins = None if self.kind == "duplicated" else images.train_origins
        return replace(images, train_images=pixels, train_labels=labels, train_origins=origins, train_hashes=None)


def parse_planting(word: str) -> Planting | None:
    """Parse a data set option as a planting, or return None if it is a different option."""
    match = WORD.fullmatch(word)
    return None if match is None else Planting(match[1], int(match[2]))  # type: ignore[arg-type]
