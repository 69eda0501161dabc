"""Provide training images to a device, either resident on it or streamed to it minibatch by minibatch.

Both kinds provide the same bytes, so trainings are bitwise equal.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks.datasets.images import InMemory, PictureRows, Splits, blocks, pixel_bytes
from tasks.datasets.picture_rows import Concatenated, is_in_memory
from tasks.datasets.splits import Split
from tasks.training import memory
from tasks.worker import hardware

SHARE = 0.5  # fraction of the device's free memory that images may use; the rest is for the models


class DeviceData(Protocol):
    """Both splits of a data set for one device, by rows: pixels (..., h w c) uint8 and labels (...) int64."""

    @property
    def device(self) -> torch.device: ...

    @property
    def is_resident(self) -> bool:
        """Whether all pixels are on the device. Only then can a CUDA graph record reading them."""

    @property
    def train_labels(self) -> Tensor:
        """The labels of all training rows, (n,) int64."""

    @property
    def test_count(self) -> int:
        """The number of test images."""

    def rows(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return the pixels (..., h w c) and labels (...) of these training rows (...), which may have any shape."""

    def test_rows(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Return the pixels and labels of the test rows from `start` to `stop` or to the end, whichever is first."""

    def pixels(self, split: Split, start: int, stop: int) -> Tensor:
        """Return the pixels (rows, h w c) of the rows from `start` to `stop` of a split."""

    def replace_images(
        self, replaced: Sequence[Mapping[int, NDArray[np.uint8]]]
    ) -> tuple[DeviceData, list[dict[int, int]]]:
        """Append each member's replaced images.

        Returns the new data and, for each member, the replacement of each row.
        """


@dataclass(frozen=True, eq=False)
class ResidentData:
    """All images on the device: pixels (n, h w c) uint8 and labels (n,) int64."""

    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor

    is_resident = True

    @property
    def device(self) -> torch.device:
        return self.train.device

    @property
    def test_count(self) -> int:
        return len(self.test)

    def rows(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        flat = indices.view(-1)
        pixels = torch.index_select(self.train, 0, flat).view(*indices.shape, -1)
        return pixels, torch.index_select(self.train_labels, 0, flat).view(indices.shape)

    def test_rows(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        return self.test[start:stop], self.test_labels[start:stop]

    def pixels(self, split: Split, start: int, stop: int) -> Tensor:
        return (self.test if split == "test" else self.train)[start:stop]

    def replace_images(
        self, replaced: Sequence[Mapping[int, NDArray[np.uint8]]]
    ) -> tuple[ResidentData, list[dict[int, int]]]:
        rows, added, aliases = _append_replaced_images(replaced, len(self.train))
        if not added:
            return self, aliases
        more = pixels(np.stack(added)).to(self.device)
        labels = self.train_labels[torch.tensor(rows, device=self.device)]
        return (
            replace(self, train=torch.cat([self.train, more]), train_labels=torch.cat([self.train_labels, labels])),
            aliases,
        )


@dataclass(frozen=True, eq=False)
class StreamedData:
    """Labels on the device, and pixels that are gathered on the host and copied to the device in every call."""

    train: PictureRows
    train_labels: Tensor
    test: PictureRows
    test_labels: Tensor

    is_resident = False

    @property
    def device(self) -> torch.device:
        return self.train_labels.device

    @property
    def test_count(self) -> int:
        return len(self.test)

    def rows(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """See `DeviceData.rows`. On a GPU, this waits for earlier steps, since only the GPU knows `indices`."""
        flat = indices.reshape(-1)
        labels = torch.index_select(self.train_labels, 0, flat).view(indices.shape)
        return self._move_to_device(self.train.pixels(flat.cpu().numpy())).view(*indices.shape, -1), labels

    def test_rows(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        stop = min(stop, len(self.test))
        return self.pixels("test", start, stop), self.test_labels[start:stop]

    def pixels(self, split: Split, start: int, stop: int) -> Tensor:
        rows = self.test if split == "test" else self.train
        return self._move_to_device(rows.pixels(np.arange(start, stop)))

    def _move_to_device(self, images: NDArray[np.uint8]) -> Tensor:
        """Copy the images' bytes to the device, one row per image."""
        rows = flatten(images) if images.flags.writeable else pixels(images)
        if self.device.type == "cpu":
            return rows
        # torch's allocator does not reuse pinned memory until the copy is complete.
        return rows.pin_memory().to(self.device, non_blocking=True)

    def replace_images(
        self, replaced: Sequence[Mapping[int, NDArray[np.uint8]]]
    ) -> tuple[StreamedData, list[dict[int, int]]]:
        rows, added, aliases = _append_replaced_images(replaced, len(self.train))
        if not added:
            return self, aliases
        labels = self.train_labels[torch.tensor(rows, device=self.device)]
        train = Concatenated((self.train, InMemory(np.stack(added), self.train.labels[np.array(rows)])))
        return replace(self, train=train, train_labels=torch.cat([self.train_labels, labels])), aliases


def _append_replaced_images(
    replaced: Sequence[Mapping[int, NDArray[np.uint8]]], count: int
) -> tuple[list[int], list[NDArray[np.uint8]], list[dict[int, int]]]:
    """Return the rows and images to append to `count` images.

    Also returns, for each member, the new row that replaces each of its replaced rows.
    """
    rows: list[int] = []
    added: list[NDArray[np.uint8]] = []
    aliases = []
    for images in replaced:
        aliases.append({row: count + len(added) + position for position, row in enumerate(images)})
        rows += images
        added += images.values()
    return rows, added, aliases


_resident: weakref.WeakKeyDictionary[Splits, dict[torch.device, ResidentData]] = weakref.WeakKeyDictionary()


def place_images(images: Splits, device: torch.device) -> DeviceData:
    """Place images on the device if they fit, otherwise stream them.

    On a CPU, images that are not in memory are always streamed, since all processes of a machine share their cache.
    """
    device = _one_name(device)
    if device in _resident.get(images, {}):
        return resident(images, device)
    if device.type == "cuda":
        free = memory.free(device)
        is_held = True
    else:
        free = hardware.available_memory()
        is_held = is_in_memory(images.train) and is_in_memory(images.test)
    if is_held and pixel_bytes(images) <= SHARE * free:
        return resident(images, device)
    return stream_pictures(images, device)


def resident(images: Splits, device: torch.device) -> ResidentData:
    """Return the images on a device. They are copied once and kept for the lifetime of the data set."""
    device = _one_name(device)
    by_device = _resident.setdefault(images, {})
    if device not in by_device:
        by_device[device] = ResidentData(
            whole(images.train, device),
            labels(images.train).to(device),
            whole(images.test, device),
            labels(images.test).to(device),
        )
    return by_device[device]


def stream_pictures(images: Splits, device: torch.device) -> StreamedData:
    """Return the images as a stream of rows for a device."""
    train = images.train
    test = images.test
    return StreamedData(train, labels(train).to(device), test, labels(test).to(device))


def _one_name(device: torch.device) -> torch.device:
    """Return the device under the name that tensors use ("cuda:0" for "cuda"), so that both names share one copy."""
    return torch.empty(0, device=device).device


def whole(split: PictureRows, device: torch.device) -> Tensor:
    """Return a copy of all pixels on a device, (n, h w c). They are read in blocks unless they are in an array."""
    if isinstance(split, InMemory):
        return pixels(split.images).to(device)  # contiguous
    out: Tensor | None = None
    for rows in blocks(np.arange(len(split)), split.shape):
        block = flatten(split.pixels(rows))
        if out is None:
            out = torch.empty(len(split), block.shape[1], dtype=block.dtype, device=device)
        out[int(rows[0]) : int(rows[-1]) + 1] = block
    assert out is not None
    return out


def labels(rows: PictureRows) -> Tensor:
    return torch.from_numpy(np.array(rows.labels))


def pixels(images: NDArray[np.uint8]) -> Tensor:
    """Return a copy of the images' bytes, one row per image, since torch has no read-only tensors."""
    return flatten(np.array(images))


def flatten(images: NDArray[np.uint8]) -> Tensor:
    return torch.from_numpy(images.reshape(len(images), -1))
