"""Optimisers that update many models at once, with all tensors in one buffer.

Each model has its own learning rate and number of steps, and may skip a step. The values of a model do not depend on
other models.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Protocol

import torch
from torch import Tensor

from tasks.training.recipe import Recipe

# Fused Adam rounds the last elements of a tensor, which do not fill a vector register, differently from the others. The
# number of elements in each part is therefore a multiple of 64, so that a model's bits do not depend on its neighbours.
PAD = 64


class ParameterBuffer:
    """A buffer of parameters, initially zero.

    `buffer` (models, size) has one row per model, and `views` are its tensors (models, *shape) by name.
    """

    def __init__(
        self, shapes: Mapping[str, tuple[int, ...]], models: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.shapes = dict(shapes)
        self._lengths = [-(-math.prod(shape) // PAD) * PAD for shape in shapes.values()]
        self.buffer = torch.zeros(models, sum(self._lengths), device=device, dtype=dtype)
        self.views: dict[str, Tensor] = {
            name: part[:, : math.prod(shape)].view(models, *shape)
            for part, (name, shape) in zip(torch.split(self.buffer, self._lengths, 1), shapes.items(), strict=True)
        }

    def parts(self, model: int) -> Sequence[Tensor]:
        """Return the tensors of one model as rows, each padded with zeros to a multiple of 64."""
        return torch.split(self.buffer[model], self._lengths)

    def tensors_of_model(self, model: int) -> dict[str, Tensor]:
        """Return the tensors (*shape) of one model by name."""
        return {name: view[model] for name, view in self.views.items()}

    def like(self) -> ParameterBuffer:
        """Return a zero buffer with the same shapes, on the same device."""
        return ParameterBuffer(self.shapes, len(self.buffer), self.buffer.device, self.buffer.dtype)


def fill_row(gradient: Tensor, size: int) -> Tensor:
    """Return the gradient as a row of `size` values, padded with zeros."""
    row = gradient.reshape(-1)
    if len(row) == size:
        return row
    return torch.nn.functional.pad(row, (0, size - len(row)))


def gather(gradients: Sequence[Tensor], into: ParameterBuffer) -> None:
    """Copy the gradients (models, *shape) that are not yet in the buffer into it."""
    targets = []
    sources = []
    for view, gradient in zip(into.views.values(), gradients, strict=True):
        if gradient.data_ptr() != view.data_ptr():
            targets.append(view)
            sources.append(gradient)
    if targets:
        torch._foreach_copy_(targets, sources)


class Optimiser(Protocol):
    """Updates the weights of every model with their gradients."""

    # Running statistics of the weights. Each buffer has the weights' names and shapes.
    moments: tuple[ParameterBuffer, ...]
    steps: Tensor  # (models,) float32: number of steps taken by each model
    rates: Tensor  # (models,): learning rate of each model
    # The gradients that `step` uses, if it needs all of them in one buffer. A caller may have written some of them.
    gradients: ParameterBuffer | None

    def step(self, gradients: Sequence[Tensor], active: Tensor | None = None) -> None:
        """Take one step with the gradients (models, *shape), in the order of the weights.

        `active` (models,) selects the models that take the step; all by default.
        """

    def step_of(self, model: int, gradients: Sequence[Tensor]) -> None:
        """Take one step of a single model with its gradients (*shape)."""


class Adam:
    """m <- b1 m + (1 - b1) g, v <- b2 v + (1 - b2) g^2, w <- w - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps).

    Kingma & Ba 2015, algorithm 1, with b1 = 0.9 and b2 = 0.999 as in the paper.
    """

    def __init__(self, weights: ParameterBuffer, epsilon: float, beta1: float = 0.9, beta2: float = 0.999) -> None:
        device = weights.buffer.device
        models = len(weights.buffer)
        self.weights = weights
        self.epsilon = epsilon
        self.beta1 = beta1
        self.beta2 = beta2
        self.means = weights.like()
        self.squares = weights.like()
        self.moments: tuple[ParameterBuffer, ...] = (self.means, self.squares)
        self.steps = torch.zeros(models, device=device)
        self.rates = torch.zeros(models, device=device, dtype=torch.float64)
        self.gradients: ParameterBuffer | None = None if device.type == "cpu" else weights.like()
        # Split into rows of single models only once, since splitting takes longer than a small step.
        self._parts = [tuple(list(flat.parts(model)) for flat in (weights, *self.moments)) for model in range(models)]
        self._step_counts = list(self.steps.unbind())

    def step(self, gradients: Sequence[Tensor], active: Tensor | None = None) -> None:
        if self.gradients is None:
            for model in range(len(self.steps)) if active is None else active.nonzero()[:, 0].tolist():
                self.step_of(model, [gradient[model] for gradient in gradients])
            return
        gather(gradients, self.gradients)
        if active is None:
            taking = torch.ones_like(self.steps, dtype=torch.bool)
        else:
            taking = active
        self.steps += taking
        scale, root = self.corrections()
        buffers = (self.weights.buffer, self.gradients.buffer, self.means.buffer, self.squares.buffer)
        (triton_update() or torch_update)(*buffers, scale, root, taking, self.beta1, self.beta2, self.epsilon)

    def corrections(self) -> tuple[Tensor, Tensor]:
        """Return lr / (1 - b1^t) and sqrt(1 - b2^t) for each model, both (models,)."""
        step_counts = self.steps.double().clamp(min=1)
        scale = self.rates / (1 - self.beta1**step_counts)
        root = (1 - self.beta2**step_counts).sqrt()
        dtype = self.weights.buffer.dtype
        return scale.to(dtype), root.to(dtype)

    def step_of(self, model: int, gradients: Sequence[Tensor]) -> None:
        weights, means, squares = self._parts[model]
        step_count = self._step_counts[model].add_(1)
        # The function behind torch.optim.Adam(fused=True), without its overhead of 40 microseconds.
        torch._fused_adam_(
            weights,
            [fill_row(gradient, len(part)) for gradient, part in zip(gradients, weights, strict=True)],
            means,
            squares,
            [],
            [step_count] * len(weights),
            lr=float(self.rates[model]),
            beta1=self.beta1,
            beta2=self.beta2,
            weight_decay=0.0,
            eps=self.epsilon,
            amsgrad=False,
            maximize=False,
        )


Update = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, float, float, float], None]


@cache
def triton_update() -> Update | None:
    """Return Adam's update as a single Triton kernel, or None without Triton, which comes with torch for CUDA."""
    try:
        from tasks.training import kernels
    except ImportError:
        return None
    return kernels.adam


def torch_update(
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
    """Compute the same update with torch operations. Arguments are (models, size) or (models,)."""
    takes = active.to(weights.dtype)[:, None]
    means.lerp_(gradients, (1 - beta1) * takes)
    squares.lerp_(gradients.square(), (1 - beta2) * takes)
    weights.sub_(scale[:, None] * takes * means / (squares.sqrt().div_(root[:, None]).add_(epsilon)))


class RMSprop:
    """v <- rho v + (1 - rho) g^2, w <- w - lr g / (sqrt(v) + eps), with rho = 0.9.

    Tieleman & Hinton 2012, lecture 6.5. As in Keras, eps is outside the root and rho is 0.9.
    """

    RHO = 0.9

    def __init__(self, weights: ParameterBuffer, epsilon: float) -> None:
        device = weights.buffer.device
        models = len(weights.buffer)
        self.weights = weights
        self.epsilon = epsilon
        self.squares = weights.like()
        self._gradients = weights.like()
        self.gradients: ParameterBuffer | None = self._gradients
        self.moments: tuple[ParameterBuffer, ...] = (self.squares,)
        self.steps = torch.zeros(models, device=device)
        self.rates = torch.zeros(models, device=device, dtype=torch.float64)

    def step(self, gradients: Sequence[Tensor], active: Tensor | None = None) -> None:
        gather(gradients, self._gradients)
        if active is None:
            taking = torch.ones_like(self.steps)
        else:
            taking = active.to(self.steps.dtype)
        self.steps += taking
        self._move(slice(None), taking[:, None].to(self.weights.buffer.dtype))

    def step_of(self, model: int, gradients: Sequence[Tensor]) -> None:
        for view, gradient in zip(self._gradients.views.values(), gradients, strict=True):
            view[model].copy_(gradient)
        self.steps[model] += 1
        self._move(slice(model, model + 1), torch.ones(1, 1, dtype=self.weights.buffer.dtype))

    def _move(self, models: slice, taking: Tensor) -> None:
        gradients = self._gradients.buffer[models]
        squares = self.squares.buffer[models]
        squares.lerp_(gradients.square(), (1 - self.RHO) * taking)
        rates = self.rates[models, None].to(gradients.dtype) * taking
        self.weights.buffer[models].sub_(rates * gradients / squares.sqrt().add_(self.epsilon))


class Nesterov:
    """Stochastic gradient descent with Nesterov momentum, a triangular learning rate and lookahead.

    u = lr g + decay w, v <- m v + u, w <- w - f(t / T) (u + m v), where T is the number of steps of the training. f
    rises from 0.2 to 1 over the first 23 % of the steps and falls to 0.07. After every fifth step, slow weights move
    towards w, by 1 - .95^5 (t / T)^3 of the distance, and w continues from them; in the end, w is the slow weights.

    Jordan 2024 (arXiv:2404.00498), section 3 and its listing, with m = 0.85. Its learning rate and weight decay refer
    to the sum of losses over 1,024 examples and do not depend on momentum or batch: lr = rate * batch / 1024 / (1 + 1 /
    (1 - m)) for a mean loss. Zhang et al. 2019, "Lookahead optimizer". With T = 0, f is 1 and slow weights equal w.
    """

    MOMENTUM = 0.85
    DECAY = 0.0153
    EXAMPLES = 1024
    START, PEAK, END = 0.2, 0.23, 0.07
    EVERY = 5
    SLOWEST = 0.95**EVERY

    def __init__(self, weights: ParameterBuffer, batch: int, factors: Mapping[str, float]) -> None:
        device = weights.buffer.device
        models = len(weights.buffer)
        self.weights = weights
        self.velocities = weights.like()
        self.slow = weights.like()
        self.gradients: ParameterBuffer | None = weights.like()
        self._all_gradients = self.gradients
        self.moments: tuple[ParameterBuffer, ...] = (self.velocities, self.slow)
        self.steps = torch.zeros(models, device=device)
        self.rates = torch.zeros(models, device=device, dtype=torch.float64)
        self.lengths = torch.zeros(models, device=device, dtype=torch.float64)  # T
        self.share = batch / self.EXAMPLES / (1 + 1 / (1 - self.MOMENTUM))
        factor_buffer = ParameterBuffer(weights.shapes, 1, device, weights.buffer.dtype)
        for name, view in factor_buffer.views.items():
            view.fill_(factors.get(name, 1.0))
        self.factors = factor_buffer.buffer

    def step(self, gradients: Sequence[Tensor], active: Tensor | None = None) -> None:
        gather(gradients, self._all_gradients)
        if active is None:
            active = torch.ones_like(self.steps, dtype=torch.bool)
        self._move(slice(None), active)

    def step_of(self, model: int, gradients: Sequence[Tensor]) -> None:
        for view, gradient in zip(self._all_gradients.views.values(), gradients, strict=True):
            view[model].copy_(gradient)
        self._move(slice(model, model + 1), torch.ones(1, dtype=torch.bool))

    def _move(self, models: slice, active: Tensor) -> None:
        weights = self.weights.buffer[models]
        velocities = self.velocities.buffer[models]
        slow = self.slow.buffer[models]
        steps = self.steps[models]
        first = (steps == 0) & active
        slow.copy_(torch.where(first[:, None], weights, slow))
        update = self._all_gradients.buffer[models] * self.factors
        update *= (self.rates[models] * self.share).to(weights.dtype)[:, None]
        update.add_(weights, alpha=self.DECAY * self.share)
        taking = active.to(weights.dtype)[:, None]
        velocities.copy_(torch.where(active[:, None], self.MOMENTUM * velocities + update, velocities))
        rate = self._factor(models).to(weights.dtype)[:, None]
        weights.sub_((rate * taking) * update.add_(velocities, alpha=self.MOMENTUM))
        steps += active
        self._look_ahead(weights, slow, steps.double() / self.lengths[models].clamp(min=1), models, active)

    def _factor(self, models: slice) -> Tensor:
        """Return f for the step that follows, (models,)."""
        passed = self.steps[models].double() / self.lengths[models].clamp(min=1)
        rising = self.START + (1 - self.START) * passed / self.PEAK
        falling = 1 - (1 - self.END) * (passed - self.PEAK) / (1 - self.PEAK)
        return torch.where(self.lengths[models] > 0, torch.minimum(rising, falling), 1.0)

    def _look_ahead(self, weights: Tensor, slow: Tensor, passed: Tensor, models: slice, active: Tensor) -> None:
        """Move the slow weights, and continue from them."""
        steps = self.steps[models]
        due = active & (steps % self.EVERY == 0)
        has_ended = active & (passed >= 1) & (self.lengths[models] > 0)
        kept = torch.where(self.lengths[models] > 0, self.SLOWEST * passed**3, 0.0).to(weights.dtype)
        moved = torch.where(due[:, None], torch.lerp(weights, slow, kept[:, None]), slow)
        slow.copy_(moved)
        weights.copy_(torch.where((due | has_ended)[:, None], slow, weights))


def optimiser_of(
    recipe: Recipe, weights: ParameterBuffer, factors: Mapping[str, float] = MappingProxyType({})
) -> Optimiser:
    """Return the optimiser for these weights, with all learning rates at 0.

    `factors` on the learning rates of weights, by name, affect only `nesterov`, which Jordan (2024) uses with them.
    """
    match recipe.optimiser:
        case "adam":
            return Adam(weights, recipe.epsilon)
        case "rmsprop":
            return RMSprop(weights, recipe.epsilon)
        case "nesterov":
            return Nesterov(weights, recipe.batch, factors)
