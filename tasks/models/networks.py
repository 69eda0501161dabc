"""Image classifiers by name, both published ones and users' own, and their weights in memory and in MODEL tables.

mlp1, cnn1 and cnn2 are from Hartley & Tsaftaris, "Unintended memorisation of unique features in neural networks", A.3,
with Keras's defaults: convolutions without padding, pooling with stride 2, Glorot uniform weights, zero initial biases.
Batch norm comes directly before each activation (A.4), and dropout directly after it. Weights are (outputs, inputs).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from tasks.models import catalog, custom
from tasks.models.airbench import NAME, airbench
from tasks.models.catalog import (
    CNN1,
    CNN2,
    CONVOLUTIONAL,
    DENSE,
    MLP1,
    PLAIN,
    Regularisers,
    activate,
    input_shape,
    is_record,
)
from tasks.models.layers import FAN_IN_UNIFORM, GLOROT, HE_NORMAL, Layers, Weight, initial, weights_of
from tasks.models.modules import Method, Module, trial

HIDDEN = MLP1.units


def mlp1(layers: Layers, x: Tensor, classes: int, regularisers: Regularisers = PLAIN, width: float = 1.0) -> Tensor:
    """Compute the logits (models, rows, classes) of a fully connected network with 512, 256 and 128 ReLU units.

    The layers are dense1 to dense4.
    """
    x = layers.flat(x)
    for number, units in enumerate(MLP1.times(width).units, 1):
        x = layers.dense(f"dense{number}", x, units, GLOROT, bias=regularisers.bias)
        x = activate(layers, x, number, DENSE, regularisers)
    return layers.dense(f"dense{len(HIDDEN) + 1}", x, classes, GLOROT)


def cnn1(layers: Layers, x: Tensor, classes: int, regularisers: Regularisers = PLAIN, width: float = 1.0) -> Tensor:
    """Compute the logits (models, rows, classes) of a convolutional network for 28x28 images.

    conv1 (32, 3x3), ReLU, conv2 (64, 3x3), max pooling 2x2, ReLU, dense1 (128), ReLU, dense2 (128), ReLU, dense3. The
    second batch norm follows the pooling, as printed in A.3. Without batch norm, the order of pooling and ReLU makes no
    difference.
    """
    hidden = CNN1.times(width)
    bias = regularisers.bias
    (first, second), dense = hidden.channels, hidden.units
    x = activate(layers, layers.conv("conv1", x, first, 3, GLOROT, bias=bias), 1, CONVOLUTIONAL, regularisers)
    x = functional.max_pool2d(layers.conv("conv2", x, second, 3, GLOROT, bias=bias), 2)
    x = layers.flat(activate(layers, x, 2, CONVOLUTIONAL, regularisers))
    x = activate(layers, layers.dense("dense1", x, dense[0], GLOROT, bias=bias), 3, DENSE, regularisers)
    x = activate(layers, layers.dense("dense2", x, dense[1], GLOROT, bias=bias), 4, DENSE, regularisers)
    return layers.dense("dense3", x, classes, GLOROT)


def cnn2(layers: Layers, x: Tensor, classes: int, regularisers: Regularisers = PLAIN, width: float = 1.0) -> Tensor:
    """Compute the logits (models, rows, classes) of a convolutional network for 32x32 colour images.

    conv1, conv2 (32, 3x3), max pooling 2x2, conv3, conv4 (64, 3x3), max pooling 2x2, dense1 (1024), dense2, with ReLU
    after each layer but the last. Dropout comes before the pooling.
    """
    hidden = CNN2.times(width)
    bias = regularisers.bias
    for number, channels in enumerate(hidden.channels, 1):
        x = layers.conv(f"conv{number}", x, channels, 3, GLOROT, bias=bias)
        x = activate(layers, x, number, CONVOLUTIONAL, regularisers)
        if number in hidden.pooled:
            x = functional.max_pool2d(x, 2)
    (units,) = hidden.units
    x = layers.dense("dense1", layers.flat(x), units, GLOROT, bias=bias)
    x = activate(layers, x, len(hidden.channels) + 1, DENSE, regularisers)
    return layers.dense("dense2", x, classes, GLOROT)


# channels that a layer adds, and channels inside it (four times as many)
GROWTH = 12
BOTTLENECK = 48
# (100 - 4) / (3 blocks of 2 convolutions per bottleneck)
BLOCKS = 3
DEEP = 16
COMPRESSION = 0.5
DROPOUT = 0.2


def densenet100(layers: Layers, x: Tensor, classes: int, regularisers: Regularisers = PLAIN) -> Tensor:
    """Compute the logits (models, rows, classes) of DenseNet-BC for small images.

    100 layers, growth 12, three dense blocks, compression 0.5; 0.8 M parameters. A convolution to 24 channels, then
    blocks of 16 bottlenecks: batch norm, ReLU, 1x1 convolution to 48 channels, batch norm, ReLU, 3x3 convolution to 12,
    concatenated with the input. Between blocks, batch norm, ReLU, a 1x1 convolution to half the channels and average
    pooling by 2; finally batch norm, ReLU, the mean over positions and a logit per class. Huang et al. 2018, "Densely
    connected convolutional networks", section 3 and table 2 (769,162 parameters for CIFAR-10).

    Initial weights are He normal, as in the implementation that Hartley & Tsaftaris used (Atienza, "Advanced Deep
    Learning with Keras"), with Keras's batch norm. That implementation normalises pixels, concatenates them with the
    values of the first convolution, has biases in convolutions, and omits the ReLU of transitions and the last batch
    norm. In these respects, this network follows the paper instead.

    Batch norm is part of the network. Dropout, if requested, is the published one for training without augmentation:
    0.2 after each convolution except the first (section 4.2).
    """
    channels = 2 * GROWTH
    x = layers.conv("stem", x, channels, 3, HE_NORMAL, padding=1, bias=None)
    for block in range(1, BLOCKS + 1):
        if block > 1:
            channels = int(channels * COMPRESSION)
            x = _bottleneck(layers, f"transition{block - 1}", x, channels, 1, regularisers)
            x = functional.avg_pool2d(x, 2)
        for layer in range(1, DEEP + 1):
            name = f"block{block}.layer{layer}"
            inside = _bottleneck(layers, f"{name}.narrow", x, BOTTLENECK, 1, regularisers)
            new = _bottleneck(layers, f"{name}.grow", inside, GROWTH, 3, regularisers)
            x = layers.concatenate_channels(x, new)
            channels += GROWTH
    x = _normalise_and_activate(layers, "norm", x).mean((2, 3), keepdim=True)
    return layers.dense("dense", layers.flat(x), classes, HE_NORMAL)


def _bottleneck(layers: Layers, name: str, x: Tensor, channels: int, kernel: int, regularisers: Regularisers) -> Tensor:
    """Apply batch norm, ReLU, a convolution and, if requested, dropout."""
    x = _normalise_and_activate(layers, f"{name}.norm", x)
    x = layers.conv(name, x, channels, kernel, HE_NORMAL, padding=kernel // 2, bias=None)
    return layers.dropout(x, DROPOUT) if regularisers.dropout else x


def _normalise_and_activate(layers: Layers, name: str, x: Tensor) -> Tensor:
    return layers.batch_norm(name, x, momentum=0.01, epsilon=1e-3).relu()


STAGES = (64, 128, 256, 512)


def resnet18(layers: Layers, x: Tensor, classes: int, regularisers: Regularisers = PLAIN) -> Tensor:  # noqa: ARG001
    """Compute the logits (models, rows, classes) of ResNet-18 for small images.

    A 3x3 stem without pooling, then 64, 128, 256 and 512 channels, with two basic blocks each. He et al. 2016, "Deep
    residual learning for image recognition", table 1 and figure 5 (left). Where the shape changes, the shortcut is a
    1x1 convolution with batch norm (option B). The stem is the one commonly used for 32x32 images: the published one, a
    7x7 convolution with stride 2 and max pooling, would leave 8x8. 11,173,962 parameters for ten classes in colour.

    Initial weights of convolutions are He normal; the last layer and batch norm start as in torch. Batch norm is part
    of the network, which has no dropout.
    """
    x = _normalised_convolution(layers, "stem", x, STAGES[0], 3, 1).relu()
    before = STAGES[0]
    for stage, channels in enumerate(STAGES, 1):
        for number in (1, 2):
            name = f"stage{stage}.block{number}"
            stride = 2 if stage > 1 and number == 1 else 1
            inside = _normalised_convolution(layers, f"{name}.conv1", x, channels, 3, stride).relu()
            inside = _normalised_convolution(layers, f"{name}.conv2", inside, channels, 3, 1)
            if before != channels:
                x = _normalised_convolution(layers, f"{name}.shortcut", x, channels, 1, stride)
            x = (x + inside).relu()
            before = channels
    x = x.mean((2, 3), keepdim=True)
    return layers.dense("dense", layers.flat(x), classes, FAN_IN_UNIFORM, bias=FAN_IN_UNIFORM)


def _normalised_convolution(layers: Layers, name: str, x: Tensor, channels: int, kernel: int, stride: int) -> Tensor:
    """Apply a convolution and batch norm."""
    x = layers.conv(name, x, channels, kernel, HE_NORMAL, stride=stride, padding=kernel // 2, bias=None)
    return layers.batch_norm(f"{name}.norm", x, momentum=0.1, epsilon=1e-5)


class Definition(Protocol):
    """A network defined in terms of layers."""

    def __call__(self, layers: Layers, x: Tensor, classes: int, regularisers: Regularisers = PLAIN) -> Tensor:
        """Return the logits (models, rows, classes) of images (rows, models * channels, height, width) in [0, 1]."""


class WideDefinition(Protocol):
    """A network that is available at any width, a factor on the units and channels of its hidden layers."""

    def __call__(
        self, layers: Layers, x: Tensor, classes: int, regularisers: Regularisers = PLAIN, width: float = 1.0
    ) -> Tensor:
        """Return the same as a `Definition`."""


WIDE: Mapping[str, WideDefinition] = {"mlp1": mlp1, "cnn1": cnn1, "cnn2": cnn2}
DEFINITIONS: Mapping[str, Definition] = {
    **WIDE,
    "densenet100": densenet100,
    "resnet18": resnet18,
    NAME: airbench,
}


@dataclass(frozen=True)
class Architecture:
    """A network for images of one shape (height, width, channels) and a number of classes.

    `width` is a factor on the units and channels of its hidden layers (`tasks.models.catalog`). Raises ValueError if
    the network does not exist, or if a regulariser or the width is not available for it.
    """

    name: str
    shape: tuple[int, int, int]
    classes: int
    regularisers: Regularisers = PLAIN
    width: float = 1.0

    def __post_init__(self) -> None:
        catalog.check(self.name, self.regularisers, self.width)

    def __str__(self) -> str:
        if self.width == 1:
            name = self.name
        else:
            name = f"{self.name} of width {self.width:g}"
        return " with ".join([name, *filter(None, [str(self.regularisers)])])

    def logits(self, layers: Layers, pixels: Tensor) -> Tensor:
        """Return the logits (models, rows, classes) of pixels in [0, 1], (models, rows, height * width * channels)."""
        if self.own is not None:
            return self.own.compute(layers, pixels if is_record(self.shape) else each_models(pixels, self.shape))
        return self.definition(layers, images(pixels, self.shape), self.classes, self.regularisers)

    @property
    def definition(self) -> Definition:
        """The built-in network at this width, in terms of layers."""
        if self.width == 1:
            return DEFINITIONS[self.name]
        return partial(WIDE[self.name], width=self.width)

    @cached_property
    def weights(self) -> Mapping[str, Weight]:
        """Every tensor of the network, in initialisation order."""
        if self.own is not None:
            return self.own.module.weights
        height, width, channels = self.shape
        return weights_of(
            lambda layers, x: self.definition(layers, x, self.classes, self.regularisers),
            (channels, height, width),
        )

    def initial(self, seed: int) -> dict[str, NDArray[np.float32]]:
        """Return the initial weights, which are the same on every device."""
        if self.own is None:
            return initial(self.weights, seed)
        return self.own.module.initial(seed)

    @property
    def stackable(self) -> bool:
        """Whether several models are computed in one pass instead of one after another."""
        return self.own is None or self.own.stackable

    @property
    def capturable(self) -> bool:
        """Whether a training step without padding can be recorded once and replayed (CUDA graphs)."""
        # A step that vmap can compute depends on neither values nor torch's generator.
        return self.stackable

    @property
    def own(self) -> Method | None:
        """The method of a user's network that computes logits, or None for a built-in network."""
        if custom.is_own(self.name):
            return logits_of(self.name, input_shape(self.shape), self.classes)
        return None


@cache
def logits_of(name: str, shape: tuple[int, ...], classes: int) -> Method:
    """Return the logits method of the user's network with this name, built and tested once per process."""
    return Method(Module(name, shape, classes), "__call__", "logits", trial(shape), (classes,))


def images(pixels: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Reshape pixels (models, rows, height * width * channels) to images for layers.

    The result is (rows, models * channels, height, width).
    """
    models, rows = pixels.shape[:2]
    return pixels.view(models, rows, *shape).permute(1, 0, 4, 2, 3).reshape(rows, models * shape[2], *shape[:2])


def each_models(pixels: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Reshape pixels to separate images for each model: (models, rows, channels, height, width)."""
    return pixels.view(*pixels.shape[:2], *shape).permute(0, 1, 4, 2, 3)


Weights = Mapping[str, NDArray[np.float32]]


def weight_rows(weights: Weights) -> list[dict[str, Any]]:
    """Return the weights, in order, as stored in the `weights` column of MODEL."""
    result = []
    for name, values in weights.items():
        result.append(
            {"name": name, "shape": list(values.shape), "values": np.ascontiguousarray(values, "<f4").tobytes()}
        )
    return result


def weights_of_model(model: pa.Table, row: int = 0) -> dict[str, NDArray[np.float32]]:
    """Return the weights in one row of a MODEL table, read-only."""
    cells = model.column("weights")[row].as_py()
    result = {}
    for cell in cells:
        result[cell["name"]] = np.frombuffer(cell["values"], "<f4").reshape(cell["shape"])
    return result


def model_weights(tensors: Mapping[str, Tensor], model: int) -> dict[str, NDArray[np.float32]]:
    """Copy one model's weights from tensors (models, *shape) by name, on any device."""
    values = {name: tensor[model].detach().cpu().numpy() for name, tensor in tensors.items()}
    return {name: array.astype(np.float32) for name, array in values.items()}  # astype copies


def network_row(architecture: Architecture) -> dict[str, Any]:
    """Return the network in the format of the `network` column of MODEL."""
    row = {
        "name": architecture.name,
        "shape": list(architecture.shape),
        "classes": architecture.classes,
        "dropout": architecture.regularisers.dropout,
        "batch_norm": architecture.regularisers.batch_norm,
    }
    # see `schemas.of_width`
    if architecture.width == 1:
        return row
    return row | {"width": architecture.width}


def architecture_of(model: pa.Table) -> Architecture:
    """Return the network in the first row of a MODEL table."""
    cell = model.column("network")[0].as_py()
    height, width, channels = cell["shape"]
    regularisers = Regularisers(cell["dropout"], cell["batch_norm"])
    shape = (height, width, channels)
    factor = cell.get("width", 1.0)
    return Architecture(cell["name"], shape, cell["classes"], regularisers, factor)
