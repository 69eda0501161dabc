"""Facts about the machine in every result file: date, processor, peak speed, load and versions."""

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

PRODUCTS = 4  # per run of a ceiling
ROUNDS = 2  # per ceiling, after one untimed round; the fastest counts
CPU = torch.device("cpu")


def machine_facts(packages: Iterable[str] = ()) -> dict[str, str]:
    """Return the facts that make results comparable, including the versions of these packages."""
    versions = [f"torch {torch.__version__}", *(f"{name} {metadata.version(name)}" for name in ("numpy", *packages))]
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "processor": describe_processor(),
        "ceiling": describe_ceiling(),
        "load before": " ".join(f"{load:.1f}" for load in os.getloadavg()) + " (1, 5 and 15 minutes)",
        "versions": f"Python {platform.python_version()}, {', '.join(versions)}",
    }


def describe_processor() -> str:
    """Return name, family, model, cores and vector instructions. The name alone does not identify the generation."""
    fields = cpu_fields()
    name = fields.get("model name") or platform.processor() or platform.machine()
    if {"cpu family", "model"} <= set(fields):
        name = f"{name} (family {fields['cpu family']}, model {fields['model']})"
    return f"{name}, {os.cpu_count()} cores, {torch.backends.cpu.get_cpu_capability()}"


def cpu_fields() -> dict[str, str]:
    """Return the fields of the first processor in /proc/cpuinfo. Returns no fields if the file does not exist."""
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return {}
    first = path.read_text().partition("\n\n")[0]
    pairs = [line.partition(":") for line in first.splitlines()]
    return {name.strip(): value.strip() for name, _, value in pairs}


@lru_cache
def describe_ceiling() -> str:
    """Describe the fastest single-thread float32 product, measured once per process: `107 GF/s, 1 thread, onednn`."""
    fastest = {}
    with threads(1):
        for name, run in ceilings(CPU).items():
            run()
            fastest[name] = min(seconds_of(run) for _ in range(ROUNDS))
    best = min(fastest, key=lambda name: fastest[name])
    return f"{rate(fastest[best]):.0f} GF/s, 1 thread, {best}"


def seconds_of(run: Callable[[], object]) -> float:
    """Return the CPU seconds of one run."""
    start = time.process_time()
    run()
    return time.process_time() - start


def ceilings(device: torch.device) -> dict[str, Callable[[], object]]:
    """Return 1024 x 1024 products computed by torch and, if it differs, by Engram's product library for this device."""
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
    """Return the GF/s of a ceiling run that took this many seconds."""
    return PRODUCTS * 2 * 1024**3 / seconds / 1e9
