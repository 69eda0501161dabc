"""Inputs of generative image models, and their likelihoods given a code.

Inputs are binary or real pixels, possibly in logit space. Images are bytes (models, rows, height * width * channels),
and inputs are (models, rows, channels * height * width). Random parts are drawn from `CounterRng`. To give each
observation a fixed input, the same for all models and in every evaluation, observations take the place of models: see
`fixed_inputs`.

Given a code, pixels are independent and either Bernoulli or Gaussian. Features are on the last axis, over which log
densities are summed, in nats.

Van den Burg & Williams 2021, "On memorization in probabilistic deep generative models", supplement B.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from tasks.datasets.images import Pixels, rows_at_once
from tasks.datasets.picture_rows import Sliceable, slices
from tasks.models.counter_rng import CounterRng, step_keys
from tasks.numerics import seeds

Shape = tuple[int, int, int]

# Random number sites. Networks number their own sites from 1.
BINARISED = -1
DEQUANTISED = -2
FLIPPED = -3


class Preparation(Protocol):
    """How images are converted to the inputs of a density model."""

    @property
    def seen_shape(self) -> Shape:
        """Channels, height and width of the model's inputs."""

    def to_model_inputs(self, pixels: Tensor, draws: CounterRng, dtype: torch.dtype, training: bool = False) -> Tensor:
        """Convert bytes (models, rows, height * width * channels) to the model's inputs in this draw."""

    def to_pixels(self, inputs: Tensor) -> Tensor:
        """Return the correction (...), in nats, from the log density of inputs (..., features) to that of bytes."""

    def displayed_pixels(self, inputs: Tensor) -> Tensor:
        """Convert inputs (models, rows, features) to pixels in [0, 1], (models, rows, height * width * channels)."""


@dataclass(frozen=True)
class Binary:
    """Each pixel is 1 with probability pixel / 255 (to within 2^-16), otherwise 0, inside a frame of zeros."""

    shape: Shape  # height, width, channels
    padding: int = 2

    @property
    def seen_shape(self) -> Shape:
        height, width, channels = self.shape
        return channels, height + 2 * self.padding, width + 2 * self.padding

    def to_model_inputs(self, pixels: Tensor, draws: CounterRng, dtype: torch.dtype, training: bool = False) -> Tensor:  # noqa: ARG002
        images = _channels_first(pixels, self.shape)
        models = len(images)
        quarters = draws.quarters(BINARISED, images.shape[1:])
        # Both operations are exact in float32: 2^16 equal steps over [0, 255).
        levels = quarters.to(torch.float32).mul_(255 / 2**16).add_(127.5)
        ones = levels < images
        if not self.padding:
            return ones.to(dtype).view(models, len(images[0]), -1)
        framed = torch.zeros(*images.shape[:2], *self.seen_shape, dtype=dtype, device=pixels.device)
        inner = slice(self.padding, -self.padding)
        framed[..., inner, inner] = ones
        return framed.flatten(2)

    def to_pixels(self, inputs: Tensor) -> Tensor:
        return torch.zeros(inputs.shape[:-1], dtype=inputs.dtype, device=inputs.device)

    def displayed_pixels(self, inputs: Tensor) -> Tensor:
        images = torch.unflatten(inputs, 2, self.seen_shape)
        _, height, width = self.seen_shape
        rows, columns = slice(self.padding, height - self.padding), slice(self.padding, width - self.padding)
        return images[..., rows, columns].permute(0, 1, 3, 4, 2).flatten(2)


@dataclass(frozen=True)
class Dequantised:
    """(byte + u) / 256, u uniform in (0, 1). Theis et al. 2016, "A note on the evaluation of generative models".

    u is the midpoint of one of 2^15 equal steps, so byte + u is exact in float32 and inputs are never 0 or 1.
    """

    shape: Shape  # height, width, channels

    @property
    def seen_shape(self) -> Shape:
        height, width, channels = self.shape
        return channels, height, width

    def to_model_inputs(self, pixels: Tensor, draws: CounterRng, dtype: torch.dtype, training: bool = False) -> Tensor:  # noqa: ARG002
        images = _channels_first(pixels, self.shape)
        steps = draws.quarters(DEQUANTISED, images.shape[1:]).bitwise_and(2**15 - 1)
        shares = steps.to(dtype).add_(0.5).mul_(2.0**-15).add_(images)
        return shares.mul_(1 / 256).flatten(2)

    def to_pixels(self, inputs: Tensor) -> Tensor:
        """Return -D log 256."""
        return inputs.new_full(inputs.shape[:-1], -inputs.shape[-1] * math.log(256))

    def displayed_pixels(self, inputs: Tensor) -> Tensor:
        return torch.unflatten(inputs.clamp(0, 1), 2, self.seen_shape).permute(0, 1, 3, 4, 2).flatten(2)


@dataclass(frozen=True)
class Logit:
    """y = logit(lambda + (1 - 2 lambda) (u + byte) / 256), u uniform in [0, 1). In training, half are mirrored.

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
        images = _channels_first(pixels, self.shape)
        if training and self.mirrored:
            turned = draws.uniform(FLIPPED, (images.shape[1],)) < 0.5
            images = torch.where(turned[..., None, None, None], images.flip(-1), images)
        share = draws.uniform(DEQUANTISED, images.shape[1:], dtype).add_(images).mul_((1 - 2 * self.margin) / 256)
        return share.add_(self.margin).logit_().flatten(2)

    def to_pixels(self, inputs: Tensor) -> Tensor:
        """Return the logarithm of |dy / d(u + byte)|.

        D log(1 - 2 lambda) - D log 256 - sum of y - 2 softplus(y). With w = sigmoid(y), dy / dw = 1 / (w (1 - w)), and
        log w (1 - w) = y - 2 softplus(y).
        """
        # The sum is even in y. Written in terms of |y|, nothing overflows and nothing cancels.
        magnitudes = inputs.abs()
        sums = (magnitudes + 2 * magnitudes.neg().exp().log1p()).sum(-1)
        return sums + inputs.shape[-1] * math.log((1 - 2 * self.margin) / 256)

    def displayed_pixels(self, inputs: Tensor) -> Tensor:
        shares = inputs.sigmoid().sub_(self.margin).div_(1 - 2 * self.margin).clamp_(0, 1)
        return torch.unflatten(shares, 2, self.seen_shape).permute(0, 1, 3, 4, 2).flatten(2)


def fixed_inputs(preparation: Preparation, pixels: Tensor, keys: Tensor, dtype: torch.dtype) -> Tensor:
    """Return fixed inputs (n, features) of observations (n, height * width * channels).

    They are drawn with the observations' `keys` (n,).
    """
    return preparation.to_model_inputs(pixels[:, None], CounterRng(keys), dtype)[:, 0]


def observation_keys(seed: int, rows: Tensor) -> Tensor:
    """Return keys, derived from the observations' rows in the data set (n,) int64, for draws that all models share."""
    return step_keys(torch.tensor(seeds.derive(seed, "observations"), device=rows.device), rows)


def _channels_first(pixels: Tensor, shape: Shape) -> Tensor:
    """Reshape (models, rows, height * width * channels) to (models, rows, channels, height, width)."""
    return torch.unflatten(pixels, 2, shape).permute(0, 1, 4, 2, 3)


# Number of probabilities that are multiplied before taking a logarithm. Their product is a normal float32 number if the
# total log probability of these pixels is above -87.
TOGETHER = 16


class Likelihood(Protocol):
    """A distribution of images for every code in a batch (models, rows)."""

    def log_p(self, x: Tensor) -> Tensor:
        """Return the log density (models, rows) of images x (models or 1, points, features).

        Every point has the same number of rows, one after another: rows = points * codes.
        """

    @property
    def mean(self) -> Tensor:
        """The mean image of every code, (models, rows, features)."""


@dataclass(frozen=True, eq=False)
class Bernoulli:
    """Pixels that are 1 with probability sigmoid(logits), otherwise 0. Logits are (models, rows, features)."""

    logits: Tensor

    def log_p(self, x: Tensor) -> Tensor:
        """Return the sum over pixels of log sigmoid(s logit), with s = 2 x - 1."""
        # s determines the dtype: bfloat16 logits are summed in the dtype of x.
        s = (2 * x - 1)[:, :, None]
        signed = s * torch.unflatten(self.logits, 1, (x.shape[1], -1))
        if signed.requires_grad:
            sums = functional.logsigmoid(signed).sum(-1)
        else:
            sums = log_sigmoids(signed)
        return sums.flatten(1)

    @property
    def mean(self) -> Tensor:
        return self.logits.sigmoid()


def log_sigmoids(x: Tensor) -> Tensor:
    """Sum log sigmoid(x) over the last axis, with one logarithm per `TOGETHER` values.

    On a CPU, a logarithm takes four times as long as a sigmoid and twenty times as long as a product. All summands have
    the same sign and the sum is small for a good fit, so there is no cancellation. If a product would leave the range
    of normal numbers, its row is summed with separate logarithms.
    """
    group = math.gcd(x.shape[-1], TOGETHER)
    # With three axes, torch multiplies along the second axis fifteen times as fast as with five axes.
    products = x.sigmoid().view(-1, group, x.shape[-1] // group).prod(1)
    sums = products.log().sum(1)
    small = products.amin(1) < torch.finfo(x.dtype).tiny
    if small.any():
        sums[small] = functional.logsigmoid(x.flatten(0, -2)[small]).sum(1)
    return sums.view(x.shape[:-1])


@dataclass(frozen=True, eq=False)
class Gaussian:
    """Independent normal features with mean (models, rows, features). Several features may share a log variance."""

    mean: Tensor
    log_variance: Tensor

    def log_p(self, x: Tensor) -> Tensor:
        """Return the sum of -(log 2 pi + log variance + (x - mean)^2 / variance) / 2."""
        deviations = x[:, :, None] - torch.unflatten(self.mean, 1, (x.shape[1], -1))
        squares = deviations.square()
        if self.log_variance.shape[-1] == 1:  # shared by all features
            shared = self.log_variance[..., 0]
            sums = squares.sum(-1).flatten(1)
            return -0.5 * (x.shape[-1] * (math.log(2 * math.pi) + shared) + sums * (-shared).exp())
        log_variance = torch.unflatten(self.log_variance, 1, (x.shape[1], -1)).to(x.dtype)
        return -0.5 * (squares * (-log_variance).exp() + log_variance + math.log(2 * math.pi)).sum(-1).flatten(1)


def divergence(mean: Tensor, log_variance: Tensor) -> Tensor:
    """Return the Kullback-Leibler divergence of N(mean, variance) from N(0, I).

    (mean^2 + variance - 1 - log variance) / 2, summed. Kingma & Welling 2014, appendix B.
    """
    return 0.5 * (mean.square() + log_variance.expm1() - log_variance).sum(-1)


WIDER = 2.0  # factor on the standard deviation of real pixels
# Logit pixels lie within 2.95 of 0. With this deviation, no byte is more than six deviations away from any mean.
LEAST_DEVIATION = 1.0
VIEW = 0  # seed of the single view of the test split
AT_ONCE = 1024  # images processed at a time


class OutlierDensity:
    """A density of images with broad support, learned without any training image.

    Van den Burg & Williams 2021, "On memorization in probabilistic deep generative models", section 5, propose one
    "with broad support but low probability (such as a Gaussian with high variance)" without giving a formula. Engram
    uses independent Bernoulli pixels, or normal pixels in logit space, fitted to `images` (n, h, w, c). The parameters
    come from the test split only, so the broad density does not contribute to memorization scores.

    A binary pixel is 1 with probability (q + 1/2) / 2, which is from 1/4 to 3/4, where q = (1 + the sum of its shares
    byte / 255) / (2 + n). A normal pixel has the mean of the images and twice their standard deviation, at least 1,
    estimated from one dequantised copy of the images.
    """

    def __init__(self, preparation: Preparation, images: Sliceable) -> None:
        if isinstance(preparation, Binary):
            parameters = [_binary_logits(preparation, images)]
        else:
            parameters = _normal_parameters(preparation, images)
        on_cpu = [parameter.expand(1, 1, -1) for parameter in parameters]
        self._placed = {(torch.device("cpu"), torch.float64): on_cpu}

    def log_p(self, x: Tensor) -> Tensor:
        """Return the log density (models, rows) of inputs (models, rows, features), in nats."""
        # Like x, the parameters have one row per point, since a likelihood receives the codes of points.
        parameters = [parameter.expand(*x.shape[:2], -1) for parameter in self._like(x)]
        return (Bernoulli if len(parameters) == 1 else Gaussian)(*parameters).log_p(x)

    def _like(self, x: Tensor) -> list[Tensor]:
        """Return the parameters on x's device.

        They are copied there only once, because a CUDA graph stores their addresses.
        """
        placement = x.device, x.dtype
        if placement not in self._placed:
            first = next(iter(self._placed.values()))
            self._placed[placement] = [parameter.to(x.device, x.dtype) for parameter in first]
        return self._placed[placement]


def _binary_logits(preparation: Binary, images: Sliceable) -> Tensor:
    """Return the logits of binary pixels, (features,) float64."""
    sums = [_flatten(part).sum(0, dtype=torch.float64) for _, part in slices(images)]  # of integers, hence exact
    total = torch.stack(sums).sum(0)[None, None] / 255
    framed = functional.pad(_channels_first(total, preparation.shape), [preparation.padding] * 4).flatten()
    return ((1 + framed) / (2 + len(images))).add(0.5).div(2).logit()


def _normal_parameters(preparation: Preparation, images: Sliceable) -> list[Tensor]:
    """Return the mean and log variance of real pixels, each (features,) float64."""
    keys = observation_keys(VIEW, torch.arange(len(images)))

    at_once = rows_at_once(images.shape[1:], AT_ONCE)

    def batches() -> Iterator[Tensor]:
        for start in range(0, len(images), at_once):
            part = slice(start, start + at_once)
            yield fixed_inputs(preparation, _flatten(images[part]), keys[part], torch.float64)

    mean = torch.stack([part.sum(0) for part in batches()]).sum(0) / len(images)
    variance = torch.stack([(part - mean).square().sum(0) for part in batches()]).sum(0) / len(images)
    return [mean, (variance.sqrt() * WIDER).clamp(min=LEAST_DEVIATION).log() * 2]


def _flatten(images: Pixels) -> Tensor:
    return torch.from_numpy(images.reshape(len(images), -1).copy())
