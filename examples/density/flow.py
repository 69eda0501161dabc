"""An example of your own density model: a normalising flow with affine couplings (RealNVP), for images of any shape.

Add the folder of this file to PYTHONPATH and name the model `flow:real_nvp`. The interface of a model is described in
tasks/training/custom_density.py. Dinh et al. 2017, "Density estimation using Real NVP", sections 3.2 to 3.4.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def real_nvp(shape: tuple[int, int, int]) -> nn.Module:
    """Make a flow for images (channels, height, width)."""
    return RealNVP(shape, couplings=4, hidden=128)


class RealNVP(nn.Module):
    """Transforms images into independent normal numbers, one half of the pixels at a time."""

    sees = "logit"  # log densities are of y = logit(0.05 + 0.9 (byte + u) / 256); Engram converts them to bytes

    def __init__(self, shape: tuple[int, int, int], couplings: int, hidden: int) -> None:
        super().__init__()
        self.shape = shape
        self.couplings = nn.ModuleList(Coupling(shape, bool(number % 2), hidden) for number in range(couplings))

    def log_prob(self, images: Tensor) -> Tensor:
        """log N(f(y); 0, I) + log |det df / dy|, in nats: (rows,)."""
        values = images.flatten(1)
        log_det = images.new_zeros(len(images))
        for coupling in self.couplings:
            scale, shift = coupling(values)
            values = values * scale.exp() + shift
            log_det = log_det + scale.sum(1)
        return log_det - 0.5 * (values.square() + math.log(2 * math.pi)).sum(1)

    def sample(self, count: int) -> Tensor:
        """Draw images (count, channels, height, width) in the space of `sees`."""
        weight = next(self.parameters())
        values = torch.randn(count, math.prod(self.shape), device=weight.device, dtype=weight.dtype)
        for coupling in reversed(self.couplings):
            scale, shift = coupling(values)
            values = (values - shift) * (-scale).exp()
        return values.unflatten(1, self.shape)


class Coupling(nn.Module):
    """Scale and shift of the pixels of one colour of a checkerboard, given the pixels of the other colour."""

    def __init__(self, shape: tuple[int, int, int], odd: bool, hidden: int) -> None:
        super().__init__()
        channels, height, width = shape
        board = (torch.arange(height)[:, None] + torch.arange(width) + odd) % 2
        self.register_buffer("given", board.expand(channels, -1, -1).flatten() == 1)
        size = channels * height * width
        self.inner = nn.Sequential(nn.Linear(size, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.outer = nn.Linear(hidden, 2 * size)
        nn.init.zeros_(self.outer.weight)  # the flow starts as the identity
        nn.init.zeros_(self.outer.bias)

    def forward(self, values: Tensor) -> tuple[Tensor, Tensor]:
        scale, shift = self.outer(self.inner(values * self.given)).chunk(2, 1)
        return scale.tanh() * ~self.given, shift * ~self.given
