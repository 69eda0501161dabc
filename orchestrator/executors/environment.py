"""This process's environment: variables, signals, stderr, threads, and the GPUs that it may use."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tasks.worker.hardware import threads

LIBRARIES = ("OMP", "MKL", "OPENBLAS", "NUMEXPR", "VECLIB")
# Read by each library when it is loaded.
ONE_THREAD = {f"{library}_{'MAXIMUM' if library == 'VECLIB' else 'NUM'}_THREADS": "1" for library in LIBRARIES}
DRIVER = Path("/proc/driver/nvidia/gpus")  # contains one folder per GPU
SMI_SECONDS = 20.0  # time limit for nvidia-smi to answer


@contextmanager
def variables(values: Mapping[str, str], *other_names: str) -> Iterator[None]:
    """Set environment variables inside the block. Afterwards, restore them and the `other_names`."""
    earlier_values = {name: os.environ.get(name) for name in (*values, *other_names)}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in earlier_values.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def handler_kept(number: signal.Signals) -> Iterator[None]:
    """Restore a signal handler after the block. Does nothing outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(number)
    try:
        yield
    finally:
        signal.signal(number, handler)


@contextmanager
def no_stderr() -> Iterator[None]:
    """Discard the process's stderr inside the block, because Ray's C++ code writes to it at any logging level."""
    saved = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)


@contextmanager
def use_one_thread() -> Iterator[None]:
    """Limit torch to one thread in this process inside the block, even if torch is only loaded there."""
    with ExitStack() as stack:
        if "torch" in sys.modules:
            stack.enter_context(threads(1))
        stack.enter_context(variables(ONE_THREAD))
        yield


def count_processors() -> int:
    """Count the processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def count_gpus() -> int:
    """Count the machine's GPUs, or those listed in CUDA_VISIBLE_DEVICES."""
    if DRIVER.is_dir():
        count = len(list(DRIVER.iterdir()))
    else:
        count = _nvidia_smi_count()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None or not count:
        return count
    visible_gpus = 0
    for name in visible.split(","):
        name = name.strip()
        if (name.isdigit() and int(name) >= count) or not (name.isdigit() or name.startswith(("GPU-", "MIG-"))):
            break  # CUDA also ignores the rest
        visible_gpus += 1
    return visible_gpus


def gpu_model() -> str:
    """Return the model of the first GPU as its driver states it, or an empty string."""
    for file in sorted(DRIVER.glob("*/information")):
        with suppress(OSError):
            for line in file.read_text(errors="replace").splitlines():
                label, _, model = line.partition(":")
                if label == "Model":
                    return model.strip()
    return ""


def first_gpus(count: int) -> str:
    """Return the CUDA_VISIBLE_DEVICES of a process that uses the first GPUs of those that this process sees."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else map(str, range(count))
    return ",".join(list(names)[:count])


def _nvidia_smi_count() -> int:
    """Count the GPUs with nvidia-smi. Needed in containers and on WSL, where /proc shows none."""
    try:
        output = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=SMI_SECONDS, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return 0
    return sum(line.startswith("GPU ") for line in output.splitlines())
