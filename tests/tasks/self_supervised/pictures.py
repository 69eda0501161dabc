"""Small images and configs that the tests of self-supervised training share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.datasets.boxed.partition import Partition, TrainingImages
from tasks.datasets.boxed.pictures import NO_BOXES, Boxes
from tasks.datasets.dataset import Dataset
from tasks.self_supervised.pretraining_config import Augmentation, BarlowTwins, Criterion, Pretraining, SimCLR, VICReg

CRITERIA = (VICReg(), SimCLR(), BarlowTwins())


@dataclass(frozen=True, eq=False)
class Blobs:
    """Images of a few classes, each a blob of its class's colour at its own position, without boxes."""

    count: int = 120
    classes: int = 3
    height: int = 32
    width: int = 32
    given_parts: tuple[str, ...] | None = None

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(f"{row:04}" for row in range(self.count))

    @property
    def labels(self) -> NDArray[np.int64]:
        return np.arange(self.count) % self.classes

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(map(str, range(self.classes)))

    @property
    def boxes(self) -> Sequence[Boxes]:
        return [NO_BOXES] * self.count

    @property
    def sizes(self) -> NDArray[np.int32]:
        return np.tile(np.array([[self.height, self.width]], np.int32), (self.count, 1))

    @property
    def is_validation(self) -> NDArray[np.bool_]:
        return np.zeros(self.count, np.bool_)

    @property
    def first_copies(self) -> NDArray[np.int64]:
        return np.arange(self.count)

    @cached_property
    def pixels(self) -> NDArray[np.uint8]:
        draws = np.random.default_rng(1)
        images = draws.integers(0, 120, (self.count, self.height, self.width, 3), np.uint8)
        colours = draws.integers(130, 255, (self.classes, 3), np.uint8)
        for image, label in zip(images, self.labels, strict=True):
            row, column = draws.integers(0, self.height // 2), draws.integers(0, self.width // 2)
            image[row : row + self.height // 2, column : column + self.width // 2] = colours[label]
        return images

    def picture(self, row: int) -> NDArray[np.uint8]:
        return self.pixels[row]

    def squares(self, rows: NDArray[np.integer], side: int) -> NDArray[np.uint8]:
        assert side == self.height
        assert side == self.width
        return self.pixels[rows]


BLOBS_A = TrainingImages(Dataset("blobs", "ab"), 0.0, Partition(per_class=10, public=20), "A")


def config(criterion: Criterion = CRITERIA[0], **fields: Any) -> Pretraining:
    """A training of seconds: 30 images (of `Blobs` by default) in minibatches of 10."""
    images = fields.pop("images", BLOBS_A)
    small: dict[str, Any] = {"backbone": "small-resnet#4", "projector": (16, 16), "batch": 10, "warmup": 1}
    small |= {"augmentation": Augmentation(resolution=16, side=32), "epochs": 4, "schedule": 6}
    return Pretraining(images, criterion, **{**small, **fields})
