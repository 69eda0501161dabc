"""Optimisers whose step is a rule in torch's operations, the same for one model and for all of a stack.

To add an optimiser, write its settings as a value in `tasks.training.optimiser_config`, its rule as a module here, and
name both in `tasks.training.optimisers.factory`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from tasks.training.optimiser_config import WeightDecay
from tasks.training.parameter_buffer import ParameterBuffer


@dataclass(frozen=True, eq=False)
class Moving:
    """The models that a rule updates, as rows of its buffers, with their learning rates and step counts."""

    models: slice
    rates: Tensor  # (models,): their learning rates, in the weights' precision
    steps: Tensor  # (models,) float64: the steps each model has taken, this one included
    active: Tensor | None  # (models,) bool: the models that take the step; None for all

    def settle(self, values: Tensor, moved: Tensor) -> None:
        """Replace the values by the `moved` ones, (models, *shape), for the models that take the step."""
        if self.active is not None:
            moved = torch.where(along(self.active, values), moved, values)
        values.copy_(moved)


class Rule(Protocol):
    """A step of the weights along their gradients, which depends on no value that only the host knows."""

    moments: tuple[ParameterBuffer, ...]  # see `Optimiser`

    def move(self, moving: Moving) -> None:
        """Change weights and moments of these models, from the gradients."""


class RuleOptimiser:
    """An optimiser whose step is a rule, made from the buffers of the weights and of the gradients.

    On a CPU the rule updates one model after another, so that a model's bits do not depend on the other models.
    """

    def __init__(self, weights: ParameterBuffer, rule: Callable[[ParameterBuffer, ParameterBuffer], Rule]) -> None:
        device, models = weights.buffer.device, len(weights.buffer)
        self.weights, self.gradients = weights, weights.like()
        self.together = device.type != "cpu"
        self.rule = rule(weights, self.gradients)
        self.moments: tuple[ParameterBuffer, ...] = self.rule.moments
        self.steps = torch.zeros(models, device=device)
        self.rates = torch.zeros(models, device=device, dtype=torch.float64)

    def step(self, gradients: Sequence[Tensor], active: Tensor | None = None) -> None:
        if not self.together:
            for model in range(len(self.steps)) if active is None else active.nonzero()[:, 0].tolist():
                self.step_of(model, [gradient[model] for gradient in gradients])
            return
        torch._foreach_copy_(list(self.gradients.views.values()), list(gradients))
        self._move(slice(None), active)

    def step_of(self, model: int, gradients: Sequence[Tensor]) -> None:
        for view, gradient in zip(self.gradients.views.values(), gradients, strict=True):
            view[model].copy_(gradient)
        self._move(slice(model, model + 1), None)

    def _move(self, models: slice, active: Tensor | None) -> None:
        self.steps[models] += 1 if active is None else active
        rates = self.rates[models].to(self.weights.buffer.dtype)
        # Clamped to 1, so that a model which has not yet taken a step does not divide by 0.
        self.rule.move(Moving(models, rates, self.steps[models].double().clamp(min=1), active))


def along(numbers: Tensor, values: Tensor) -> Tensor:
    """A number per model, (models,), in the shape in which it broadcasts along values (models, *shape)."""
    return numbers.view(-1, *[1] * (values.dim() - 1))


def norm(values: Tensor) -> Tensor:
    """The Euclidean norm of each model's tensor, (models, *shape) to (models,)."""
    norms: Tensor = torch.linalg.vector_norm(values.flatten(1), dim=1)
    return norms


def decay_row(weights: ParameterBuffer, decay: WeightDecay) -> Tensor | None:
    """The decay coefficient of every number in a model's row of the weights, (size,); None where no weight decays."""
    row = ParameterBuffer(weights.shapes, 1, weights.buffer.device, weights.buffer.dtype)
    coefficients = {name: decay.of(name, shape) for name, shape in weights.shapes.items()}
    for name, view in row.views.items():
        view.fill_(coefficients[name])
    return row.buffer[0] if any(coefficients.values()) else None
