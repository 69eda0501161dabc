"""The networks that classify images, by name: the papers' and the user's own. Their weights, in memory and in MODEL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from torch import Tensor

from tasks.models import catalog, custom
from tasks.models.catalog import PLAIN, Regularisers
from tasks.models.classifiers import cnn1, cnn2, densenet100, mlp1, resnet18
from tasks.models.layers import Layers, Weight, initial, weights_of
from tasks.models.modules import Method, Module, trial


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


WIDE: Mapping[str, WideDefinition] = {"mlp1": mlp1, "cnn1": cnn1, "cnn2": cnn2}
DEFINITIONS: Mapping[str, Definition] = {
    **WIDE,
    "densenet100": densenet100,
    "resnet18": resnet18,
}


@dataclass(frozen=True)
class Architecture:
    """A network for images of one shape (height, width, channels) and so many classes.

    `width` is the factor on the units and channels of its hidden layers (`tasks.models.catalog`). ValueError, in one
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


Weights = Mapping[str, NDArray[np.float32]]


def weight_rows(weights: Weights) -> list[dict[str, Any]]:
    """The weights as the `weights` column of MODEL holds them, in their order."""
    return [
        {"name": name, "shape": list(values.shape), "values": np.ascontiguousarray(values, "<f4").tobytes()}
        for name, values in weights.items()
    ]


def weights_of_model(model: pa.Table, row: int = 0) -> dict[str, NDArray[np.float32]]:
    """The weights in one row of a MODEL table, read-only."""
    cells = model.column("weights")[row].as_py()
    return {cell["name"]: np.frombuffer(cell["values"], "<f4").reshape(cell["shape"]) for cell in cells}


def model_weights(tensors: Mapping[str, Tensor], model: int) -> dict[str, NDArray[np.float32]]:
    """A copy of one model's weights, from tensors (models, *shape) by name on any device."""
    values = {name: tensor[model].detach().cpu().numpy() for name, tensor in tensors.items()}
    return {name: array.astype(np.float32) for name, array in values.items()}  # astype copies


def network_row(architecture: Architecture) -> dict[str, Any]:
    """The network as the `network` column of MODEL holds it."""
    row = {
        "name": architecture.name,
        "shape": list(architecture.shape),
        "classes": architecture.classes,
        "dropout": architecture.regularisers.dropout,
        "batch_norm": architecture.regularisers.batch_norm,
    }
    return row if architecture.width == 1 else row | {"width": architecture.width}  # see `schemas.of_width`


def architecture_of(model: pa.Table, row: int = 0) -> Architecture:
    """The network in one row of a MODEL table."""
    cell = model.column("network")[row].as_py()
    height, width, channels = cell["shape"]
    regularisers = Regularisers(cell["dropout"], cell["batch_norm"])
    shape, factor = (height, width, channels), cell.get("width", 1.0)
    return Architecture(cell["name"], shape, cell["classes"], regularisers, factor)
