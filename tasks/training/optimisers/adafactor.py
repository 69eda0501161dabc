"""Adafactor: second moments by rows and columns."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tasks.training.optimiser_config import Adafactor, is_matrix
from tasks.training.optimisers.rule_optimiser import Moving, along, norm
from tasks.training.parameter_buffer import ParameterBuffer


class AdafactorRule:
    """R and C, the means of g^2 + eps1 over columns and over rows, move by t^-0.8 of the way; then

        u = g / sqrt(R C / mean(R)),  w <- w - lr decay w - alpha u / max(1, RMS(u) / clip),

    where alpha = max(eps2, RMS(w)) min(lr, 1 / sqrt(t)), or lr where steps are not relative. Vectors have one
    moment in the place of R C / mean(R). Tensors of more axes are matrices of the last two.

    Shazeer & Stern 2018, "Adafactor: adaptive learning rates with sublinear memory cost", algorithms 4 to 6. Weight
    decay is torch.optim.Adafactor's, which puts eps1 elsewhere and agrees but for that.
    """

    def __init__(self, config: Adafactor, weights: ParameterBuffer, gradients: ParameterBuffer) -> None:
        self.config, self.weights, self.gradients = config, weights, gradients
        matrices = {name: shape for name, shape in weights.shapes.items() if is_matrix(shape)}
        vectors = {name: shape for name, shape in weights.shapes.items() if name not in matrices}
        self.rows = self._zeros({name: (*shape[:-1], 1) for name, shape in matrices.items()})
        self.columns = self._zeros({name: (*shape[:-2], 1, shape[-1]) for name, shape in matrices.items()})
        self.squares = self._zeros(vectors)
        self.moments = tuple(moment for moment in (self.rows, self.columns, self.squares) if moment.shapes)

    def _zeros(self, shapes: dict[str, tuple[int, ...]]) -> ParameterBuffer:
        buffer = self.weights.buffer
        return ParameterBuffer(shapes, len(buffer), buffer.device, buffer.dtype)

    def move(self, moving: Moving) -> None:
        fresh = (moving.steps**-self.config.beta2_decay).to(moving.rates.dtype)  # 1 - the decay of second moments
        most = torch.minimum(moving.rates, moving.steps.rsqrt().to(moving.rates.dtype))
        for name, shape in self.weights.shapes.items():
            weight, slope = self.weights.views[name][moving.models], self.gradients.views[name][moving.models]
            size = most * rms(weight).clamp(min=self.config.epsilon2) if self.config.relative_step else moving.rates
            update = slope * self._inverse_root(name, slope.square() + self.config.epsilon1, fresh, moving)
            clipped = size / (rms(update) / self.config.clip).clamp(min=1)
            decay = self.config.weight_decay.of(name, shape)
            kept = weight * (1 - along(moving.rates * decay, weight)) if decay else weight
            moving.settle(weight, kept - along(clipped, update) * update)

    def _inverse_root(self, name: str, squares: Tensor, fresh: Tensor, moving: Moving) -> Tensor:
        """1 / sqrt of the second moments of a tensor, after updating them."""
        step = along(fresh, squares)
        if name in self.squares.views:
            kept = self.squares.views[name][moving.models]
            moving.settle(kept, kept.lerp(squares, step))
            return kept.rsqrt()
        rows, columns = self.rows.views[name][moving.models], self.columns.views[name][moving.models]
        moving.settle(rows, rows.lerp(squares.mean(-1, keepdim=True), step))
        moving.settle(columns, columns.lerp(squares.mean(-2, keepdim=True), step))
        # Root by root: the product would underflow in float32 where rows and columns are both near 0.
        return (rows / rows.mean(-2, keepdim=True)).rsqrt() * columns.rsqrt()


def rms(values: Tensor) -> Tensor:
    """The root mean square of each model's tensor, (models, *shape) to (models,)."""
    return norm(values) / math.sqrt(values[0].numel())
