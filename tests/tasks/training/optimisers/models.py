"""Three models with three tensors each, and a learning rate of their own."""

import torch
from torch import Tensor

from tasks.training.parameter_buffer import ParameterBuffer

CPU = torch.device("cpu")
SHAPES = {"a": (9, 64), "b": (10,), "c": (3, 1, 2, 2)}
MODELS, EPSILON = 3, 1e-7
RATES = [0.01, 0.002, 0.3]


def numbers(stream: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=stream)


def started() -> tuple[torch.Generator, ParameterBuffer]:
    stream = torch.Generator().manual_seed(0)
    weights = ParameterBuffer(SHAPES, MODELS, CPU, torch.float64)
    for view in weights.views.values():
        view.copy_(numbers(stream, *view.shape))
    return stream, weights
