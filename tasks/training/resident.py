"""Images on the device that trains on them: there once per process, as bytes."""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tasks.datasets.images import Images


@dataclass(frozen=True, eq=False)
class Resident:
    """Both splits: pixels (n, h w c) uint8 and labels (n,) int64."""

    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor
    classes: int


_resident: weakref.WeakKeyDictionary[Images, dict[torch.device, Resident]] = weakref.WeakKeyDictionary()


def resident(images: Images, place: torch.device) -> Resident:
    """The images on a device, put there once and kept for as long as the images are."""
    places = _resident.setdefault(images, {})
    if place not in places:
        places[place] = Resident(
            pixels(images.train_images).to(place),
            torch.from_numpy(np.array(images.train_labels)).to(place),
            pixels(images.test_images).to(place),
            torch.from_numpy(np.array(images.test_labels)).to(place),
            images.classes,
        )
    return places[place]


def pixels(images: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> Tensor:
    """The images' bytes, a row for each; copied, because torch has no read-only tensors."""
    return torch.from_numpy(np.array(images).reshape(len(images), -1))
