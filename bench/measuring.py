"""What every bench here shares: things measured in turn in one run, and how a result is written.

Ratios are of two things measured in the same run, because a shared machine is never twice the same. The ceiling is the
fastest float32 matrix product (1024 x 1024) of the run.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from measurement.files import write_whole
from measurement.report import make_parser

Run = Callable[[], object]  # what is timed


@dataclass(frozen=True)
class Row:
    """One line of the result: a goal, what was measured for it, and beside what. NaN where there is no number."""

    what: str
    ours: str
    rival: str = ""
    ratio: float = math.nan
    must: float = math.nan
    aim: float = math.nan
    unit: str = "x"  # of the ratio and its goals; s where the seconds themselves are judged, and less is better

    @property
    def met(self) -> bool | None:
        """Whether the ratio is as good as it must be; None where there is nothing to meet."""
        if math.isnan(self.must) or math.isnan(self.ratio):
            return None
        return self.ratio >= self.must if self.unit == "x" else self.ratio <= self.must


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


def markdown(title: str, setting: dict[str, str], rows: list[Row]) -> str:
    lines = [f"# {title}", "", *(f"- {name}: {value}" for name, value in setting.items()), ""]
    lines += ["| what | Engram | beside | ratio | must | aim | met |", "|---|---|---|---|---|---|---|"]
    words = {True: "yes", False: "no", None: ""}
    for row in rows:
        unit = row.unit if row.unit == "x" else f" {row.unit}"
        ratio = "" if math.isnan(row.ratio) else f"{row.ratio:.2f}{unit}"
        goals = " | ".join("" if math.isnan(goal) else f"{goal:g}{unit}" for goal in (row.must, row.aim))
        lines.append(f"| {row.what} | {row.ours} | {row.rival} | {ratio} | {goals} | {words[row.met]} |")
    return "\n".join(lines) + "\n"


def as_json(setting: dict[str, str], rows: list[Row]) -> str:
    cells = [{**asdict(row), "met": row.met} for row in rows]
    plain = [{name: None if value != value else value for name, value in cell.items()} for cell in cells]
    return json.dumps({**setting, "rows": plain}, indent=1) + "\n"


def bench_parser(description: str | None) -> argparse.ArgumentParser:
    """The options that all benchmarks have: tiny, out."""
    parser = make_parser(description)
    parser.add_argument("--out", type=Path, help="write the result here: JSON if it ends in .json, else Markdown")
    return parser


def options(description: str | None) -> argparse.Namespace:
    """The command line of a bench of one subject: tiny, device, out."""
    parser = bench_parser(description)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    return parser.parse_args()


def publish(title: str, setting: dict[str, str], rows: list[Row], out: Path | None) -> None:
    """Print the result, and write it where it was asked for."""
    print(markdown(title, setting, rows), end="")
    write(title, setting, rows, out)


def write(title: str, setting: dict[str, str], rows: list[Row], out: Path | None) -> None:
    """Write the result where it was asked for, whole or not at all."""
    if out:
        write_whole(as_json(setting, rows) if out.suffix == ".json" else markdown(title, setting, rows), out)
