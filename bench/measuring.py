"""What every bench here shares: things measured in turn in one run, and how a result is written.

Ratios are of two things measured in the same run, because a shared machine is never twice the same. The ceiling is the
fastest float32 matrix product (1024 x 1024) of the run.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch

from tasks.models.products import TORCH, products

Run = Callable[[], object]  # what is timed
PRODUCTS = 4  # in one run of a ceiling


@dataclass(frozen=True)
class Row:
    """One line of the result: a goal, what was measured for it, and beside what."""

    what: str
    ours: str
    rival: str
    ratio: float
    must: float
    aim: float
    unit: str = "x"  # of the ratio and its goals; s where the seconds themselves are judged, and less is better


def ceilings(place: torch.device) -> dict[str, Run]:
    """A 1024 x 1024 product by torch, and by the library that our products use here if that is another."""
    square, bias = torch.randn(1024, 1024, device=place), torch.zeros(1024, device=place)
    libraries = {by.name: by for by in (TORCH, products(place, torch.float32))}

    def product(name: str) -> Run:
        return lambda: [libraries[name].affine(square, square, bias, False) for _ in range(PRODUCTS)]

    return {name: product(name) for name in libraries}


def rate(seconds: float) -> float:
    """GF/s of one run of a ceiling."""
    return PRODUCTS * 2 * 1024**3 / seconds / 1e9


def in_turn(
    runs: dict[str, Run],
    rounds: int,
    clock: Callable[[], float],
    typical: Callable[[list[float]], float] = statistics.median,
) -> dict[str, float]:
    """The typical seconds of each run, all of them once per round."""
    for run in runs.values():
        run()
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            start = clock()
            run()
            seconds[name].append(clock() - start)
    return {name: typical(times) for name, times in seconds.items()}


def wall_after_the_device(place: torch.device) -> Callable[[], float]:
    def clock() -> float:
        if place.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    return clock


def clock_of(place: torch.device) -> tuple[str, Callable[[], float]]:
    """What a thread (or a GPU) is timed by, in words too: a busy machine disturbs CPU time little."""
    if place.type == "cpu":
        return "1 thread, CPU time", time.process_time
    return "wall time", wall_after_the_device(place)


def here(data: str, place: torch.device) -> dict[str, str]:
    """What a reader must know to compare."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "processor": f"{model or platform.processor() or platform.machine()}, {os.cpu_count()} cores, "
        f"{torch.backends.cpu.get_cpu_capability()}",
        "device": torch.cuda.get_device_name(place) if place.type == "cuda" else "CPU",
        "versions": f"Python {platform.python_version()}, torch {torch.__version__}, NumPy {np.__version__}",
        "products": products(place, torch.float32).name,
        "data": data,
    }


def markdown(title: str, setting: dict[str, str], rows: list[Row]) -> str:
    lines = [f"# {title}", "", *(f"- {name}: {value}" for name, value in setting.items()), ""]
    lines += ["| what | Engram | beside | ratio | must | aim |", "|---|---|---|---|---|---|"]
    for row in rows:
        unit = row.unit if row.unit == "x" else f" {row.unit}"
        goals = " | ".join("" if math.isnan(goal) else f"{goal:g}{unit}" for goal in (row.must, row.aim))
        lines.append(f"| {row.what} | {row.ours} | {row.rival} | {row.ratio:.2f}{unit} | {goals} |")
    return "\n".join(lines) + "\n"


def as_json(setting: dict[str, str], rows: list[Row]) -> str:
    cells = [{name: None if value != value else value for name, value in asdict(row).items()} for row in rows]
    return json.dumps({**setting, "rows": cells}, indent=1) + "\n"


def options(description: str | None) -> argparse.Namespace:
    """The command line of a bench: tiny, device, out."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="few steps: whether it runs, not how fast")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out", type=Path, help="write the result here: JSON where it ends in .json, else Markdown")
    return parser.parse_args()


def publish(title: str, setting: dict[str, str], rows: list[Row], out: Path | None) -> None:
    """Print the result, and write it where it was asked for."""
    print(markdown(title, setting, rows), end="")
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(as_json(setting, rows) if out.suffix == ".json" else markdown(title, setting, rows))
