"""RMSprop, in Keras's setting."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tasks.training.parameter_buffer import ParameterBuffer


class RMSprop:
    """v <- rho v + (1 - rho) g^2, w <- w - lr g / (sqrt(v) + eps), with rho = 0.9.

    Tieleman & Hinton 2012, lecture 6.5; eps outside the root and rho as in Keras.
    """

    RHO = 0.9

    def __init__(self, weights: ParameterBuffer, epsilon: float) -> None:
        device, models = weights.buffer.device, len(weights.buffer)
        self.weights, self.epsilon = weights, epsilon
        self.squares, self._gradients = weights.like(), weights.like()
        self.moments: tuple[ParameterBuffer, ...] = (self.squares,)
        self.steps = torch.zeros(models, device=device)
        self.rates = torch.zeros(models, device=device, dtype=torch.float64)

    def step(self, gradients: Sequence[Tensor], active: Tensor | None = None) -> None:
        torch._foreach_copy_(list(self._gradients.views.values()), list(gradients))
        taking = torch.ones_like(self.steps) if active is None else active.to(self.steps.dtype)
        self.steps += taking
        self._move(slice(None), taking[:, None].to(self.weights.buffer.dtype))

    def step_of(self, model: int, gradients: Sequence[Tensor]) -> None:
        for view, gradient in zip(self._gradients.views.values(), gradients, strict=True):
            view[model].copy_(gradient)
        self.steps[model] += 1
        self._move(slice(model, model + 1), torch.ones(1, 1, dtype=self.weights.buffer.dtype))

    def _move(self, models: slice, taking: Tensor) -> None:
        gradients, squares = self._gradients.buffer[models], self.squares.buffer[models]
        squares.lerp_(gradients.square(), (1 - self.RHO) * taking)
        rates = self.rates[models, None].to(gradients.dtype) * taking
        self.weights.buffer[models].sub_(rates * gradients / squares.sqrt().add_(self.epsilon))
