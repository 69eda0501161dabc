"""What a generative model sees of an image, and the way back: binary pixels, or real ones, in logit space or not.

Images come as bytes, (models, rows, height * width * channels), and are seen as (models, rows, channels * height *
width). What is random about that is drawn from `CounterRng`. For a fixed view of every observation, the same for all
models and whenever it is looked at, the observations take the models' place: see `fixed`.

Van den Burg & Williams 2021, "On memorization in probabilistic deep generative models", supplement B.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from tasks.models.counter_rng import CounterRng, step_keys
from tasks.numerics import seeds

Shape = tuple[int, int, int]

# Places for draws. Networks number their own from 1.
BINARISED, DEQUANTISED, FLIPPED = -1, -2, -3


class Preparation(Protocol):
    """How images become what a model has a density of."""

    @property
    def seen_shape(self) -> Shape:
        """Channels, height and width of what the model sees."""

    def to_model_inputs(self, pixels: Tensor, draws: CounterRng, dtype: torch.dtype, training: bool = False) -> Tensor:
        """Bytes (models, rows, height * width * channels) as the model sees them in this draw."""

    def to_pixels(self, seen: Tensor) -> Tensor:
        """What turns the log density of what is seen (..., features) into that of the bytes: (...), in nats."""

    def displayed_pixels(self, seen: Tensor) -> Tensor:
        """What is seen (models, rows, features) as pixels in [0, 1], (models, rows, height * width * channels)."""


@dataclass(frozen=True)
class Binary:
    """Each pixel is 1 with probability pixel / 255 (to within 2^-16) and else 0, inside a frame of zeros."""

    shape: Shape  # height, width, channels
    padding: int = 2

    @property
    def seen_shape(self) -> Shape:
        height, width, channels = self.shape
        return channels, height + 2 * self.padding, width + 2 * self.padding

    def to_model_inputs(self, pixels: Tensor, draws: CounterRng, dtype: torch.dtype, training: bool = False) -> Tensor:  # noqa: ARG002
        images = channels_first(pixels, self.shape)
        models, count = len(images), images[0].numel()
        words = draws.words(BINARISED, -(-count // 4)).view(torch.int16)[:, :count]
        # Both steps are exact in float32: 2^16 equal steps over [0, 255).
        levels = words.to(torch.float32).mul_(255 / 2**16).add_(127.5)
        ones = levels.view(images.shape) < images
        if not self.padding:
            return ones.to(dtype).view(models, len(images[0]), -1)
        framed = torch.zeros(*images.shape[:2], *self.seen_shape, dtype=dtype, device=pixels.device)
        inner = slice(self.padding, -self.padding)
        framed[..., inner, inner] = ones
        return framed.flatten(2)

    def to_pixels(self, seen: Tensor) -> Tensor:
        return torch.zeros(seen.shape[:-1], dtype=seen.dtype, device=seen.device)

    def displayed_pixels(self, seen: Tensor) -> Tensor:
        images = torch.unflatten(seen, 2, self.seen_shape)
        _, height, width = self.seen_shape
        rows, columns = slice(self.padding, height - self.padding), slice(self.padding, width - self.padding)
        return images[..., rows, columns].permute(0, 1, 3, 4, 2).flatten(2)


@dataclass(frozen=True)
class Dequantised:
    """(byte + u) / 256, u uniform in (0, 1). Theis et al. 2016, "A note on the evaluation of generative models".

    u is one of the middles of 2^15 equal steps: byte + u is exact in float32, and what is seen is never 0 or 1.
    """

    shape: Shape  # height, width, channels

    @property
    def seen_shape(self) -> Shape:
        height, width, channels = self.shape
        return channels, height, width

    def to_model_inputs(self, pixels: Tensor, draws: CounterRng, dtype: torch.dtype, training: bool = False) -> Tensor:  # noqa: ARG002
        images = channels_first(pixels, self.shape)
        count = images[0].numel()
        steps = draws.words(DEQUANTISED, -(-count // 4)).view(torch.int16)[:, :count].bitwise_and(2**15 - 1)
        shares = steps.to(dtype).add_(0.5).mul_(2.0**-15).view(images.shape).add_(images)
        return shares.mul_(1 / 256).flatten(2)

    def to_pixels(self, seen: Tensor) -> Tensor:
        """-D log 256"""
        return seen.new_full(seen.shape[:-1], -seen.shape[-1] * math.log(256))

    def displayed_pixels(self, seen: Tensor) -> Tensor:
        return torch.unflatten(seen.clamp(0, 1), 2, self.seen_shape).permute(0, 1, 3, 4, 2).flatten(2)


@dataclass(frozen=True)
class Logit:
    """y = logit(lambda + (1 - 2 lambda) (u + byte) / 256), u uniform in [0, 1). In training half are mirrored.

    Dequantised after Theis et al. 2016, in logit space after Dinh et al. 2017 (section 4.1); lambda 0.05.
    """

    shape: Shape  # height, width, channels
    margin: float = 0.05  # lambda
    mirrored: bool = True

    @property
    def seen_shape(self) -> Shape:
        height, width, channels = self.shape
        return channels, height, width

    def to_model_inputs(self, pixels: Tensor, draws: CounterRng, dtype: torch.dtype, training: bool = False) -> Tensor:
        images = channels_first(pixels, self.shape)
        if training and self.mirrored:
            turned = draws.uniform(FLIPPED, (images.shape[1],)) < 0.5
            images = torch.where(turned[..., None, None, None], images.flip(-1), images)
        share = draws.uniform(DEQUANTISED, images.shape[1:], dtype).add_(images).mul_((1 - 2 * self.margin) / 256)
        return share.add_(self.margin).logit_().flatten(2)

    def to_pixels(self, seen: Tensor) -> Tensor:
        """D log(1 - 2 lambda) - D log 256 - sum of y - 2 softplus(y): the logarithm of |dy / d(u + byte)|.

        With w = sigmoid(y), dy / dw = 1 / (w (1 - w)), and log w (1 - w) = y - 2 softplus(y).
        """
        # The sum is even in y; written for |y|, nothing overflows and nothing cancels.
        apart = seen.abs()
        sums = (apart + 2 * apart.neg().exp().log1p()).sum(-1)
        return sums + seen.shape[-1] * math.log((1 - 2 * self.margin) / 256)

    def displayed_pixels(self, seen: Tensor) -> Tensor:
        shares = seen.sigmoid().sub_(self.margin).div_(1 - 2 * self.margin).clamp_(0, 1)
        return torch.unflatten(shares, 2, self.seen_shape).permute(0, 1, 3, 4, 2).flatten(2)


def fixed_inputs(preparation: Preparation, pixels: Tensor, keys: Tensor, dtype: torch.dtype) -> Tensor:
    """Observations (n, height * width * channels) as seen once and for all, (n, features), by their `keys` (n,)."""
    return preparation.to_model_inputs(pixels[:, None], CounterRng(keys), dtype)[:, 0]


def observation_keys(seed: int, rows: Tensor) -> Tensor:
    """The keys of observations by their row in the data set (n,) int64, for draws that all models share."""
    return step_keys(torch.tensor(seeds.derive(seed, "observations"), device=rows.device), rows)


def channels_first(pixels: Tensor, shape: Shape) -> Tensor:
    """Rows (models, rows, height * width * channels) as (models, rows, channels, height, width)."""
    return torch.unflatten(pixels, 2, shape).permute(0, 1, 4, 2, 3)
