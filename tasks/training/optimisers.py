"""The optimisers, for many models at once, in Keras's setting.

Each model has its own learning rate and its own count of steps, and models can sit a step out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Protocol

import torch
from torch import Tensor

from tasks.training.parameter_buffer import ParameterBuffer, filled


class Optimiser(Protocol):
    """Steps the weights of every model along their gradients."""

    moments: tuple[ParameterBuffer, ...]  # what it remembers of each weight
    steps: Tensor  # (models,) float32: how many each model has taken
    rates: Tensor  # (models,): the learning rate of each

    def step(self, gradients: Sequence[Tensor], active: Tensor | None = None) -> None:
        """One step, given the gradients (models, *shape) in the order of the weights.

        `active` (models,) says who takes it: all by default.
        """

    def step_of(self, model: int, gradients: Sequence[Tensor]) -> None:
        """One step of one model, given its gradients (*shape)."""


class Adam:
    """m <- b1 m + (1 - b1) g, v <- b2 v + (1 - b2) g^2, w <- w - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps).

    Kingma & Ba 2015, algorithm 1, with b1 = 0.9 and b2 = 0.999 as there.
    """

    BETA1, BETA2 = 0.9, 0.999

    def __init__(self, weights: ParameterBuffer, epsilon: float) -> None:
        device, models = weights.buffer.device, len(weights.buffer)
        self.weights, self.epsilon = weights, epsilon
        self.means, self.squares = weights.like(), weights.like()
        self.moments: tuple[ParameterBuffer, ...] = (self.means, self.squares)
        self.steps = torch.zeros(models, device=device)
        self.rates = torch.zeros(models, device=device, dtype=torch.float64)
        self._gradients = None if device.type == "cpu" else weights.like()
        # Rows of one model each, taken apart once: that takes longer than a small step.
        self._parts = [tuple(list(flat.parts(model)) for flat in (weights, *self.moments)) for model in range(models)]
        self._taken = list(self.steps.unbind())

    def step(self, gradients: Sequence[Tensor], active: Tensor | None = None) -> None:
        if self._gradients is None:
            for model in range(len(self.steps)) if active is None else active.nonzero()[:, 0].tolist():
                self.step_of(model, [gradient[model] for gradient in gradients])
            return
        torch._foreach_copy_(list(self._gradients.views.values()), list(gradients))
        taking = torch.ones_like(self.steps, dtype=torch.bool) if active is None else active
        self.steps += taking
        scale, root = self.corrections()
        buffers = (self.weights.buffer, self._gradients.buffer, self.means.buffer, self.squares.buffer)
        (compiled() or by_torch)(*buffers, scale, root, taking, self.BETA1, self.BETA2, self.epsilon)

    def corrections(self) -> tuple[Tensor, Tensor]:
        """Of each model: lr / (1 - b1^t) and sqrt(1 - b2^t)."""
        taken = self.steps.double().clamp(min=1)
        scale = self.rates / (1 - self.BETA1**taken)
        root = (1 - self.BETA2**taken).sqrt()
        dtype = self.weights.buffer.dtype
        return scale.to(dtype), root.to(dtype)

    def step_of(self, model: int, gradients: Sequence[Tensor]) -> None:
        weights, means, squares = self._parts[model]
        taken = self._taken[model].add_(1)
        # What torch.optim.Adam(fused=True) calls, without its 40 microseconds of bookkeeping.
        torch._fused_adam_(
            weights,
            [filled(gradient, len(part)) for gradient, part in zip(gradients, weights, strict=True)],
            means,
            squares,
            [],
            [taken] * len(weights),
            lr=float(self.rates[model]),
            beta1=self.BETA1,
            beta2=self.BETA2,
            weight_decay=0.0,
            eps=self.epsilon,
            amsgrad=False,
            maximize=False,
        )


Update = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, float, float, float], None]


@cache
def compiled() -> Update | None:
    """Adam's update as one kernel, where there is Triton to compile it (it comes with torch for CUDA)."""
    try:
        from tasks.training import kernels
    except ImportError:
        return None
    return kernels.adam


def by_torch(
    weights: Tensor,
    gradients: Tensor,
    means: Tensor,
    squares: Tensor,
    scale: Tensor,
    root: Tensor,
    active: Tensor,
    beta1: float,
    beta2: float,
    epsilon: float,
) -> None:
    """The same in torch's operations: all (models, size) or (models,)."""
    takes = active.to(weights.dtype)[:, None]
    means.lerp_(gradients, (1 - beta1) * takes)
    squares.lerp_(gradients.square(), (1 - beta2) * takes)
    weights.sub_(scale[:, None] * takes * means / (squares.sqrt().div_(root[:, None]).add_(epsilon)))


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


OPTIMISERS: dict[str, Callable[[ParameterBuffer, float], Optimiser]] = {"adam": Adam, "rmsprop": RMSprop}
