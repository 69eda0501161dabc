"""Labelled pictures read by rows, wherever their pixels lie: in memory, in a cache on the disk, or in their files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]  # (n, height, width, channels)
Labels = NDArray[np.int64]  # (n,), each in [0, classes)
Indices = NDArray[np.integer]  # (n,), each in [0, len(rows)), in any order and as often as wished


class PictureRows(Protocol):
    """Equally shaped pictures with a label each, as of one split."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of every picture."""

    @property
    def labels(self) -> Labels:
        """(n,), each in [0, classes)."""

    def __len__(self) -> int: ...

    def pixels(self, rows: Indices) -> Pixels:
        """These pictures, (rows, height, width, channels). DatasetError where they cannot be read."""


class PictureSet(Protocol):
    """A training and a test split of equally shaped pictures. It is hashed by what it is, not by its content."""

    @property
    def train(self) -> PictureRows: ...

    @property
    def test(self) -> PictureRows: ...

    @property
    def classes(self) -> int: ...

    @property
    def names(self) -> tuple[str, ...]:
        """Of the classes, where they have any."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of every picture."""


@dataclass(frozen=True, eq=False)
class InMemory:
    """Pictures of an array."""

    images: Pixels  # (n, h, w, c)
    labels: Labels

    @property
    def shape(self) -> tuple[int, int, int]:
        height, width, channels = self.images.shape[1:]
        return height, width, channels

    def __len__(self) -> int:
        return len(self.images)

    def pixels(self, rows: Indices) -> Pixels:
        return self.images[rows]


@dataclass(frozen=True, eq=False)
class Extended:
    """Pictures followed by more of the same shape: the first of those has the row after the last of these."""

    rows: PictureRows
    more: Pixels  # (m, h, w, c)
    more_labels: Labels

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.rows.shape

    @property
    def labels(self) -> Labels:
        return np.concatenate([self.rows.labels, self.more_labels])

    def __len__(self) -> int:
        return len(self.rows) + len(self.more)

    def pixels(self, rows: Indices) -> Pixels:
        own = rows < len(self.rows)
        if own.all():
            return self.rows.pixels(rows)
        out = np.empty((len(rows), *self.shape), np.uint8)
        out[own] = self.rows.pixels(rows[own])
        out[~own] = self.more[rows[~own] - len(self.rows)]
        return out


@dataclass(frozen=True, eq=False)
class Opened:
    """A set whose splits are read by rows."""

    train: PictureRows
    test: PictureRows
    classes: int
    names: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.train.shape


def size(pictures: PictureSet) -> int:
    """The bytes of all pixels."""
    height, width, channels = pictures.shape
    return (len(pictures.train) + len(pictures.test)) * height * width * channels
