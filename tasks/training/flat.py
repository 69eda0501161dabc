"""A network's tensors as named views of one buffer, so that an optimiser's step is one operation."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

# Fused Adam rounds the last elements of a buffer, which do not fill a vector, differently from the others. Each view
# therefore starts at, and the buffer ends at, a multiple of 64: a model's bits do not depend on what lies beside it.
PAD = 64


class Flat:
    """Zeros in one buffer, with a view of each shape by name."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], device: torch.device, dtype: torch.dtype) -> None:
        sizes = {name: math.prod(shape) for name, shape in shapes.items()}
        self.buffer = torch.zeros(sum(padded(size) for size in sizes.values()), device=device, dtype=dtype)
        self.views: dict[str, Tensor] = {}
        start = 0
        for name, shape in shapes.items():
            self.views[name] = self.buffer[start : start + sizes[name]].view(shape)
            start += padded(sizes[name])


def padded(size: int) -> int:
    return -(-size // PAD) * PAD
