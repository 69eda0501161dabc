"""A U-Net that predicts the noise in images, given the time and a vector.

The time, encoded by sines, and the vector form one embedding. Every normalisation is a batch norm whose scale and shift
are linear in this embedding. Dhariwal & Nichol 2021, "Diffusion models beat GANs on image synthesis", section 3, with
conditional batch norm instead of group norm: Bordes et al. 2022, section 3 and figure 2.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, silu

from tasks.diffusion.diffusion_config import UNet
from tasks.models.layers import FAN_IN_UNIFORM, ONE, ZERO, Layers, Start

MOMENTUM = 0.1  # of batch norm
EPSILON = 1e-5  # torch's defaults
LONGEST = 10_000.0  # longest period of the sines of the time, in steps
GROWTH = 4  # ratio of the embedding's width to the first width of the network

Resampling = Literal["", "down", "up"]


def network(layers: Layers, x: Tensor, times: Tensor, vectors: Tensor, config: UNet) -> Tensor:
    """Predict the noise in images (rows, models * 3, side, side) at these times (models, rows), from 0.

    `vectors` are (models, rows, features). Under autocast, convolutions and attention use the autocast precision, and
    all other operations that of the weights.
    """
    unet = Blocks(layers, embed_conditions(layers, times, vectors, config), config)
    width = config.widths[0]
    x = unet.conv("first", x, width)
    passed = [x]
    for level, width in enumerate(config.widths):
        for number in range(1, config.blocks + 1):
            x = unet.attending(f"down{level}.{number}", x, width)
            passed.append(x)
        if level < len(config.widths) - 1:
            x = unet.residual(f"down{level}.resampled", x, width, "down")
            passed.append(x)
    x = unet.residual("middle1", x, width)
    x = unet.attention("middle.attention", x)
    x = unet.residual("middle2", x, width)
    for level, width in reversed(list(enumerate(config.widths))):
        for number in range(1, config.blocks + 2):
            x = unet.attending(f"up{level}.{number}", layers.concatenate_channels(x, passed.pop()), width)
        if level:
            x = unet.residual(f"up{level}.resampled", x, width, "up")
    return unet.conv("last", silu(unet.norm("last.norm", x)), 3, start=ZERO)


def embed_conditions(layers: Layers, times: Tensor, vectors: Tensor, config: UNet) -> Tensor:
    """Return the embedding of times and vectors that conditions all norms, (models, rows, 4 widths[0])."""
    with exact(vectors):
        units = GROWTH * config.widths[0]
        values = layers.dense("time1", sines(times, config.widths[0], vectors.dtype), units, FAN_IN_UNIFORM)
        values = layers.dense("time2", silu(values), units, FAN_IN_UNIFORM)
        return silu(values + layers.dense("vector", vectors, units, FAN_IN_UNIFORM))


def sines(times: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """Return cosines and sines (..., width) of the times (...), with periods from 2 pi to 20,000 pi steps.

    Vaswani et al. 2017, section 3.5, as used by Ho et al. 2020.
    """
    half = width // 2
    rates = torch.exp(torch.arange(half, device=times.device, dtype=dtype) * (-math.log(LONGEST) / half))
    angles = times[..., None].to(dtype) * rates
    return torch.cat([angles.cos(), angles.sin()], -1)


def exact(values: Tensor) -> AbstractContextManager[object]:
    """Compute in the precision of the weights inside this context."""
    if values.is_meta:  # tensors without memory, which are only counted; torch has no autocast for them
        return nullcontext()
    return torch.autocast(values.device.type, enabled=False)


@dataclass(frozen=True, eq=False)
class Blocks:
    """The network's blocks, all conditioned on the same embedding (models, rows, features)."""

    layers: Layers
    embedding: Tensor
    config: UNet

    def conv(self, name: str, x: Tensor, channels: int, kernel: int = 3, start: Start = FAN_IN_UNIFORM) -> Tensor:
        """Apply a convolution that keeps the size of images."""
        return self.layers.conv(name, x, channels, kernel, start, padding=kernel // 2)

    def norm(self, name: str, x: Tensor) -> Tensor:
        """Apply conditional batch norm: each row's scale and shift are linear in its embedding.

        gamma(e) (x - mean) / sqrt(variance + epsilon) + beta(e). Dumoulin et al. 2017, "A learned representation for
        artistic style", eq. 5, for batch norm.
        """
        layers, channels = self.layers, x.shape[1] // self.layers.models
        with exact(x):
            x = x.to(self.embedding.dtype)
            gamma = layers.dense(f"{name}.gamma", self.embedding, channels, FAN_IN_UNIFORM, ONE)
            beta = layers.dense(f"{name}.beta", self.embedding, channels, FAN_IN_UNIFORM)
            x = layers.standardise(name, x, momentum=MOMENTUM, epsilon=EPSILON)
            return x * layers.images(gamma, (channels, 1, 1)) + layers.images(beta, (channels, 1, 1))

    def residual(self, name: str, x: Tensor, channels: int, resampling: Resampling = "") -> Tensor:
        """Apply a residual block of two convolutions, the second initially 0, with optional resampling by 2."""
        before = x.shape[1] // self.layers.models
        inside = resample(silu(self.norm(f"{name}.norm1", x)), resampling)
        inside = self.conv(f"{name}.conv1", inside, channels)
        inside = silu(self.norm(f"{name}.norm2", inside))
        inside = self.conv(f"{name}.conv2", inside, channels, start=ZERO)
        x = resample(x, resampling)
        if before != channels:
            x = self.conv(f"{name}.shortcut", x, channels, 1)
        return x + inside

    def attending(self, name: str, x: Tensor, channels: int) -> Tensor:
        """Apply a residual block, followed by attention at the configured resolutions."""
        x = self.residual(name, x, channels)
        if x.shape[2] in self.config.attention:
            return self.attention(f"{name}.attention", x)
        return x

    def attention(self, name: str, x: Tensor) -> Tensor:
        """Add multi-head attention over the positions of an image, which is initially 0.

        Vaswani et al. 2017, eq. 1.
        """
        models = self.layers.models
        heads = self.config.heads
        positions = x.shape[2] * x.shape[3]
        channels = x.shape[1] // models
        width = channels // heads
        projections = self.conv(f"{name}.asked", self.norm(f"{name}.norm", x), 3 * channels, 1)
        parts = projections.reshape(len(x), models, 3, heads, width, positions).permute(2, 0, 1, 3, 4, 5)
        queries, keys, values = (part.reshape(len(x), models * heads, width, positions) for part in parts)
        # Products are explicit because the gradients of torch's fused attention are not reproducible on a GPU.
        attention = torch.softmax(
            (queries * width**-0.5).mT @ keys, -1
        )  # (rows, heads, query positions, key positions)
        attended = (values @ attention.mT).reshape(x.shape)
        return x + self.conv(f"{name}.found", attended, channels, 1, ZERO)


def resample(x: Tensor, resampling: Resampling) -> Tensor:
    """Halve the side by averaging four pixels, or double it by repeating pixels."""
    if resampling == "down":
        return avg_pool2d(x, 2)
    if resampling == "up":
        rows, channels, height, width = x.shape
        twice = x[:, :, :, None, :, None].expand(-1, -1, -1, 2, -1, 2)
        return twice.reshape(rows, channels, 2 * height, 2 * width)
    return x
