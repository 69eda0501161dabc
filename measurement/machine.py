"""Facts about the machine in every result file: date, processor, ceiling, load and versions."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import lru_cache
from importlib import metadata
from pathlib import Path

import torch

from tasks.numerics.matmul import TORCH, products
from tasks.worker.hardware import threads

PRODUCTS = 4  # in one run of a ceiling
ROUNDS = 2  # of each ceiling, after one that is not timed; the fastest counts
CPU = torch.device("cpu")


def machine_facts(packages: Iterable[str] = ()) -> dict[str, str]:
    """The facts that make results comparable, including the versions of these packages."""
    versions = [f"torch {torch.__version__}", *(f"{name} {metadata.version(name)}" for name in ("numpy", *packages))]
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "processor": describe_processor(),
        "ceiling": describe_ceiling(),
        "load before": " ".join(f"{load:.1f}" for load in os.getloadavg()) + " (1, 5 and 15 minutes)",
        "versions": f"Python {platform.python_version()}, {', '.join(versions)}",
    }


def describe_processor() -> str:
    """Name, family and model, cores and vector instructions; a name alone does not identify the generation."""
    fields = cpu_fields()
    name = fields.get("model name") or platform.processor() or platform.machine()
    if {"cpu family", "model"} <= set(fields):
        name = f"{name} (family {fields['cpu family']}, model {fields['model']})"
    return f"{name}, {os.cpu_count()} cores, {torch.backends.cpu.get_cpu_capability()}"


def cpu_fields() -> dict[str, str]:
    """The fields of the first processor in /proc/cpuinfo; empty if the file does not exist."""
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return {}
    first = path.read_text().partition("\n\n")[0]
    pairs = [line.partition(":") for line in first.splitlines()]
    return {name.strip(): value.strip() for name, _, value in pairs}


@lru_cache
def describe_ceiling() -> str:
    """The fastest float32 product of one thread, measured once per process: `107 GF/s, 1 thread, onednn`."""
    fastest = {}
    with threads(1):
        for name, run in ceilings(CPU).items():
            run()
            fastest[name] = min(seconds_of(run) for _ in range(ROUNDS))
    best = min(fastest, key=lambda name: fastest[name])
    return f"{rate(fastest[best]):.0f} GF/s, 1 thread, {best}"


def seconds_of(run: Callable[[], object]) -> float:
    """The CPU seconds of one run."""
    start = time.process_time()
    run()
    return time.process_time() - start


def ceilings(device: torch.device) -> dict[str, Callable[[], object]]:
    """A 1024 x 1024 product by torch, and by Engram's product library on this device if it differs."""
    square = torch.randn(1024, 1024, device=device)
    bias = torch.zeros(1024, device=device)
    libraries = {library.name: library for library in (TORCH, products(device, torch.float32))}

    def product(name: str) -> Callable[[], object]:
        library = libraries[name]
        if library.stacked:
            factors = (square[None], square[None], bias[None])
        else:
            factors = (square, square, bias)
        return lambda: [library.affine(*factors, False) for _ in range(PRODUCTS)]

    return {name: product(name) for name in libraries}


def rate(seconds: float) -> float:
    """GF/s of one run of a ceiling."""
    return PRODUCTS * 2 * 1024**3 / seconds / 1e9
