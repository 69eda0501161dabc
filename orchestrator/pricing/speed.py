"""The speed of this machine: seconds of a matrix product and of a small convolution, on one thread, without torch.

Measured once by a process of its own, which loads NumPy alone, and kept with the store for each machine.
"""

from __future__ import annotations

import functools
import json
import math
import os
import socket
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.executors.threads import ONE

SECONDS = 0.9  # that each of the two is repeated for
SIDE = 512  # of the matrices
IMAGES, CHANNELS, PIXELS, KERNEL = 16, 16, 28, 3
HANGING = 60.0  # seconds
KINDS = ("product", "convolution")


@dataclass(frozen=True)
class Speed:
    """Processor seconds of one matrix product, and of one convolution."""

    product: float
    convolution: float

    def against(self, reference: Speed) -> tuple[float, float]:
        """By what factor this machine is slower than another, and by what factor the two measurements disagree."""
        ratios = [getattr(self, kind) / getattr(reference, kind) for kind in KINDS]
        middle = math.sqrt(ratios[0] * ratios[1])
        return middle, max(ratios) / middle


def measure_speed(seconds: float = SECONDS) -> Speed:
    """The speed of this process: the median of as many repetitions as fit into these seconds, by processor time."""
    generator = np.random.default_rng(0)
    square = generator.standard_normal((SIDE, SIDE), dtype=np.float32)
    images = generator.standard_normal((IMAGES, PIXELS, PIXELS, CHANNELS), dtype=np.float32)
    kernels = generator.standard_normal((KERNEL * KERNEL * CHANNELS, 2 * CHANNELS), dtype=np.float32)

    def convolve() -> Any:
        windows = np.lib.stride_tricks.sliding_window_view(images, (KERNEL, KERNEL), axis=(1, 2))
        columns = np.ascontiguousarray(windows).reshape(-1, KERNEL * KERNEL * CHANNELS)
        return np.maximum(columns @ kernels, 0)

    return Speed(_median(lambda: square @ square, seconds), _median(convolve, seconds))


def _median(run: Any, seconds: float) -> float:
    run()
    taken: list[float] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until or len(taken) < 3:
        begun = time.process_time()
        run()
        taken.append(time.process_time() - begun)
    return float(np.median(taken))


@functools.cache
def machine_speed(kept: Path | None) -> Speed | None:
    """The speed of this machine, from the folder where it was kept, else measured and kept; None where that fails."""
    file = None if kept is None else kept / f"{socket.gethostname()}.json"
    if file is not None and (known := _read(file)) is not None:
        return known
    try:
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator.pricing.speed"],
            capture_output=True,
            text=True,
            timeout=HANGING,
            env={**os.environ, **ONE},
            check=True,
        )
        speed = _speed(json.loads(done.stdout))
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    if speed is not None and file is not None:
        _write(file, speed)
    return speed


def _read(file: Path) -> Speed | None:
    try:
        return _speed(json.loads(file.read_text()))
    except (OSError, ValueError, RecursionError):
        return None


def _write(file: Path, speed: Speed) -> None:
    try:
        aside = file.with_name(f".{file.name}.{os.getpid()}")
        aside.write_text(json.dumps(asdict(speed)))
        aside.replace(file)
    except OSError:  # then it is measured again
        return


def _speed(value: Any) -> Speed | None:
    seconds = [value.get(kind) for kind in KINDS] if isinstance(value, dict) else []
    sound = [each for each in seconds if isinstance(each, float) and 0 < each < math.inf]
    return Speed(*sound) if len(sound) == len(KINDS) else None


if __name__ == "__main__":
    print(json.dumps(asdict(measure_speed())))  # noqa: T201
