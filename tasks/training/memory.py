"""How many models fit: from the memory that a step of one and of two models takes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

SPARED = 0.1  # of what is free: for fragments, and what libraries take later


@dataclass(frozen=True)
class Need:
    """The memory of a stack in bytes: a constant, and a part per model."""

    fixed: int
    each: int

    def fitting(self, free: int) -> int:
        """The number of models that fit into so many free bytes."""
        return max(0, int((free * (1 - SPARED) - self.fixed) // max(1, self.each)))


def need(step_of: Callable[[int], int], device: torch.device) -> Need:
    """The memory that `step_of(models)` takes, measured with one model and with two.

    It gives the bytes that it holds at its end.
    """
    one, two = (taken(partial(step_of, count), device) for count in (1, 2))
    each = max(two - one, 1)
    return Need(max(one - each, 0), each)


def taken(work: Callable[[], int], device: torch.device) -> int:
    """The peak memory of some work in bytes, beyond what was taken before.

    On a CPU, where nobody counts: what the work says it holds at its end, and what autograd has kept for its gradients.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        work()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        held = work()
    return sum(kept.values()) + held


def free(device: torch.device) -> int:
    """Free memory of the device in bytes."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def whole(device: torch.device) -> int:
    """Total memory of the device in bytes."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1]
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def free_unused(device: torch.device) -> None:
    """Release the memory that torch caches."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def is_out(error: BaseException) -> bool:
    """Whether an error says that memory ran out: the device's or the host's."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and ("can't allocate memory" in text or "CUBLAS_STATUS_ALLOC_FAILED" in text)
