"""The contract between an audit's training and the ways to train many models.

A way trains alike members on one split of images: `way(recipe, images, members)` yields each member's index with what
became of it, as it ends, in any order. What a member gets depends on the recipe and on itself, never on its company.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tasks.datasets.images import Images


class TrainingError(RuntimeError):
    """A training that cannot go on."""


@dataclass(frozen=True)
class Recipe:
    """What alike members share."""

    network: str
    epochs: int  # at most
    patience: int  # epochs without a better validation loss before it ends
    learning_rate: float
    batch: int
    precision: Literal["float32", "float64"] = "float32"


@dataclass(frozen=True, eq=False)
class Member:
    """One model to train: its seed, the training images it sees, and the images that replace some of them."""

    seed: int
    rows: NDArray[np.int64]  # of the training split, in the order that the epochs' shuffles refer to
    replaced: Mapping[int, NDArray[np.uint8]] = field(default_factory=dict)  # row -> image (h, w, c)


@dataclass(frozen=True)
class Epoch:
    epoch: int  # from 1
    train_loss: float  # mean over the epoch's batches, in nats
    validation_loss: float  # mean over the test split, in nats
    validation_accuracy: float


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model: the best epoch's weights, and every epoch's losses."""

    best_epoch: int
    history: tuple[Epoch, ...]
    weights: Mapping[str, NDArray[np.floating]]  # in the recipe's precision


Way = Callable[[Recipe, Images, Sequence[Member]], Iterator[tuple[int, Trained | Exception]]]
