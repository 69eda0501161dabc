"""The pictures of a training, ready for its device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from tasks.datasets.boxed.partition import split_pictures
from tasks.datasets.boxed.pictures import BoxedPictures
from tasks.self_supervised.held_pictures import Held, hold_pictures, side_of
from tasks.self_supervised.pretraining_config import Pretraining


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Pictures as squares, with their sizes (n, 2: height, width) and their classes (n,)."""

    held: Held
    sizes: NDArray[np.int32]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)


def training_set(config: Pretraining, pictures: BoxedPictures, place: torch.device) -> TrainingSet:
    """The config's part of these pictures. A DatasetError where there are too few, or where they cannot be read."""
    rows = split_pictures(pictures, config.images.partition).rows(config.images.part)
    sizes = pictures.sizes[rows]
    side = side_of(config.augmentation.resolution, config.augmentation.side, sizes)
    return TrainingSet(hold_pictures(pictures, rows, side, place, str(config.images)), sizes, pictures.labels[rows])
