"""Determine how many models fit into memory, from the memory that a step takes with one model and with two."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

SPARED = 0.1  # of the free memory, for fragmentation and libraries


@dataclass(frozen=True)
class Need:
    """The memory of a stack in bytes: a fixed amount and an amount per model."""

    fixed: int
    per_model: int

    def fitting(self, free: int) -> int:
        """Return the number of models that fit into `free` bytes."""
        return max(0, int((free * (1 - SPARED) - self.fixed) // max(1, self.per_model)))


def need(step_of: Callable[[int], int], device: torch.device) -> Need:
    """Measure the memory that a step takes with one model and with two.

    `step_of(models)` takes a step and returns the number of bytes that are allocated afterwards.
    """
    one_model = peak_memory(partial(step_of, 1), device)
    two_models = peak_memory(partial(step_of, 2), device)
    per_model = max(two_models - one_model, 1)
    return Need(max(one_model - per_model, 0), per_model)


def peak_memory(work: Callable[[], int], device: torch.device) -> int:
    """Return the peak memory of some work in bytes, in addition to earlier allocations.

    On a CPU, where torch does not count memory, this is the sum of two numbers: the allocated bytes that the work
    returns, and the peak of the tensors saved by autograd.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        work()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    tracker = Kept()
    with torch.autograd.graph.saved_tensors_hooks(tracker.keep, lambda saved: saved.tensor):
        allocated = work()
    return tracker.most + allocated


class Kept:
    """The bytes that autograd currently keeps, and their peak. Shared memory is counted once."""

    def __init__(self) -> None:
        self.most = 0
        self._now = 0
        self._times: dict[int, int] = {}  # how often each piece of memory is kept, by address

    def keep(self, tensor: Tensor) -> Saved:
        """Return the object that autograd keeps instead of the tensor.

        The tensor's memory counts for as long as this object lives.
        """
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        size = storage.nbytes()
        self._times[address] = self._times.get(address, 0) + 1
        if self._times[address] == 1:
            self._now += size
            self.most = max(self.most, self._now)
        saved = Saved(tensor)
        weakref.finalize(saved, self._let_go, address, size)
        return saved

    def _let_go(self, address: int, size: int) -> None:
        self._times[address] -= 1
        if not self._times[address]:
            self._now -= size


class Saved:
    """A tensor that autograd saves for computing gradients."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def free(device: torch.device) -> int:
    """Return the free memory of the device in bytes."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def whole(device: torch.device) -> int:
    """Return the total memory of the device in bytes."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1]
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def free_cached_memory(device: torch.device) -> None:
    """Release the memory that torch caches."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
