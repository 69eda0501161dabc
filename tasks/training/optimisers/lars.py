"""Layer-wise adaptive rate scaling."""

from __future__ import annotations

import torch
from torch import Tensor

from tasks.training.optimiser_config import LARS, is_matrix
from tasks.training.optimisers.rule_optimiser import Moving, along, norm
from tasks.training.parameter_buffer import ParameterBuffer


class LARSRule:
    """v <- momentum v + lr r (g + decay w), w <- w - v, with r = trust |w| / (|g| + decay |w|) of each matrix.

    You, Gitman & Ginsburg 2017, "Large batch training of convolutional networks", algorithm 1. r is 1 where a norm is
    0, and for biases and the gains of normalisation, as is usual (Goyal et al. 2017; Chen et al. 2020).
    """

    def __init__(self, config: LARS, weights: ParameterBuffer, gradients: ParameterBuffer) -> None:
        self.config, self.weights, self.gradients = config, weights, gradients
        self.velocity = weights.like()
        self.moments: tuple[ParameterBuffer, ...] = (self.velocity,)

    def move(self, moving: Moving) -> None:
        for name, shape in self.weights.shapes.items():
            weight, slope, velocity = (
                flat.views[name][moving.models] for flat in (self.weights, self.gradients, self.velocity)
            )
            decay = self.config.weight_decay.of(name, shape)
            rates = moving.rates * self._trust(weight, slope, decay) if is_matrix(shape) else moving.rates
            pull = slope + decay * weight if decay else slope
            moving.settle(velocity, self.config.momentum * velocity + along(rates, pull) * pull)
            moving.settle(weight, weight - velocity)

    def _trust(self, weight: Tensor, slope: Tensor, decay: float) -> Tensor:
        """r of each model, (models,)."""
        weight_norm, slope_norm = norm(weight), norm(slope)
        nonzero = (weight_norm > 0) & (slope_norm > 0)
        divisor = torch.where(nonzero, slope_norm + decay * weight_norm, 1)
        return torch.where(nonzero, self.config.trust * weight_norm / divisor, 1)
