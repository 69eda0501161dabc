"""The networks that classify images, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from torch import Tensor

from tasks.models import catalog, cnn1, cnn2, densenet100, mlp1, resnet18
from tasks.models.layers import Layers, Weight, weights_of
from tasks.models.regularisers import PLAIN, Regularisers


class Definition(Protocol):
    """A network in terms of layers."""

    def __call__(self, layers: Layers, x: Tensor, classes: int, regularisers: Regularisers = PLAIN) -> Tensor:
        """The logits (models, rows, classes) of images (rows, models * channels, height, width) in [0, 1]."""


DEFINITIONS: Mapping[str, Definition] = {
    "mlp1": mlp1.network,
    "cnn1": cnn1.network,
    "cnn2": cnn2.network,
    "densenet100": densenet100.network,
    "resnet18": resnet18.network,
}


@dataclass(frozen=True)
class Architecture:
    """A network for images of one shape (height, width, channels) and so many classes."""

    name: str
    shape: tuple[int, int, int]
    classes: int
    regularisers: Regularisers = PLAIN

    def __post_init__(self) -> None:
        catalog.check(self.name, self.regularisers)

    def logits(self, layers: Layers, pixels: Tensor) -> Tensor:
        """The logits (models, rows, classes) of rows of pixels in [0, 1]: (models, rows, height * width * channels)."""
        return DEFINITIONS[self.name](layers, images(pixels, self.shape), self.classes, self.regularisers)

    @cached_property
    def weights(self) -> Mapping[str, Weight]:
        """Every tensor of the network, in the order in which they start."""
        height, width, channels = self.shape
        return weights_of(
            lambda layers, x: DEFINITIONS[self.name](layers, x, self.classes, self.regularisers),
            (channels, height, width),
        )


def images(pixels: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Rows of pixels as layers take images: (rows, models * channels, height, width)."""
    models, rows = pixels.shape[:2]
    return pixels.view(models, rows, *shape).permute(1, 0, 4, 2, 3).reshape(rows, models * shape[2], *shape[:2])
