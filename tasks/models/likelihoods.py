"""Likelihoods of images given codes, with independent Bernoulli or Gaussian pixels, and the divergence of codes.

Features lie on the last axis, and log densities are summed over it, in nats.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from tasks.datasets.images import Pixels
from tasks.models.dequantisation import Binary, Preparation, channels_first, fixed_inputs, observation_keys

# Probabilities multiplied before one logarithm is taken. Their product is a normal number in float32 as long as these
# pixels have a log probability above -87 together.
TOGETHER = 16


class Likelihood(Protocol):
    """A distribution of images for every code of a batch: models, rows."""

    def log_p(self, x: Tensor) -> Tensor:
        """The log density of images x (models or 1, points, features): (models, rows).

        Every point has the same number of rows, one after another: rows = points * codes.
        """

    @property
    def mean(self) -> Tensor:
        """The mean image of every code: (models, rows, features)."""


@dataclass(frozen=True, eq=False)
class Bernoulli:
    """Pixels that are 1 with probability sigmoid(logits) and else 0: logits (models, rows, features)."""

    logits: Tensor

    def log_p(self, x: Tensor) -> Tensor:
        """The sum over pixels of log sigmoid(s logit), s = 2 x - 1."""
        # s carries the dtype: logits in bfloat16 are summed in x's.
        s = (2 * x - 1)[:, :, None]
        signed = s * torch.unflatten(self.logits, 1, (x.shape[1], -1))
        sums = functional.logsigmoid(signed).sum(-1) if signed.requires_grad else log_sigmoids(signed)
        return sums.flatten(1)

    @property
    def mean(self) -> Tensor:
        return self.logits.sigmoid()


def log_sigmoids(x: Tensor) -> Tensor:
    """The sums over the last axis of log sigmoid(x), with a logarithm per `TOGETHER` of them.

    A processor takes four times as long for a logarithm as for a sigmoid, and twenty times as long as for a product.
    All summands have one sign and the sum is small where a model fits, so nothing cancels. Where a product would leave
    the range of normal numbers, its row is summed logarithm by logarithm.
    """
    group = math.gcd(x.shape[-1], TOGETHER)
    # Three axes: torch multiplies along the second of these fifteen times as fast as along one of five.
    products = x.sigmoid().view(-1, group, x.shape[-1] // group).prod(1)
    sums = products.log().sum(1)
    small = products.amin(1) < torch.finfo(x.dtype).tiny
    if small.any():
        sums[small] = functional.logsigmoid(x.flatten(0, -2)[small]).sum(1)
    return sums.view(x.shape[:-1])


@dataclass(frozen=True, eq=False)
class Gaussian:
    """Independent normal features: mean (models, rows, features); the log variance may be one for many of them."""

    mean: Tensor
    log_variance: Tensor

    def log_p(self, x: Tensor) -> Tensor:
        """-(log 2 pi + log variance + (x - mean)^2 / variance) / 2, summed."""
        apart = x[:, :, None] - torch.unflatten(self.mean, 1, (x.shape[1], -1))
        squares = apart.square()
        if self.log_variance.shape[-1] == 1:  # one for all features
            shared = self.log_variance[..., 0]
            sums = squares.sum(-1).flatten(1)
            return -0.5 * (x.shape[-1] * (math.log(2 * math.pi) + shared) + sums * (-shared).exp())
        log_variance = torch.unflatten(self.log_variance, 1, (x.shape[1], -1)).to(x.dtype)
        return -0.5 * (squares * (-log_variance).exp() + log_variance + math.log(2 * math.pi)).sum(-1).flatten(1)


def divergence(mean: Tensor, log_variance: Tensor) -> Tensor:
    """The Kullback-Leibler divergence of N(mean, variance) from N(0, I): (mean^2 + variance - 1 - log variance) / 2.

    Kingma & Welling 2014, appendix B.
    """
    return 0.5 * (mean.square() + log_variance.expm1() - log_variance).sum(-1)


WIDER = 2.0  # times the deviation of real pixels
# Logit pixels lie within 2.95 of 0: with this deviation no byte is beyond six deviations from any mean.
LEAST_DEVIATION = 1.0
VIEW = 0  # the seed of the one view of the test split
AT_ONCE = 1024  # images


class OutlierDensity:
    """A density of images with broad support, learnt without any training image.

    Van den Burg & Williams 2021, "On memorization in probabilistic deep generative models", section 5, propose one
    "with broad support but low probability (such as a Gaussian with high variance)" and give no form. These are ours:
    independent Bernoulli pixels, or normal ones in logit space, about those of `pixels` (n, h, w, c). The parameters
    come from the test split alone: no training image bears on them, so that no part of a memorization score is due to
    the broad density.

    A binary pixel is 1 with probability (q + 1/2) / 2, where q = (1 + the sum of its shares byte / 255) / (2 + n),
    frame and all: from 1/4 to 3/4. A normal pixel has the mean of the images and twice their standard deviation, at
    least 1, from one dequantised view of them.
    """

    def __init__(self, preparation: Preparation, pixels: Pixels) -> None:
        images = torch.from_numpy(pixels.reshape(len(pixels), -1).copy())
        parameters = (
            [binary_logits(preparation, images)]
            if isinstance(preparation, Binary)
            else normal_parameters(preparation, images)
        )
        on_cpu = [parameter.expand(1, 1, -1) for parameter in parameters]
        self._placed = {(torch.device("cpu"), torch.float64): on_cpu}

    def log_p(self, x: Tensor) -> Tensor:
        """The log density of images as the models see them, (models, rows, features): (models, rows), in nats."""
        # Like x, they have a row for each: what is given to a likelihood are codes of points.
        parameters = [parameter.expand(*x.shape[:2], -1) for parameter in self._like(x)]
        return (Bernoulli if len(parameters) == 1 else Gaussian)(*parameters).log_p(x)

    def _like(self, x: Tensor) -> list[Tensor]:
        """The parameters where x is, put there once: a CUDA graph remembers where they lie."""
        place = x.device, x.dtype
        if place not in self._placed:
            first = next(iter(self._placed.values()))
            self._placed[place] = [parameter.to(x.device, x.dtype) for parameter in first]
        return self._placed[place]


def binary_logits(preparation: Binary, images: Tensor) -> Tensor:
    """The logits of binary pixels, (features,) float64."""
    total = images.sum(0, dtype=torch.float64)[None, None] / 255
    framed = functional.pad(channels_first(total, preparation.shape), [preparation.padding] * 4).flatten()
    return ((1 + framed) / (2 + len(images))).add(0.5).div(2).logit()


def normal_parameters(preparation: Preparation, images: Tensor) -> list[Tensor]:
    """Mean and log variance of real pixels, (features,) float64 each."""
    keys = observation_keys(VIEW, torch.arange(len(images)))
    seen = [
        fixed_inputs(preparation, images[start : start + AT_ONCE], keys[start : start + AT_ONCE], torch.float64)
        for start in range(0, len(images), AT_ONCE)
    ]
    mean = torch.stack([part.sum(0) for part in seen]).sum(0) / len(images)
    variance = torch.stack([(part - mean).square().sum(0) for part in seen]).sum(0) / len(images)
    return [mean, (variance.sqrt() * WIDER).clamp(min=LEAST_DEVIATION).log() * 2]
