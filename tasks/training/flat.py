"""A network's tensors in one buffer, each with a place that no neighbour can disturb."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

# Fused Adam rounds the last elements of a tensor, which do not fill a vector, differently from the others. Each part
# therefore has a multiple of 64 elements: a model's bits do not depend on what lies beside it.
PAD = 64


class Flat:
    """Zeros in one buffer: `parts` are its padded rows, one for each shape, and `views` the tensors in them by name."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], device: torch.device, dtype: torch.dtype) -> None:
        self.shapes = dict(shapes)
        sizes = {name: math.prod(shape) for name, shape in shapes.items()}
        lengths = [padded(size) for size in sizes.values()]
        self.buffer = torch.zeros(sum(lengths), device=device, dtype=dtype)
        self.parts: list[Tensor] = list(torch.split(self.buffer, lengths))
        self.views: dict[str, Tensor] = {
            name: part[: sizes[name]].view(shape)
            for part, (name, shape) in zip(self.parts, shapes.items(), strict=True)
        }

    def like(self) -> Flat:
        """Zeros of the same shapes, on the same device."""
        return Flat(self.shapes, self.buffer.device, self.buffer.dtype)


def padded(size: int) -> int:
    return -(-size // PAD) * PAD
