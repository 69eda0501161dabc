"""Variational autoencoders. The encoder returns N(mean, variance) of the code, the decoder a distribution of images.

The prior of the code is N(0, I). Weights and biases are initialised as in torch, convolutions have no bias, and batch
norm has torch's defaults. Van den Burg & Williams 2021, "On memorization in probabilistic deep generative models",
table 1, with the additions of their released code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from torch import Tensor
from torch.nn import functional

from tasks.models.catalog import CODE, VAE
from tasks.models.layers import FAN_IN_UNIFORM, Layers, Weight, constant, weights_of
from tasks.models.likelihoods import Bernoulli, Binary, Gaussian, Likelihood, Logit, Preparation

LATENT = -4  # random number site of codes, in addition to those of tasks.models.likelihoods
LEAST_LOG_VARIANCE = -7.0  # lower bound in CIFAR-10's decoder
FIRST_LOG_VARIANCE = -2.0  # initial value in CelebA's one-scale model


class Vae(Protocol):
    """A variational autoencoder as functions of layers. Images are (models, rows, channels * height * width)."""

    @property
    def name(self) -> str:
        """The name of the model."""

    @property
    def preparation(self) -> Preparation:
        """How bytes are converted to inputs."""

    @property
    def latent(self) -> int:
        """The number of values in a code."""

    @property
    def weights(self) -> Mapping[str, Weight]:
        """Every tensor of both networks, in initialisation order."""

    def encode(self, layers: Layers, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean and log variance of every image's code, both (models, rows, latent)."""

    def decode(self, layers: Layers, z: Tensor) -> Likelihood:
        """Return the distribution of images for every code (models, rows, latent)."""


@dataclass(frozen=True)
class Dense:
    """The fully connected autoencoder: 1024-512-256-16 and its mirror, with ReLU and Bernoulli pixels.

    The layers are encoder1 to encoder3 and decoder1 to decoder3. encoder3 computes the mean and the log variance
    together, since two layers with the same input are equivalent to one.
    """

    preparation: Binary
    latent: int = CODE
    hidden: tuple[int, ...] = VAE.units

    @property
    def name(self) -> str:
        name = "fully connected autoencoder"
        if self.hidden == VAE.units:
            return name
        return f"{name} of {'-'.join(map(str, self.hidden))} units"

    @cached_property
    def weights(self) -> Mapping[str, Weight]:
        return outline_weights(self)

    def encode(self, layers: Layers, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_variance = chain(layers, "encoder", x, (*self.hidden, 2 * self.latent)).chunk(2, -1)
        return mean, log_variance

    def decode(self, layers: Layers, z: Tensor) -> Bernoulli:
        pixels = math.prod(self.preparation.seen_shape)
        return Bernoulli(chain(layers, "decoder", z, (*self.hidden[::-1], pixels)))


def chain(layers: Layers, name: str, x: Tensor, widths: tuple[int, ...]) -> Tensor:
    """Apply dense layers with ReLU between them."""
    for number, units in enumerate(widths, 1):
        x = layers.dense(f"{name}{number}", x, units, FAN_IN_UNIFORM, FAN_IN_UNIFORM)
        if number < len(widths):
            x = x.relu() if x.requires_grad else x.relu_()
    return x


@dataclass(frozen=True)
class Convolutional:
    """The convolutional autoencoder for 32 x 32 images, with Gaussian pixels.

    Log variances are outputs of the decoder, at least -7, or, with `one_scale`, a single learned number that starts at
    -2. The layers are encoder1 to encoder4, posterior (mean and log variance concatenated), and decoder1 to decoder5.
    """

    preparation: Preparation
    latent: int
    one_scale: bool
    filters: int = 32
    name = "convolutional autoencoder"

    def __post_init__(self) -> None:
        _, height, width = self.preparation.seen_shape
        if (height, width) != (32, 32):
            raise ValueError(f"the convolutional autoencoder is for images of 32 x 32, not {height} x {width}")

    @cached_property
    def weights(self) -> Mapping[str, Weight]:
        return outline_weights(self)

    def encode(self, layers: Layers, x: Tensor) -> tuple[Tensor, Tensor]:
        images = layers.images(x, self.preparation.seen_shape)
        for number, growth in enumerate((1, 2, 4, 8), 1):
            channels = growth * self.filters
            images = layers.conv(
                f"encoder{number}", images, channels, 4, FAN_IN_UNIFORM, stride=2, padding=1, bias=None
            )
            if number > 1:
                images = norm(layers, f"encoder{number}.norm", images)
            images = functional.leaky_relu(images, 0.2)
        posterior = layers.dense("posterior", layers.flat(images), 2 * self.latent, FAN_IN_UNIFORM, FAN_IN_UNIFORM)
        mean, log_variance = posterior.chunk(2, -1)
        return mean, log_variance

    def decode(self, layers: Layers, z: Tensor) -> Gaussian:
        images = layers.images(z, (self.latent, 1, 1))
        for number, growth in enumerate((8, 4, 2, 1), 1):
            kernel, stride, padding = (2, 1, 0) if number == 1 else (4, 2, 1)
            name = f"decoder{number}"
            channels = growth * self.filters
            images = layers.transposed_conv(
                name, images, channels, kernel, FAN_IN_UNIFORM, stride=stride, padding=padding, bias=None
            )
            images = norm(layers, f"{name}.norm", images).relu()
        channels = self.preparation.seen_shape[0] * (1 if self.one_scale else 2)
        last = layers.transposed_conv("decoder5", images, channels, 4, FAN_IN_UNIFORM, stride=2, padding=1, bias=None)
        out = layers.flat(last)
        if self.one_scale:
            scale = layers.weight("decoder.log_variance", (1,), constant(FIRST_LOG_VARIANCE))
            return Gaussian(out, scale[:, None])
        mean, log_variance = out.chunk(2, -1)
        return Gaussian(mean, log_variance.clamp(min=LEAST_LOG_VARIANCE))


def norm(layers: Layers, name: str, images: Tensor) -> Tensor:
    return layers.batch_norm(name, images, momentum=0.1, epsilon=1e-5)


def outline_weights(vae: Vae) -> dict[str, Weight]:
    """Return the weights of both networks."""
    return weights_of(
        lambda layers, x: vae.decode(layers, vae.encode(layers, layers.flat(x))[0]), vae.preparation.seen_shape
    )


def mnist(shape: tuple[int, int, int] = (28, 28, 1), width: float = 1.0) -> Dense:
    return Dense(Binary(shape), hidden=VAE.times(width).units)


def cifar10(shape: tuple[int, int, int] = (32, 32, 3)) -> Convolutional:
    return Convolutional(Logit(shape), latent=64, one_scale=False)


def celeba(shape: tuple[int, int, int] = (32, 32, 3)) -> Convolutional:
    return Convolutional(Logit(shape), latent=32, one_scale=True)
