"""Decoupled weight decay around an optimiser."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from tasks.training.optimiser_config import WeightDecay
from tasks.training.optimisers.optimiser import Optimiser
from tasks.training.optimisers.rule_optimiser import decay_row
from tasks.training.parameter_buffer import ParameterBuffer


class DecoupledDecay:
    """w <- w - lr decay w, then the step of the optimiser inside. Loshchilov & Hutter 2019, algorithm 2."""

    def __init__(self, weights: ParameterBuffer, inside: Optimiser, decay: WeightDecay) -> None:
        self.weights, self.inside = weights, inside
        self.moments, self.steps, self.rates = inside.moments, inside.steps, inside.rates
        self.together = weights.buffer.device.type != "cpu"
        self._decay = decay_row(weights, decay)

    def step(self, gradients: Sequence[Tensor], active: Tensor | None = None) -> None:
        if not self.together:
            for model in range(len(self.steps)) if active is None else active.nonzero()[:, 0].tolist():
                self.step_of(model, [gradient[model] for gradient in gradients])
            return
        self._shrink(slice(None), self.rates if active is None else self.rates * active)
        self.inside.step(gradients, active)

    def step_of(self, model: int, gradients: Sequence[Tensor]) -> None:
        self._shrink(slice(model, model + 1), self.rates[model : model + 1])
        self.inside.step_of(model, gradients)

    def _shrink(self, models: slice, rates: Tensor) -> None:
        if self._decay is not None:
            weights = self.weights.buffer[models]
            weights.sub_(rates.to(weights.dtype)[:, None] * self._decay * weights)
