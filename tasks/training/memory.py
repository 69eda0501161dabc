"""Determine what fits into memory: how many models, and in how many parts a step must be computed.

The number of models follows from the memory that a step takes with one model and with two. The parts are tried: a step
that runs out of memory is computed in more parts if that does not change its result, and is refused otherwise.
"""

from __future__ import annotations

import os
import resource
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from tasks.training.members import TrainingError
from tasks.worker import hardware

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
    try:
        two_models = peak_memory(partial(step_of, 2), device)
    except Exception as error:
        if not hardware.exhausted_memory(error):
            raise
        two_models = 2 * one_model  # only one model fits
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


def raises_when_full(device: torch.device) -> bool:
    """Return whether running out of memory raises an error: on a GPU, or if this process has a limit.

    Otherwise, Linux grants any memory and ends a process later.
    """
    limits = (resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA))
    return device.type == "cuda" or any(limit != resource.RLIM_INFINITY for limit in limits)


def next_parts(parts: int, batch: int) -> int | None:
    """Return the next number of equal parts of a batch: a multiple, up to one row per part, or None."""
    return next((count for count in range(2 * parts, batch + 1, parts) if batch % count == 0), None)


def find_parts(
    compute: Callable[[int], None], parts: int, batch: int, device: torch.device, name: str, obstacle: str | None
) -> int:
    """Return the number of parts in which steps of `batch` rows fit into memory, at least `parts`.

    `compute(parts)` computes the gradients of a step in that number of parts; it is called twice, because the second
    step also holds the gradients of the first. `obstacle` says why more parts would change the result, or is None if
    they would not. Raises TrainingError if the step does not fit.
    """
    while True:
        try:
            for _ in range(2):
                compute(parts)
            return parts
        except Exception as error:
            if not hardware.exhausted_memory(error):
                raise
        free_cached_memory(device)
        more = next_parts(parts, batch)
        if obstacle is not None or more is None:
            raise too_large(name, batch, parts, device, obstacle, f", or more parts with accumulate={2 * parts}")
        parts = more


def too_large(
    name: str, batch: int, parts: int, device: torch.device, obstacle: str | None = None, alternative: str = ""
) -> TrainingError:
    """Return the error of a training of which one step does not fit into memory.

    `obstacle` says why it is not computed in more parts, and `alternative` how a user can ask for them.
    """
    in_parts = "" if parts == 1 else f" in {parts} parts"
    if obstacle is None:
        cure = "try a smaller batch"
    else:
        cure = f"try a smaller batch{alternative}: {obstacle}"
    error = TrainingError(
        f"one {name} with a batch of {batch}{in_parts} does not fit into the {free(device) / 1e9:.1f} GB that are free "
        f"on {hardware.device_name(device)}; {cure}"
    )
    error.exhausted = "host" if device.type == "cpu" else "device"
    return error
