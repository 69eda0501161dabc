"""The networks that classify images, by name: the papers' and the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tasks.models import catalog, cnn1, cnn2, custom, densenet100, mlp1, resnet18
from tasks.models.layers import Layers, Weight, initial, weights_of
from tasks.models.methods import Method, trial
from tasks.models.modules import Module
from tasks.models.regularisers import PLAIN, Regularisers


class Definition(Protocol):
    """A network in terms of layers."""

    def __call__(self, layers: Layers, x: Tensor, classes: int, regularisers: Regularisers = PLAIN) -> Tensor:
        """The logits (models, rows, classes) of images (rows, models * channels, height, width) in [0, 1]."""


class WideDefinition(Protocol):
    """A network that comes in any width, the factor on the units and channels of its hidden layers."""

    def __call__(
        self, layers: Layers, x: Tensor, classes: int, regularisers: Regularisers = PLAIN, width: float = 1.0
    ) -> Tensor:
        """The same as a `Definition`."""


WIDE: Mapping[str, WideDefinition] = {"mlp1": mlp1.network, "cnn1": cnn1.network, "cnn2": cnn2.network}
DEFINITIONS: Mapping[str, Definition] = {
    **WIDE,
    "densenet100": densenet100.network,
    "resnet18": resnet18.network,
}


@dataclass(frozen=True)
class Architecture:
    """A network for images of one shape (height, width, channels) and so many classes.

    `width` is the factor on the units and channels of its hidden layers (`tasks.models.widths`). ValueError, in one
    line, where there is no such network, or it has no such regulariser or width.
    """

    name: str
    shape: tuple[int, int, int]
    classes: int
    regularisers: Regularisers = PLAIN
    width: float = 1.0

    def __post_init__(self) -> None:
        catalog.check(self.name, self.regularisers, self.width)

    def __str__(self) -> str:
        name = self.name if self.width == 1 else f"{self.name} of width {self.width:g}"
        return " with ".join([name, *filter(None, [str(self.regularisers)])])

    def logits(self, layers: Layers, pixels: Tensor) -> Tensor:
        """The logits (models, rows, classes) of rows of pixels in [0, 1]: (models, rows, height * width * channels)."""
        if self.own is not None:
            return self.own.compute(layers, each_models(pixels, self.shape))
        return self.definition(layers, images(pixels, self.shape), self.classes, self.regularisers)

    @property
    def definition(self) -> Definition:
        """One of our networks in terms of layers, of this width."""
        return DEFINITIONS[self.name] if self.width == 1 else partial(WIDE[self.name], width=self.width)

    @cached_property
    def weights(self) -> Mapping[str, Weight]:
        """Every tensor of the network, in the order in which they start."""
        if self.own is not None:
            return self.own.module.weights
        height, width, channels = self.shape
        return weights_of(
            lambda layers, x: self.definition(layers, x, self.classes, self.regularisers),
            (channels, height, width),
        )

    def initial(self, seed: int) -> dict[str, NDArray[np.float32]]:
        """The weights a model starts from, the same on every device."""
        return initial(self.weights, seed) if self.own is None else self.own.module.initial(seed)

    @property
    def stackable(self) -> bool:
        """Whether several models are computed in one pass; else they are one after another."""
        return self.own is None or self.own.stackable

    @property
    def capturable(self) -> bool:
        """Whether a step of training can be recorded once and replayed (CUDA graphs), padding apart."""
        # Nothing in a step that vmap can compute depends on values, or on torch's generator.
        return self.stackable

    @property
    def own(self) -> Method | None:
        """The user's own network behind this one: its logits."""
        height, width, channels = self.shape
        return logits_of(self.name, (channels, height, width), self.classes) if custom.is_own(self.name) else None


@cache
def logits_of(name: str, shape: tuple[int, int, int], classes: int) -> Method:
    """The logits of a user's network of this name, made and tried once per process."""
    return Method(Module(name, shape, classes), "__call__", "logits", trial(shape), (classes,))


def images(pixels: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Rows of pixels (models, rows, height * width * channels) as layers take images.

    That is (rows, models * channels, height, width).
    """
    models, rows = pixels.shape[:2]
    return pixels.view(models, rows, *shape).permute(1, 0, 4, 2, 3).reshape(rows, models * shape[2], *shape[:2])


def each_models(pixels: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Rows of pixels as one model's images after another's: (models, rows, channels, height, width)."""
    return pixels.view(*pixels.shape[:2], *shape).permute(0, 1, 4, 2, 3)
