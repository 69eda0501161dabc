"""What a stack needs of an optimiser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from tasks.training.parameter_buffer import ParameterBuffer


class Optimiser(Protocol):
    """Steps the weights of every model along their gradients."""

    # Running statistics of the weights: each buffer has their names and shapes.
    moments: tuple[ParameterBuffer, ...]
    steps: Tensor  # (models,) float32: the steps each model has taken
    rates: Tensor  # (models,): the learning rate of each model

    def step(self, gradients: Sequence[Tensor], active: Tensor | None = None) -> None:
        """One step, given the gradients (models, *shape) in the order of the weights.

        `active` (models,) is the mask of the models that take it; all by default.
        """

    def step_of(self, model: int, gradients: Sequence[Tensor]) -> None:
        """One step of one model, given its gradients (*shape)."""
