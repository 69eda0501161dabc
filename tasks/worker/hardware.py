"""The hardware available to this process: its device, rounding, threads and memory."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tasks.worker.ranks import current_ranks

if TYPE_CHECKING:
    import torch

# M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
TRIM_THRESHOLD = -1
MMAP_THRESHOLD = -3
LARGEST = 32 * 2**20  # bytes; glibc returns larger blocks to the system in any case
RESIDENT = re.compile(rb"VmHWM:\s*(\d+) kB\n(?:.*\n)*?RssFile:\s*(\d+) kB\nRssShmem:\s*(\d+) kB")  # proc_pid_status(5)
STATUS_BYTES = 4096  # the part of /proc/self/status that contains these fields
FORGET_PEAK = b"5"  # in /proc/self/clear_refs, see proc_pid_clear_refs(5)

MemoryKind = Literal["host", "device"]


def device() -> torch.device:
    """Return the GPU if there is one, otherwise the CPU."""
    import torch

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def device_name(target_device: torch.device) -> str:
    """Return the product name of a GPU, or "cpu" for any processor."""
    import torch

    if target_device.type == "cuda":
        return torch.cuda.get_device_name(target_device)
    return target_device.type


def available_memory(system: Path = Path("/")) -> int:
    """Return the host memory that is available without swapping, including the page cache, in bytes.

    This is at most the limit of this process's container, if it has one. The ranks of a process group share it equally.
    `system` is the root of Linux's `proc` and `sys`.
    """
    return _available_to_machine(system) // current_ranks().size


def _available_to_machine(system: Path) -> int:
    try:
        numbers = numbers_of(system / "proc/meminfo")
        available = numbers["MemAvailable:"] * 1024
    except (OSError, KeyError):  # not Linux
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    group = system / "sys/fs/cgroup"
    try:
        limit = int((group / "memory.max").read_text())
        used_bytes = int((group / "memory.current").read_text())
        return max(0, min(available, limit - used_bytes + numbers_of(group / "memory.stat")["file"]))
    except (OSError, KeyError, ValueError):  # no container, or one without a limit ("max")
        return available


def granted_processors() -> int:
    """Return the number of processors that a job may use: that of OpenMP's threads, which Ray sets for each job."""
    stated = os.environ.get("OMP_NUM_THREADS", "")
    if stated.isdecimal() and int(stated):
        return int(stated)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_peak_of_ranks = 0  # bytes of the processes that computed for this one since the last reset


def reset_peak_memory() -> None:
    """Reset `peak_memory`. On systems other than Linux, it counts from the start of the process."""
    global _peak_of_ranks
    _peak_of_ranks = 0
    with suppress(OSError), open("/proc/self/clear_refs", "wb", buffering=0) as file:
        file.write(FORGET_PEAK)


def add_peak_memory(size: int) -> None:
    """Count the peak memory of processes that computed for this one, in bytes."""
    global _peak_of_ranks
    _peak_of_ranks = max(_peak_of_ranks, size)


def peak_memory() -> int:
    """Return the peak memory of this process in bytes, excluding mapped files, or 0 if it is unknown.

    It includes the processes that computed for this one (`add_peak_memory`). Files such as torch's libraries are in
    memory only once for all processes of a machine.
    """
    # Not `getrusage`, whose maximum includes the process that started this one.
    try:
        match = RESIDENT.search(os.pread(_status(), STATUS_BYTES, 0))
    except OSError:
        return 0
    peak, files, shared = map(int, match.groups()) if match else (0, 0, 0)
    return max(0, peak - files - shared) * 1024 + _peak_of_ranks


@cache
def _status() -> int:
    """Return a descriptor of this process's `status` file. It stays open, since every job's record needs it."""
    return os.open("/proc/self/status", os.O_RDONLY)


os.register_at_fork(after_in_child=_status.cache_clear)


def exhausted_memory(error: BaseException) -> MemoryKind | None:
    """Return the kind of memory that ran out according to an error, or None."""
    stated: MemoryKind | None = getattr(error, "exhausted", None)
    if stated is not None or isinstance(error, MemoryError):
        return stated or "host"
    # Checked by name, since a process that computes without torch does not load it.
    if type(error).__name__ == "OutOfMemoryError":
        return "device"
    if isinstance(error, RuntimeError) and "CUBLAS_STATUS_ALLOC_FAILED" in str(error):
        return "device"
    if isinstance(error, RuntimeError) and "can't allocate memory" in str(error):
        return "host"
    return None


def numbers_of(table: Path) -> dict[str, int]:
    """Return the first number after each name in one of Linux's tables."""
    lines = (line.split() for line in table.read_text().splitlines())
    result = {}
    for words in lines:
        if len(words) > 1 and words[1].isdecimal():
            result[words[0]] = int(words[1])
    return result


@contextmanager
def exactly(target_device: torch.device) -> Iterator[None]:
    """Compute float32 products in full precision, and bitwise reproducibly as far as a GPU's libraries allow.

    By default, torch rounds the factors of convolutions to 10 bits (TF32) on a GPU. On a CPU, one thread is used and
    freed memory is kept permanently; otherwise allocation costs a third of a convolutional network's step.
    """
    import torch

    if target_device.type != "cuda":
        keep_freed_memory()
        with threads(1):
            yield
        return
    library: Any = torch.backends.cudnn
    repeatable = library.deterministic
    library.deterministic = True
    try:
        with _cudnn_products("ieee"), full_float32():
            yield
    finally:
        library.deterministic = repeatable


@contextmanager
def full_float32() -> Iterator[None]:
    """Round float32 products as float32, without TF32 on a GPU or bfloat16 on a CPU, inside the block."""
    with _products("highest"):
        yield


@contextmanager
def tf32_products() -> Iterator[None]:
    """Round the factors of a GPU's float32 products and convolutions to TF32. Restores the settings afterwards."""

    with _cudnn_products("tf32"), _products("high"):
        yield


@contextmanager
def _cudnn_products(precision: str) -> Iterator[None]:
    """Compute float32 convolutions of a GPU in one of torch's precisions."""
    import torch

    library: Any = torch.backends.cudnn
    kinds = (library.conv, library.rnn)  # torch requires both settings to be equal
    before = [kind.fp32_precision for kind in kinds]
    for kind in kinds:
        kind.fp32_precision = precision
    try:
        yield
    finally:
        for kind, precision_before in zip(kinds, before, strict=True):
            kind.fp32_precision = precision_before


@contextmanager
def _products(precision: str) -> Iterator[None]:
    """Compute float32 products in one of torch's precisions.

    Both torch settings that reduce precision are restored, `set_float32_matmul_precision` and
    `torch.backends.*.fp32_precision`, since torch refuses to multiply if they contradict each other.
    """
    import torch

    backends = [torch.backends.cuda.matmul, torch.backends.mkldnn.matmul]  # type: ignore[attr-defined]
    before = [backend.fp32_precision for backend in backends]
    try:
        legacy = torch.get_float32_matmul_precision()
    except RuntimeError:  # only available through the backends
        legacy = None
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        if legacy is not None:
            torch.set_float32_matmul_precision(legacy)
        for backend, precision in zip(backends, before, strict=True):
            backend.fp32_precision = precision


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Use `count` torch threads inside the block, and restore the number afterwards.

    Small models train fastest with one process per core and one thread each, and sums in a single thread have a fixed
    order.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@cache
def keep_freed_memory() -> bool:
    """Keep freed memory in this process for reuse. Returns whether the C library supports this.

    The activations of a minibatch are megabytes that are allocated and freed in every step. glibc returns such blocks
    to the system immediately, and at the next allocation the system fills them with zeros, page by page. This takes a
    third of a convolutional network's step on a CPU.
    """
    if not sys.platform.startswith("linux"):
        return False
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    return set_option is not None and bool(
        set_option(MMAP_THRESHOLD, LARGEST) and set_option(TRIM_THRESHOLD, 2**31 - 1)
    )
