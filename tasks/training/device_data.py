"""Images on the device that trains on them: there once per process, as bytes."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks.datasets.images import Images


@dataclass(frozen=True, eq=False)
class DeviceData:
    """Both splits: pixels (n, h w c) uint8 and labels (n,) int64."""

    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor

    @property
    def device(self) -> torch.device:
        return self.train.device

    def rows(self, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """The pixels and labels of these training rows, of any shape (...): (..., h w c) and (...)."""
        flat = chosen.view(-1)
        pixels = torch.index_select(self.train, 0, flat).view(*chosen.shape, -1)
        return pixels, torch.index_select(self.train_labels, 0, flat).view(chosen.shape)

    def with_replaced(
        self, replaced: Sequence[Mapping[int, NDArray[np.uint8]]]
    ) -> tuple[DeviceData, list[dict[int, int]]]:
        """The data with each member's replaced images appended; and, by member, which row replaces which."""
        rows: list[int] = []
        added: list[NDArray[np.uint8]] = []
        aliases = []
        for images in replaced:
            aliases.append({row: len(self.train) + len(added) + place for place, row in enumerate(images)})
            rows += images
            added += images.values()
        if not added:
            return self, aliases
        more = pixels(np.stack(added)).to(self.train.device)
        labels = self.train_labels[torch.tensor(rows, device=self.train.device)]
        return (
            replace(self, train=torch.cat([self.train, more]), train_labels=torch.cat([self.train_labels, labels])),
            aliases,
        )


_resident: weakref.WeakKeyDictionary[Images, dict[torch.device, DeviceData]] = weakref.WeakKeyDictionary()


def resident(images: Images, place: torch.device) -> DeviceData:
    """The images on a device, copied once and kept as long as the images live."""
    place = torch.empty(0, device=place).device  # "cuda" is "cuda:0", and there is one copy for both
    places = _resident.setdefault(images, {})
    if place not in places:
        places[place] = DeviceData(
            pixels(images.train_images).to(place),
            torch.from_numpy(np.array(images.train_labels)).to(place),
            pixels(images.test_images).to(place),
            torch.from_numpy(np.array(images.test_labels)).to(place),
        )
    return places[place]


def pixels(images: NDArray[np.uint8]) -> Tensor:
    """The images' bytes, a row for each; copied, because torch has no read-only tensors."""
    return torch.from_numpy(np.array(images).reshape(len(images), -1))
