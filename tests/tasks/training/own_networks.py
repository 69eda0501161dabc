"""A user's own networks, whose training steps several processes can or cannot divide by rows."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


def classifier(shape: tuple[int, int, int], classes: int) -> nn.Module:
    """A convolutional network with batch norm and dropout."""
    return nn.Sequential(
        nn.Conv2d(shape[0], 6, 3),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(6 * (shape[1] - 2) * (shape[2] - 2), classes),
    )


def perceptron(shape: tuple[int, int, int], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], 8), nn.Tanh(), nn.Linear(8, classes))


class Centring(nn.Module):
    """Subtracts the mean of the minibatch, which depends on all of its rows."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0)


def coupled(shape: tuple[int, int, int], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), Centring(), nn.Linear(shape[0] * shape[1] * shape[2], classes))


class Noised(nn.Module):
    """A density model whose loss adds noise to the images."""

    def __init__(self, shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(shape))
        self.scale = nn.Parameter(torch.zeros(()))

    def log_prob(self, images: Tensor) -> Tensor:
        errors = (images - self.mean) * torch.exp(-self.scale)
        return -0.5 * errors.square().flatten(1).sum(1) - self.mean.numel() * self.scale

    def loss(self, images: Tensor) -> Tensor:
        noise = functional.dropout(torch.randn_like(images), 0.2)
        return -self.log_prob(images + 0.1 * noise * torch.rand(len(images), 1, 1, 1))


def density(shape: tuple[int, int, int]) -> nn.Module:
    return Noised(shape)
