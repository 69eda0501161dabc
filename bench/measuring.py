"""Code shared by the benchmarks: alternating measurements and the result format.

A ratio compares two measurements from the same run, because the speed of a shared machine varies. The ceiling is the
fastest float32 matrix product (1024 x 1024) in the run.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from measurement.files import write_whole
from measurement.report import make_parser

Run = Callable[[], object]  # the timed function


@dataclass(frozen=True)
class Row:
    """One row in the results: Engram compared with a rival, and the required and target ratios (NaN if undefined)."""

    subject: str
    engram: str
    rival: str = ""
    ratio: float = math.nan
    required: float = math.nan
    target: float = math.nan
    unit: str = "x"  # of the ratio and its goals; with "s", the ratio is a time and lower is better
    section: str = ""  # of a long benchmark, which measures a section's rows together

    @property
    def met(self) -> bool | None:
        """Whether the ratio meets the requirement. None if there is no requirement."""
        if math.isnan(self.required) or math.isnan(self.ratio):
            return None
        if self.unit == "x":
            return self.ratio >= self.required
        return self.ratio <= self.required


def in_turn(
    runs: dict[str, Run],
    rounds: int,
    clock: Callable[[], float],
    typical: Callable[[list[float]], float] = statistics.median,
) -> dict[str, float]:
    """Return the typical seconds of each run. Every run is timed once per round."""
    for run in runs.values():
        run()
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            start = clock()
            run()
            seconds[name].append(clock() - start)
    return {name: typical(times) for name, times in seconds.items()}


def synchronised_wall_clock(device: torch.device) -> Callable[[], float]:
    def clock() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    return clock


def clock_for(device: torch.device) -> tuple[str, Callable[[], float]]:
    """Return the name of the clock for this device, and the clock: one thread's CPU time, or wall time on a GPU.

    CPU time is little affected by other processes.
    """
    if device.type == "cpu":
        return "1 thread, CPU time", time.process_time
    return "wall time", synchronised_wall_clock(device)


def markdown(title: str, setting: dict[str, str], rows: list[Row]) -> str:
    """Return the facts and the table of rows, with a last column for their sections if they have any."""
    lines = [f"# {title}", "", *(f"- {name}: {value}" for name, value in setting.items()), ""]
    has_sections = any(row.section for row in rows)
    lines += [
        "| measurement | Engram | compared with | ratio | required | target | met |" + " section |" * has_sections,
        "|---|---|---|---|---|---|---|" + "---|" * has_sections,
    ]
    words = {True: "yes", False: "no", None: ""}
    for row in rows:
        unit = row.unit if row.unit == "x" else f" {row.unit}"
        if math.isnan(row.ratio):
            ratio = ""
        else:
            ratio = f"{row.ratio:.2f}{unit}"
        goals = " | ".join("" if math.isnan(goal) else f"{goal:g}{unit}" for goal in (row.required, row.target))
        section = f" {row.section} |" * has_sections
        lines.append(f"| {row.subject} | {row.engram} | {row.rival} | {ratio} | {goals} | {words[row.met]} |{section}")
    return "\n".join(lines) + "\n"


def as_json(setting: dict[str, str], rows: list[Row]) -> str:
    plain = []
    for row in rows:
        cells = {**asdict(row), "met": row.met}
        plain.append({name: None if value != value else value for name, value in cells.items()})
    return json.dumps({**setting, "rows": plain}, indent=1) + "\n"


def read_report(path: Path) -> tuple[dict[str, str], list[Row]]:
    """Return the facts and rows of a result that `write` wrote, in JSON if its name ends in .json, else in Markdown."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        setting = json.loads(text)
        return setting, [json_row(cells) for cells in setting.pop("rows")]
    facts = re.findall(r"^- ([^:\n]+): (.*)$", text, re.MULTILINE)
    table = [line.strip("|") for line in text.splitlines() if line.startswith("|")]
    return dict(facts), [markdown_row(line) for line in table[2:]]


def json_row(cells: dict[str, Any]) -> Row:
    del cells["met"]
    return Row(**{name: math.nan if value is None else value for name, value in cells.items()})


def markdown_row(line: str) -> Row:
    """Return the row of a table line without its outer bars."""
    cells = [cell.strip() for cell in line.split("|")]
    (subject, engram, rival), numbers = cells[:3], cells[3:6]
    section = cells[7] if len(cells) > 7 else ""
    units = [number.lstrip("0123456789.e+-").strip() for number in numbers]
    values = []
    for number, unit in zip(numbers, units, strict=True):
        values.append(float(number.removesuffix(unit)) if number else math.nan)
    return Row(subject, engram, rival, *values, unit=next(filter(None, units), "x"), section=section)


def bench_parser(description: str | None) -> argparse.ArgumentParser:
    """Create a parser with the options of all benchmarks: --tiny and --out."""
    parser = make_parser(description)
    parser.add_argument("--out", type=Path, help="write the result here: JSON if it ends in .json, else Markdown")
    return parser


def parse_options(description: str | None) -> argparse.Namespace:
    """Parse the options --tiny, --device and --out."""
    parser = bench_parser(description)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    return parser.parse_args()


def publish(title: str, setting: dict[str, str], rows: list[Row], out: Path | None) -> None:
    """Print the result. If `out` is given, also write it there."""
    print(markdown(title, setting, rows), end="")
    write(title, setting, rows, out)


def write(title: str, setting: dict[str, str], rows: list[Row], out: Path | None) -> None:
    """Write the result atomically to `out` if it is given."""
    if out:
        write_whole(as_json(setting, rows) if out.suffix == ".json" else markdown(title, setting, rows), out)
