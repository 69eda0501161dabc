"""Tensors of a training that may be divided among the ranks of a process group, as `DTensor` of torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def is_sharded(tensor: Tensor) -> bool:
    """Return whether this rank has only its part of the tensor."""
    return hasattr(tensor, "full_tensor")


def whole_tensor(tensor: Tensor) -> Tensor:
    """Return the tensor with the parts of all ranks. All ranks must call this."""
    if not is_sharded(tensor):
        return tensor
    sharded: Any = tensor
    whole: Tensor = sharded.full_tensor()
    return whole


def copy_values(tensor: Tensor, values: NDArray[np.float32]) -> None:
    """Copy values of the whole tensor into it, of which each rank keeps its part. All ranks must call this."""
    source = torch.from_numpy(values.copy())
    if not is_sharded(tensor):
        tensor.copy_(source)
        return
    from torch.distributed.tensor import distribute_tensor

    sharded: Any = tensor
    tensor.copy_(distribute_tensor(source.to(tensor.device), sharded.device_mesh, sharded.placements))
