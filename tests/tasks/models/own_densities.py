"""Density models as a user would write them, some of them invalid; importable by this module's name."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

Shape = tuple[int, int, int]


class Gaussian(nn.Module):
    """Independent normal pixels."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.mean = nn.Parameter(0.4 + 0.2 * torch.rand(shape))
        self.log_scale = nn.Parameter(torch.full(shape, -1.0))

    def log_prob(self, images: Tensor) -> Tensor:
        apart = (images - self.mean) * (-self.log_scale).exp()
        return -(0.5 * apart.square() + self.log_scale + 0.5 * math.log(2 * math.pi)).flatten(1).sum(1)

    def sample(self, count: int) -> Tensor:
        return self.mean + self.log_scale.exp() * torch.randn(count, *self.mean.shape, device=self.mean.device)


class Binary(nn.Module):
    """Independent pixels that are 0 or 1; its samples are its means."""

    sees = "binary"

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(shape))

    def log_prob(self, images: Tensor) -> Tensor:
        distribution = torch.distributions.Bernoulli(logits=self.logits, validate_args=False)
        return distribution.log_prob(images).flatten(1).sum(1)

    def sample(self, count: int) -> Tensor:
        return self.logits.sigmoid().expand(count, -1, -1, -1)


class Shifted(Gaussian):
    """Normal pixels that one hidden N(0, 1) shifts together: log p is estimated from `draws` of it."""

    draws = 2000

    def log_prob(self, images: Tensor) -> Tensor:
        hidden = torch.randn(self.draws, len(images), 1, 1, 1, device=images.device)
        distribution = torch.distributions.Normal(self.mean + hidden, self.log_scale.exp(), validate_args=False)
        return distribution.log_prob(images).flatten(2).sum(2).logsumexp(0) - math.log(self.draws)


class Rough(Shifted):
    """The same model with few draws, so that training takes little memory."""

    draws = 5


class Bound(Gaussian):
    """The loss differs from the log density: in training it covers a random half of the pixels."""

    sees = "logit"

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.norm = nn.BatchNorm2d(shape[0])

    def log_prob(self, images: Tensor) -> Tensor:
        return super().log_prob(self.norm(images))

    def loss(self, images: Tensor) -> Tensor:
        mask = torch.rand_like(images) < 0.5 if self.training else torch.ones_like(images)
        return ((self.norm(images) - self.mean).square() * mask * self.log_scale.exp()).flatten(1).sum(1)


class Slope(Gaussian):
    """The log density needs autograd, as for a flow with an automatic Jacobian."""

    def log_prob(self, images: Tensor) -> Tensor:
        with torch.enable_grad():
            free = images.detach().requires_grad_()
            energy = (0.5 * (free - self.mean).square()).sum()
            (gradient,) = torch.autograd.grad(energy, free, create_graph=True)
        return -(0.5 * gradient.square() + self.log_scale.square()).flatten(1).sum(1)


class Heavy(Gaussian):
    """Overflows if a scale is large."""

    def log_prob(self, images: Tensor) -> Tensor:
        return super().log_prob(images) + self.log_scale.exp().sum()


class Unsound(Gaussian):
    """The density is NaN if the first pixel's mean is low, which is initially true for about half of all seeds."""

    def loss(self, images: Tensor) -> Tensor:
        return -super().log_prob(images)

    def log_prob(self, images: Tensor) -> Tensor:
        log_p = super().log_prob(images)
        return torch.where(self.mean.flatten()[0] < 0.5, math.nan, log_p)


class Counting(Gaussian):
    """No density: returns the number of ones among the binary pixels, independent of training."""

    sees = "binary"

    def loss(self, images: Tensor) -> Tensor:
        return -super().log_prob(images)

    def log_prob(self, images: Tensor) -> Tensor:
        return images.flatten(1).sum(1) + 0 * self.mean.sum()


class Mute(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))


class Scalar(Gaussian):
    def log_prob(self, images: Tensor) -> Tensor:
        return super().log_prob(images).mean()


class Distribution(Gaussian):
    def log_prob(self, images: Tensor) -> Tensor:
        return torch.distributions.Normal(self.mean, 1.0)  # type: ignore[return-value]


class Undefined(Gaussian):
    def log_prob(self, images: Tensor) -> Tensor:
        return super().log_prob(images) * math.nan


class Infinite(Gaussian):
    def log_prob(self, images: Tensor) -> Tensor:
        return super().log_prob(images) + math.inf


class Unseeded(Gaussian):
    def log_prob(self, images: Tensor) -> Tensor:
        return super().log_prob(images) + np.random.default_rng().normal()


class Started(Gaussian):
    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.mean = nn.Parameter(torch.tensor(np.random.default_rng().random(shape)))


class Square(Gaussian):
    """Supports only images of one channel."""

    def log_prob(self, images: Tensor) -> Tensor:
        return super().log_prob(images.view(-1, 1, 3, 5))


class Blind(Gaussian):
    sees = "grey"


class Detached(Gaussian):
    def log_prob(self, images: Tensor) -> Tensor:
        return super().log_prob(images).detach()


class Spare(Gaussian):
    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.spare = nn.Linear(2, 2)


class Unsampled(Gaussian):
    sample = None  # type: ignore[assignment]


class Few(Gaussian):
    def sample(self, count: int) -> Tensor:
        return super().sample(1)


class Lossy(Gaussian):
    def loss(self, images: Tensor) -> Tensor:
        return self.log_prob(images)[:1]


def number(shape: Shape) -> int:
    return 3


def grey_alone(shape: Shape) -> nn.Module:
    if shape[0] != 1:
        raise ValueError(f"for grey images alone,\nnot for {shape[0]} channels")
    return Gaussian(shape)
