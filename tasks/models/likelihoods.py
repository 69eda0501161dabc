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
