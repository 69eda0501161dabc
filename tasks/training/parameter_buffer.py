"""The tensors of many models in one buffer, padded so that no model's values depend on its neighbours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

# Fused Adam rounds the last elements of a tensor, which do not fill a vector, differently from the others. Each part
# therefore has a multiple of 64 elements: a model's bits do not depend on what lies beside it.
PAD = 64


class ParameterBuffer:
    """Zeros: `buffer` (models, size) has a row per model, `views` its tensors (models, *shape) by name."""

    def __init__(
        self, shapes: Mapping[str, tuple[int, ...]], models: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.shapes = dict(shapes)
        self._lengths = [pad_size(math.prod(shape)) for shape in shapes.values()]
        self.buffer = torch.zeros(models, sum(self._lengths), device=device, dtype=dtype)
        self.views: dict[str, Tensor] = {
            name: part[:, : math.prod(shape)].view(models, *shape)
            for part, (name, shape) in zip(torch.split(self.buffer, self._lengths, 1), shapes.items(), strict=True)
        }

    def parts(self, model: int) -> Sequence[Tensor]:
        """One model's tensors as rows, each padded by zeros to a multiple of 64."""
        return torch.split(self.buffer[model], self._lengths)

    def tensors_of_model(self, model: int) -> dict[str, Tensor]:
        """One model's tensors (*shape) by name."""
        return {name: view[model] for name, view in self.views.items()}

    def like(self) -> ParameterBuffer:
        """Zeros of the same shapes, on the same device."""
        return ParameterBuffer(self.shapes, len(self.buffer), self.buffer.device, self.buffer.dtype)


def pad_size(size: int) -> int:
    return -(-size // PAD) * PAD


def fill_row(gradient: Tensor, size: int) -> Tensor:
    """The gradient as a row of `size` values, zeros at its end."""
    row = gradient.reshape(-1)
    return row if len(row) == size else torch.nn.functional.pad(row, (0, size - len(row)))
