"""The GPUs that a process started here can compute on, counted without loading a library that would occupy one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

DRIVER = Path("/proc/driver/nvidia/gpus")  # a folder in it for each GPU
SECONDS = 20.0  # for nvidia-smi to answer


def count() -> int:
    """The number of the machine's GPUs, or of those in CUDA_VISIBLE_DEVICES."""
    there = len(list(DRIVER.iterdir())) if DRIVER.is_dir() else _nvidia_smi_count()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None or not there:
        return there
    visible_gpus = 0
    for name in visible.split(","):
        name = name.strip()
        if (name.isdigit() and int(name) >= there) or not (name.isdigit() or name.startswith(("GPU-", "MIG-"))):
            break  # CUDA sees none of what follows either
        visible_gpus += 1
    return visible_gpus


def _nvidia_smi_count() -> int:
    """GPUs by nvidia-smi, for containers and WSL, where /proc shows none."""
    try:
        output = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=SECONDS, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return 0
    return sum(line.startswith("GPU ") for line in output.splitlines())
