"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from tasks.training.optimiser_config import SGD
from tasks.training.optimisers.rule_optimiser import Moving, decay_row
from tasks.training.parameter_buffer import ParameterBuffer


class SGDRule:
    """g <- g + decay w, v <- momentum v + g, w <- w - lr v; with Nesterov's step w <- w - lr (g + momentum v).

    Sutskever et al. 2013, "On the importance of initialization and momentum in deep learning", as torch.optim.SGD
    writes it: the learning rate stays out of v.
    """

    def __init__(self, config: SGD, weights: ParameterBuffer, gradients: ParameterBuffer) -> None:
        self.config, self.weights, self.gradients = config, weights, gradients
        self.velocity = weights.like() if config.momentum else None
        self.moments: tuple[ParameterBuffer, ...] = () if self.velocity is None else (self.velocity,)
        self._decay = decay_row(weights, config.weight_decay)

    def move(self, moving: Moving) -> None:
        weights, slope = self.weights.buffer[moving.models], self.gradients.buffer[moving.models]
        if self._decay is not None:
            slope = slope + self._decay * weights
        if self.velocity is not None:
            velocity = self.velocity.buffer[moving.models]
            moving.settle(velocity, self.config.momentum * velocity + slope)
            slope = slope + self.config.momentum * velocity if self.config.nesterov else velocity
        moving.settle(weights, weights - moving.rates[:, None] * slope)
