"""Divide a language model among the ranks of a process group: fully sharded data parallelism (FSDP2 of torch).

Each rank keeps its share of every weight, gradient and optimiser statistic. A layer is collected from all ranks while
it computes. Zhao et al. 2023, "PyTorch FSDP".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tasks.training.sharded_tensors import is_sharded
from tasks.worker.ranks import current_ranks

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


def mesh_of_ranks(device: torch.device) -> DeviceMesh:
    """Return the mesh of all ranks, whose devices are like this one. All ranks must call this together."""
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh(device.type, (current_ranks().size,))


def shard_model(module: Any, mesh: DeviceMesh) -> None:
    """Keep this rank's part of the model, layer by layer, on its device. Every rank begins with the same model."""
    from torch.distributed.fsdp import fully_shard

    # The layers that transformers keeps on one device, such as GPT2Block.
    kinds = set(getattr(module, "_no_split_modules", None) or ())
    for part in [part for part in module.modules() if type(part).__name__ in kinds]:
        fully_shard(part, mesh=mesh)
    fully_shard(module, mesh=mesh)


def no_gradients() -> AbstractContextManager[None]:
    """Return a context without gradients. Sharded layers replace their weights, which inference mode forbids."""
    return torch.no_grad() if current_ranks().size > 1 else torch.inference_mode()


def zero_moments(weight: Tensor, shapes: Mapping[str, Sequence[int]]) -> dict[str, Tensor]:
    """Return zeros of these shapes, sharded like a weight along the first axis, unless that axis is averaged."""
    if not is_sharded(weight):
        return {name: torch.zeros(shape, device=weight.device) for name, shape in shapes.items()}
    from torch.distributed.tensor import DTensor, Replicate, zeros

    assert isinstance(weight, DTensor)
    moments: dict[str, Tensor] = {}
    for name, shape in shapes.items():
        is_divided = len(shape) > 0 and shape[0] == weight.shape[0] and not (name.endswith("col") and weight.dim() == 2)
        placements = weight.placements if is_divided else [Replicate()]
        moments[name] = zeros(*shape, dtype=torch.float32, device_mesh=weight.device_mesh, placements=placements)
    return moments
