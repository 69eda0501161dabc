"""Networks and density models by name, with their regularisers and widths. Planning a training does not import torch.

A width is a factor on the units and channels of a network's hidden layers. Inputs, outputs and an autoencoder's code
keep their size. How the width affects training time follows from the number of products in the layers.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tasks.contract.extras import SCIKIT_LEARN, Extra
from tasks.models.custom import ESTIMATOR, Factory, Named, is_estimator, is_own

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.models.layers import Layers, Start


# dropout rates
DENSE = 0.2
CONVOLUTIONAL = 0.5


@dataclass(frozen=True)
class Regularisers:
    """The regularisers that the paper adds inside a network.

    Hartley & Tsaftaris, "Unintended memorisation of unique features in neural networks", A.4. Dropout is 0.2 after
    dense layers and 0.5 after convolutional ones, with none on the logits. Batch norm comes directly before each
    activation, with Keras's momentum 0.99 (the running statistics move by 0.01) and epsilon 0.001.
    """

    dropout: bool = False
    batch_norm: bool = False

    def __str__(self) -> str:
        return " and ".join(name for name, on in (("dropout", self.dropout), ("batch norm", self.batch_norm)) if on)

    @property
    def bias(self) -> Start | None:
        """The initial bias of a hidden layer.

        None with batch norm, which cancels the bias so that it has no gradient.
        """
        from tasks.models.layers import ZERO

        return None if self.batch_norm else ZERO


PLAIN = Regularisers()


def activate(layers: Layers, x: Tensor, number: int, rate: float, regularisers: Regularisers) -> Tensor:
    """Apply ReLU to a hidden layer. If enabled, batch norm comes directly before it and dropout of `rate` after it.

    `number` counts the network's activations from 1: norm1, norm2, ...
    """
    if regularisers.batch_norm:
        x = layers.batch_norm(f"norm{number}", x, momentum=0.01, epsilon=1e-3)
    # In place if this saves memory: no gradient needs the output of a convolution, pooling or batch norm.
    x = x.relu_() if x.dim() == 4 else x.relu()
    return layers.dropout(x, rate) if regularisers.dropout else x


Shape = tuple[int, int, int]  # image shape: height, width, channels


def is_record(shape: Shape) -> bool:
    """Return whether this is the shape of a record of a table, which is stored like an image of one pixel."""
    return shape[:2] == (1, 1)


def input_shape(shape: Shape) -> tuple[int, ...]:
    """Return the shape of one input of a user's network: (channels, height, width), or (features,) for a table."""
    height, width, channels = shape
    return (channels,) if is_record(shape) else (channels, height, width)


def _scale_count(count: int, width: float) -> int:
    return max(1, math.floor(width * count + 0.5))


@dataclass(frozen=True)
class Hidden:
    """The hidden layers of a network: 3x3 convolutions without padding, then dense layers.

    `pooled` lists the convolutions, counted from 1, after which the sides of the images are halved.
    """

    channels: tuple[int, ...] = ()
    units: tuple[int, ...] = ()
    pooled: tuple[int, ...] = ()

    def times(self, width: float) -> Hidden:
        """Return the layers with scaled channels and units, rounded to integers (half up), at least 1."""
        channels = tuple(_scale_count(count, width) for count in self.channels)
        units = tuple(_scale_count(count, width) for count in self.units)
        return Hidden(channels, units, self.pooled)

    def products(self, shape: Shape, outputs: int) -> int:
        """Return the number of multiplications in one image's forward pass to `outputs` outputs."""
        height, width, inputs = shape
        count = 0
        for number, channels in enumerate(self.channels, 1):
            height = max(1, height - 2)
            width = max(1, width - 2)
            count += height * width * channels * inputs * 9
            inputs = channels
            if number in self.pooled:
                height = max(1, height // 2)
                width = max(1, width // 2)
        sizes = (height * width * inputs, *self.units, outputs)
        return count + sum(before * after for before, after in itertools.pairwise(sizes))


MLP1 = Hidden(units=(512, 256, 128))
CNN1 = Hidden(channels=(32, 64), units=(128, 128), pooled=(2,))
CNN2 = Hidden(channels=(32, 32, 64, 64), units=(1024,), pooled=(2, 4))
VAE = Hidden(units=(512, 256))  # the encoder; the decoder mirrors it
CODE = 16  # size of the autoencoder's code
FRAME = 2  # width, in pixels, of the zero frame that is added to its input images

# The share of a step's time that does not depend on the width: images, batches, optimiser calls. In processor time, the
# steps of mlp1, cnn1 and vae at widths 0.25, 0.5 and 2 are within a factor of 1.5 of the resulting prediction (digits).
UNCHANGED = 0.15

CLASSIFIERS: Mapping[str, Hidden] = {"mlp1": MLP1, "cnn1": CNN1, "cnn2": CNN2}


def _check_width(field: str, name: str, width: float, wide: Collection[str]) -> None:
    """Raise ValueError unless this field's network is available at this width. Networks in `wide` have any width."""
    if not 0 < width < math.inf:
        raise ValueError(f"width is {width}; it must be a finite number above 0")
    if width != 1 and name not in wide:
        raise ValueError(f"width is {width:g} and {field} is {name}; {field} must be one of {', '.join(wide)} for it")


def classifier_growth(name: str, shape: Shape, classes: int, width: float) -> float:
    """Return a classifier's work at this width relative to its published width; 1 for networks without widths."""
    if width == 1:
        return 1.0
    hidden = CLASSIFIERS[name]
    return _relative_time(hidden.times(width).products(shape, classes) / hidden.products(shape, classes))


def autoencoder_growth(shape: Shape, width: float) -> tuple[float, float]:
    """Return the autoencoder's work relative to its published width.

    The first number is for a training step, the second for decoding a code.
    """
    if width == 1:
        return 1.0, 1.0
    (training_work, decoding_work), (published_training_work, published_decoding_work) = (
        _autoencoder(shape, factor) for factor in (width, 1.0)
    )
    return _relative_time(training_work / published_training_work), _relative_time(
        decoding_work / published_decoding_work
    )


def _relative_time(products: float) -> float:
    """Return the factor by which the time of a step grows if its products grow by this factor."""
    return UNCHANGED + (1 - UNCHANGED) * products


def _autoencoder(shape: Shape, width: float) -> tuple[int, int]:
    """Return the number of multiplications per image in both networks together, and in the decoder alone."""
    height, across, channels = shape
    pixels = (height + 2 * FRAME) * (across + 2 * FRAME) * channels
    hidden = VAE.times(width)
    decoder = Hidden(units=hidden.units[::-1]).products((1, 1, CODE), pixels)
    return hidden.products((1, 1, pixels), 2 * CODE) + decoder, decoder


DESCRIPTIONS: Mapping[str, str] = {
    "mlp1": "512-256-128 units, ReLU; dropout, batch_norm, width",
    "cnn1": "two convolutions and two dense layers, for 28x28 images; dropout, batch_norm, width",
    "cnn2": "four convolutions and a dense layer of 1024, for 32x32 images; dropout, batch_norm, width",
    "densenet100": "DenseNet-BC, 100 layers, growth 12, with batch norm; dropout",
    "resnet18": "ResNet-18 for small images, with batch norm",
    "airbench": "fast to train on 32x32 images in colour, with batch norm; for optimiser=nesterov",
    "PACKAGE.MODULE:FACTORY": "your own: factory(shape, classes) makes a torch.nn.Module from images to logits",
}
# Batch norm that is part of a network is not an option, so each network can be written in only one way.
OPTIONS: Mapping[str, frozenset[str]] = {
    "mlp1": frozenset({"dropout", "batch_norm"}),
    "cnn1": frozenset({"dropout", "batch_norm"}),
    "cnn2": frozenset({"dropout", "batch_norm"}),
    "densenet100": frozenset({"dropout"}),
    "resnet18": frozenset(),
    "airbench": frozenset(),
}


@dataclass(frozen=True)
class Network(Named):
    """A classifier by name: `mlp1`, `package.module:factory` or `package.module:factory@digest`.

    `sklearn:sklearn.module.Class` or `sklearn:package.module:factory` is a scikit-learn estimator.
    """

    choices = f"one of {', '.join(DESCRIPTIONS)}"

    def check(self) -> None:
        check(str(self), has_estimators=True)

    @property
    def is_estimator(self) -> bool:
        return is_estimator(self.name)

    def extras(self) -> tuple[Extra, ...]:
        return (SCIKIT_LEARN,) if self.is_estimator else ()


def check(name: str, regularisers: Regularisers = PLAIN, width: float = 1.0, has_estimators: bool = False) -> None:
    """Raise ValueError unless the network exists, supports these regularisers and is available at this width.

    Estimators are refused unless the caller `has_estimators`.
    """
    if is_estimator(name) and not has_estimators:
        raise ValueError(f"network is {name}; only membership trains scikit-learn estimators")
    if is_own(name):
        Factory.parse(name)
    elif is_estimator(name):
        _check_estimator(name)
    elif name not in OPTIONS:
        raise ValueError(f"network is {name!r}; it must be {Network.choices}")
    _check_width("network", name, width, CLASSIFIERS)
    options = OPTIONS.get(name, frozenset())
    requested_options = set()
    for field in dataclasses.fields(regularisers):
        if getattr(regularisers, field.name):
            requested_options.add(field.name)
    refused = sorted(requested_options - options)
    if refused:
        supported_options = ", ".join(sorted(options)) or "none"
        raise ValueError(
            f"{refused[0]} is on, but {name} has no such option; its regularisers are: {supported_options}"
        )


def _check_estimator(name: str) -> None:
    """Raise ValueError unless this is the path of a class in scikit-learn."""
    parts = name.removeprefix(ESTIMATOR).split(".")
    if len(parts) < 2 or parts[0] != "sklearn" or not all(map(str.isidentifier, parts)):
        raise ValueError(
            f"network is {name!r}; write an estimator as sklearn:sklearn.ensemble.RandomForestClassifier, or your own, "
            "with any arguments, as sklearn:package.module:factory"
        )


DENSITY_DESCRIPTIONS: Mapping[str, str] = {
    "vae": "fully connected 512-256-16 and its mirror, of binary pixels in a frame of two; width",
    "conv-vae": "convolutional, 64 codes, for 32x32 images; normal pixels whose variances the decoder gives",
    "conv-vae-one-scale": "convolutional, 32 codes, for 32x32 images; normal pixels of one learned variance",
    "PACKAGE.MODULE:FACTORY": "your own: factory(shape) makes a torch.nn.Module with log_prob(images)",
}
WIDE_DENSITIES = ("vae",)  # hidden layers are available at any width
DENSITY_SIZES: Mapping[str, tuple[int, int]] = {"conv-vae": (32, 32), "conv-vae-one-scale": (32, 32)}  # the only ones


@dataclass(frozen=True)
class DensityModel(Named):
    """A density model by name: `vae`, `package.module:factory` or `package.module:factory@digest`."""

    choices = f"one of {', '.join(DENSITY_DESCRIPTIONS)}"

    def check(self, width: float = 1.0) -> None:
        """Raise ValueError unless the model exists and is available at this width."""
        if is_own(self.name):
            Factory.parse(str(self), "model")
        elif self.name not in DENSITY_DESCRIPTIONS:
            raise ValueError(f"model is {self.name!r}; it must be {self.choices}")
        _check_width("model", self.name, width, WIDE_DENSITIES)

    def check_size(self, height: int, width: int) -> None:
        """Raise ValueError if the model does not support images of this size."""
        expected = DENSITY_SIZES.get(self.name, (height, width))
        if (height, width) != expected:
            raise ValueError(
                f"model is {self.name}, for images of {expected[0]} x {expected[1]}; the data's are {height} x {width} "
                f"(add #{expected[0]}x{expected[1]} to their name to have them resized)"
            )
