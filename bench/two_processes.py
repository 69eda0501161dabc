"""Audit a folder laid out like ImageNet with two processes per training, kill the run, resume it, and compare.

    python -m bench.two_processes [--files 20000] [--memory 4] [--folder FOLDER] [--out bench/results/NAME.md]
    python -m bench.two_processes --steps

The folder gets JPEG files of 20 classes, each with the XML file of its box. `engram run deja_vu --processes-per-job 2`
runs twice: undisturbed, and killed by `kill -9` while two processes train, then resumed by the same command. Every
process may allocate at most `--memory` GB (RLIMIT_DATA), as set for the driver and inherited by all others. The table
states the largest anonymous memory of each kind of process, and the largest difference between the results.

With `--steps`, it measures single training steps and the start of the processes instead (bench/two_process_steps.py).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench.two_process_steps import measure_steps
from measurement.files import write_whole

CLASSES = 20
SIZE = (192, 256)  # height and width
PROCESSES = 2
LOOK = 0.25  # seconds between two looks at the memory of all processes
AUDIT = (
    *("reserved_per_class=0", "public=0", "attack_images=600", "validation=200", "k=30", "crop.smallest=32"),
    *("training.backbone=small-resnet#8", "training.projector=64,64,64", "training.augmentation.resolution=32"),
    *("training.epochs=4", "training.link=2", "training.warmup=1", "training.batch=200", "training.optimiser=adamw"),
    "training.base_learning_rate=0.005",
)
TABLES = ("scores", "encoders", "summary")
KINDS = {"run_rank": "rank", "fork_server": "worker", "orchestrator": "driver"}  # by a word in the command


def write_images(folder: Path, files: int) -> None:
    """Write the training images and their boxes: a coloured rectangle of the class on a noisy background."""
    per_class = files // CLASSES
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(lambda number: _write_class(folder, number, per_class), range(CLASSES)))


def _write_class(folder: Path, number: int, count: int) -> None:
    from PIL import Image

    name = f"n{number:08d}"
    images = folder / "train" / name
    boxes = folder / "Annotation" / name
    images.mkdir(parents=True, exist_ok=True)
    boxes.mkdir(parents=True, exist_ok=True)
    draws = np.random.default_rng(number)
    colour = draws.integers(0, 256, 3)
    height, width = SIZE
    for index in range(count):
        pixels = np.empty((height, width, 3), np.uint8)
        pixels[:] = draws.integers(0, 256, (height // 16, width // 16, 3), np.uint8).repeat(16, 0).repeat(16, 1)
        top, left = draws.integers(0, height // 2), draws.integers(0, width // 2)
        pixels[top : top + 64, left : left + 64] = colour
        Image.fromarray(pixels).save(images / f"{name}_{index}.JPEG", quality=80)
        corners = f"<xmin>{left}</xmin><ymin>{top}</ymin><xmax>{left + 63}</xmax><ymax>{top + 63}</ymax>"
        size = f"<size><width>{width}</width><height>{height}</height></size>"
        text = f"<annotation>{size}<object><name>{name}</name><bndbox>{corners}</bndbox></object></annotation>"
        (boxes / f"{name}_{index}.xml").write_text(text)


@dataclass
class Memory:
    """The largest anonymous memory of one process of each kind, and of all processes together, in bytes."""

    largest: dict[str, int] = field(default_factory=dict)

    def look(self, mark: str) -> None:
        """Update the maxima with all processes that carry the mark in their environment."""
        total = 0
        for name in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError, StopIteration):
                if mark.encode() not in Path("/proc", name, "environ").read_bytes():
                    continue
                command = Path("/proc", name, "cmdline").read_text()
                status = Path("/proc", name, "status").read_text().splitlines()
                line = next(line for line in status if line.startswith("RssAnon:"))
                size = int(line.split()[1]) * 1024
                kind = next((kind for word, kind in KINDS.items() if word in command), "other")
                self.largest[kind] = max(self.largest.get(kind, 0), size)
                total += size
        self.largest["all"] = max(self.largest.get("all", 0), total)


@contextmanager
def watched(memory: Memory, mark: str) -> Iterator[None]:
    """Update the memory of all processes with the mark inside the block."""
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(LOOK):
            memory.look(mark)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@dataclass(frozen=True)
class Runner:
    """Runs commands on one store, in which every process has the memory limit."""

    images: Path
    files: int
    store: Path
    limit: int
    mark: str

    def start(self, *words: str) -> subprocess.Popen[str]:
        data = f"data=imagenet:{self.images}"
        per_class = f"per_class={self.files // CLASSES * 3 // 10}"
        command = [sys.executable, "-m", "orchestrator", *words, data, per_class, *AUDIT, "--store", str(self.store)]
        return self._start(command)

    def run_audit(self) -> subprocess.Popen[str]:
        return self.start(
            "run",
            "deja_vu",
            "--address",
            "pool",
            "--processes-per-job",
            str(PROCESSES),
            "--mlflow",
            "off",
            "--no-report",
        )

    def results(self, run: str, table: str) -> list[dict[str, Any]]:
        command = [sys.executable, "-m", "orchestrator", "results", run, table, "--json", "--store", str(self.store)]
        rows: list[dict[str, Any]] = json.loads(self._start(command).communicate()[0])
        return rows

    def _start(self, command: list[str]) -> subprocess.Popen[str]:
        environment = {**os.environ, "BENCH_MARK": self.mark, "ENGRAM_CACHE": str(self.store.parent / "cache")}
        limits = (self.limit, self.limit)
        return subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, limits),
        )


def ranks(mark: str) -> list[int]:
    """The processes with the mark that train one model together."""
    result = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            is_marked = mark.encode() in Path("/proc", name, "environ").read_bytes()
            if is_marked and b"run_rank" in Path("/proc", name, "cmdline").read_bytes():
                result.append(int(name))
    return result


def _count_states(store: Path) -> int:
    """The number of stored checkpoints."""
    return sum(path.is_file() and not path.name.startswith(".") for path in (store / "states").rglob("*"))


def kill_in_training(runner: Runner, stored_links: int) -> int:
    """Start the audit and kill its driver while ranks train a later link. Returns how many processes then remained."""
    driver = runner.run_audit()
    while _count_states(runner.store) < stored_links or len(ranks(runner.mark)) < PROCESSES:
        if driver.poll() is not None:
            raise RuntimeError("the run ended before it was killed")
        time.sleep(LOOK)
    time.sleep(8)  # the ranks have imported torch and train
    driver.send_signal(signal.SIGKILL)
    driver.communicate()
    time.sleep(5)
    return len(ranks(runner.mark))


def largest_difference(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> float:
    """Return the largest difference of two tables' numbers. Raises ValueError if anything else differs."""
    largest = 0.0
    for row, other_row in zip(first, second, strict=True):
        for name, value in row.items():
            other_value = other_row[name]
            if isinstance(value, float) and isinstance(other_value, float):
                largest = max(largest, abs(value - other_value))
            elif value != other_value:
                raise ValueError(f"{name} is {value!r} and {other_value!r}")
    return largest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--memory", type=float, default=4.0)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--steps", action="store_true")
    arguments = parser.parse_args()
    if arguments.steps:
        print(measure_steps())
        return
    with tempfile.TemporaryDirectory(prefix="two-processes-") as temporary:
        folder = arguments.folder or Path(temporary)
        text = measure(folder, arguments.files, int(arguments.memory * 1e9))
    print(text)
    if arguments.out:
        write_whole(text, arguments.out)


def measure(folder: Path, files: int, limit: int) -> str:
    """Run the audit undisturbed and killed, and return the results as Markdown."""
    images = folder / "images"
    if not images.exists():
        write_images(images, files)
    mark = os.urandom(8).hex()
    rows = []
    memory = Memory()
    with watched(memory, mark):
        start = time.monotonic()
        plan = Runner(images, files, folder / "plain" / "store", limit, mark).start("plan", "deja_vu", "--json")
        plan.communicate()
        if plan.returncode:
            raise RuntimeError("the plan failed")
        rows.append(("plan", time.monotonic() - start, dict(memory.largest)))
    tables = {}
    for name in ("plain", "killed"):
        runner = Runner(images, files, folder / name / "store", limit, mark)
        runner.store.parent.mkdir(parents=True, exist_ok=True)
        memory = Memory()
        start = time.monotonic()
        with watched(memory, mark):
            remaining = kill_in_training(runner, 1) if name == "killed" else 0
            driver = runner.run_audit()
            output, _ = driver.communicate()
            if driver.returncode:
                raise RuntimeError(f"{name}: exit code {driver.returncode}\n{output}")
        label = f"{name} ({remaining} ranks left after kill -9)" if name == "killed" else name
        rows.append((label, time.monotonic() - start, memory.largest))
        tables[name] = {table: runner.results("deja_vu", table) for table in TABLES}
    lines = [
        f"# deja_vu on {files:,} files in the layout of ImageNet, {PROCESSES} processes per training",
        "",
        f"{platform.machine()}, {os.cpu_count()} processors, at most {limit / 1e9:g} GB per process (RLIMIT_DATA).",
        "",
        "| command | seconds | driver | worker | rank | all processes |",
        "|---|---|---|---|---|---|",
    ]
    for name, seconds, largest in rows:
        cells = [f"{largest.get(kind, 0) / 1e9:.2f} GB" for kind in ("driver", "worker", "rank", "all")]
        lines.append(f"| {name} | {seconds:.0f} | {' | '.join(cells)} |")
    lines.append("")
    for table in TABLES:
        difference = largest_difference(tables["plain"][table], tables["killed"][table])
        lines.append(f"Largest difference of `{table}`: {difference if math.isfinite(difference) else 'not finite'}.")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
