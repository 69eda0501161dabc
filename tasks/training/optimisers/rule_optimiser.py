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
    """The models that a rule moves, as rows of its buffers, and how."""

    models: slice
    rates: Tensor  # (models,): their learning rates, in the weights' precision
    steps: Tensor  # (models,) float64: the steps each has taken, this one included
    active: Tensor | None  # (models,) bool: who takes it; None where all do

    def settle(self, values: Tensor, moved: Tensor) -> None:
        """Put what the rule has `moved`, (models, *shape), in the place of the values, for those who take the step."""
        if self.active is not None:
            moved = torch.where(along(self.active, values), moved, values)
        values.copy_(moved)


class Rule(Protocol):
    """A step of the weights along their gradients. It depends on no value that only the host knows."""

    moments: tuple[ParameterBuffer, ...]  # see `Optimiser`

    def move(self, moving: Moving) -> None:
        """Change weights and moments of these models, from the gradients."""


class RuleOptimiser:
    """An optimiser by a rule, which gets the weights and the gradients (buffers alike).

    On a CPU the rule moves one model after another, so that a model's bits do not depend on its company.
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
        # Nobody's first step is its zeroth: who has yet to take one must not divide by 0.
        self.rule.move(Moving(models, rates, self.steps[models].double().clamp(min=1), active))


def along(numbers: Tensor, values: Tensor) -> Tensor:
    """A number per model, (models,), as it broadcasts along values (models, *shape)."""
    return numbers.view(-1, *[1] * (values.dim() - 1))


def norm(values: Tensor) -> Tensor:
    """The Euclidean norm of each model's tensor, (models, *shape) to (models,)."""
    found: Tensor = torch.linalg.vector_norm(values.flatten(1), dim=1)
    return found


def decay_row(weights: ParameterBuffer, decay: WeightDecay) -> Tensor | None:
    """The decay's coefficient of every number in a model's row of the weights, (size,); None where none decays."""
    row = ParameterBuffer(weights.shapes, 1, weights.buffer.device, weights.buffer.dtype)
    coefficients = {name: decay.of(name, shape) for name, shape in weights.shapes.items()}
    for name, view in row.views.items():
        view.fill_(coefficients[name])
    return row.buffer[0] if any(coefficients.values()) else None
