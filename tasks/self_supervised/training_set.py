"""Training images as squares, on the device if they fit, otherwise in a file that is read one step ahead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks.datasets.boxed.partition import split_pictures
from tasks.datasets.boxed.pictures import BoxedPictures
from tasks.datasets.images import InMemory, Opened, PictureRows
from tasks.datasets.picture_cache import open_cache
from tasks.self_supervised.pretraining_config import Pretraining
from tasks.self_supervised.square_files import SHARE, square_side, squares_digest
from tasks.training import memory
from tasks.worker import hardware

TOGETHER = 1 << 26  # bytes of squares processed at a time


class Held(Protocol):
    """Images as squares, by their rows in a training set."""

    def minibatches(self, order: Sequence[NDArray[np.int64]]) -> Iterator[Tensor]:
        """Yield the squares of each minibatch, (n, 3, side, side) bytes, on the device."""


@dataclass(frozen=True, eq=False)
class Resident:
    """Images on the device, (n, 3, side, side)."""

    squares: Tensor

    def minibatches(self, order: Sequence[NDArray[np.int64]]) -> Iterator[Tensor]:
        for places in order:
            yield self.squares[torch.from_numpy(places).to(self.squares.device)]


@dataclass(frozen=True, eq=False)
class Mapped:
    """Images in a cache file. During each step, a thread reads the images of the next one."""

    rows: PictureRows
    device: torch.device

    def minibatches(self, order: Sequence[NDArray[np.int64]]) -> Iterator[Tensor]:
        with ThreadPoolExecutor(1) as reader:
            waiting = reader.submit(self._read, order[0]) if len(order) else None
            for next_rows in [*order[1:], None]:
                assert waiting is not None
                squares = waiting.result()
                if next_rows is None:
                    waiting = None
                else:
                    waiting = reader.submit(self._read, next_rows)
                yield squares.to(self.device, non_blocking=True).permute(0, 3, 1, 2)

    def _read(self, rows: NDArray[np.int64]) -> Tensor:
        squares = torch.from_numpy(self.rows.pixels(rows))
        return squares.pin_memory() if self.device.type == "cuda" else squares


@dataclass(frozen=True, eq=False)
class Squares:
    """Some of a data set's images as squares, computed on access."""

    pictures: BoxedPictures
    rows: NDArray[np.int64]
    side: int

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.side, self.side, 3

    @property
    def labels(self) -> NDArray[np.int64]:
        return self.pictures.labels[self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    def pixels(self, rows: NDArray[np.integer]) -> NDArray[np.uint8]:
        return self.pictures.squares(self.rows[rows], self.side)


def _hold_pictures(
    pictures: BoxedPictures, rows: NDArray[np.int64], side: int, device: torch.device, digest: str
) -> Held:
    """Return these images as squares for a device.

    Images that do not fit are stored in the cache folder (`tasks.datasets.picture_cache`) under this digest. Raises
    DatasetError if they cannot be read or written.
    """
    squares = Squares(pictures, rows, side)
    if device.type == "cuda":
        free = memory.free(device)
    else:
        free = hardware.available_memory()
    if len(rows) * side * side * 3 <= SHARE * free:
        return resident(squares, device)
    none = InMemory(np.zeros((0, side, side, 3), np.uint8), np.zeros(0, np.int64))
    return Mapped(open_cache(digest, lambda: Opened(squares, none, len(pictures.names))).train, device)


def resident(squares: PictureRows, device: torch.device) -> Resident:
    """Return all images, placed on the device."""
    side = squares.shape[0]
    images = torch.empty(len(squares), 3, side, side, dtype=torch.uint8, device=device)
    batch_size = max(1, TOGETHER // (side * side * 3))
    for start in range(0, len(squares), batch_size):
        batch = torch.from_numpy(squares.pixels(np.arange(start, min(start + batch_size, len(squares)))))
        images[start : start + len(batch)] = batch.to(device).permute(0, 3, 1, 2)
    return Resident(images)


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Images as squares, their sizes (n, 2: height, width) and their labels (n,)."""

    squares: Held
    sizes: NDArray[np.int32]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)


def training_set(config: Pretraining, pictures: BoxedPictures, device: torch.device) -> TrainingSet:
    """Return the config's part of these images. Raises DatasetError if there are too few or one cannot be read."""
    rows = split_pictures(pictures, config.images.partition).rows(config.images.part)
    sizes = pictures.sizes[rows]
    side = square_side(config, sizes)
    digest = squares_digest(config, side)
    return TrainingSet(_hold_pictures(pictures, rows, side, device, digest), sizes, pictures.labels[rows])
