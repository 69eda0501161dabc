"""Memory of an audit whose images exceed it: `membership` on generated JPEG images of 224 x 224.

    python -m bench.large_sets --folder FOLDER [--images 100000] [--models 4] [--limit 4] [--out bench/results/NAME.md]

Writes the images below FOLDER (unless they are there), plans the audit and runs it in processes whose anonymous memory
is limited to `--limit` GB (RLIMIT_DATA). Reports the largest anonymous memory of each kind of process (RssAnon, sampled
ten times per second), since pages of the images' cache belong to the operating system, which drops them if memory is
short. The network averages squares of 16 x 16 pixels, so that the time is that of reading and not of training.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from measurement.files import write_whole

SIDE = 224
CLASSES = 10
COARSE = 8  # side of the random colours that an image is enlarged from
TEST_IMAGES = 1000
SQUARE = 16
INTERVAL = 0.1  # seconds between two samples of memory


def average_squares(shape: tuple[int, int, int], classes: int) -> torch.nn.Module:
    """Return a linear classifier of mean colours."""
    channels, height, width = shape
    features = channels * (height // SQUARE) * (width // SQUARE)
    return torch.nn.Sequential(torch.nn.AvgPool2d(SQUARE), torch.nn.Flatten(), torch.nn.Linear(features, classes))


def write_images(folder: Path, images: int) -> None:
    """Write FOLDER/train/CLASS/NUMBER.jpg and a test split, unless they are there."""
    for split, count in (("train", images), ("test", TEST_IMAGES)):
        for number in range(count):
            path = folder / split / f"{number % CLASSES}" / f"{number:06}.jpg"
            if not number // CLASSES:
                path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                colours = np.random.default_rng([split == "test", number]).integers(
                    0, 256, (COARSE, COARSE, 3), dtype=np.uint8
                )
                picture = Image.fromarray(colours).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
                picture.save(path, quality=75)


@dataclass
class Memory:
    """The largest memory of a command's first process, and of any process that it started, in bytes."""

    seconds: float = 0.0
    driver: int = 0
    worker: int = 0
    workers: set[int] = field(default_factory=set)


def run_limited(command: Sequence[str], limit: float, env: dict[str, str]) -> Memory:
    """Run a command and measure its memory. Raises CalledProcessError if it fails."""
    size = int(limit * 1e9)
    start = time.perf_counter()
    process = subprocess.Popen(
        command, env=env, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (size, size))
    )
    memory = Memory()
    while process.poll() is None:
        memory.driver = max(memory.driver, anonymous_bytes(process.pid))
        for child in descendants(process.pid):
            memory.worker = max(memory.worker, anonymous_bytes(child))
            memory.workers.add(child)
        time.sleep(INTERVAL)
    memory.seconds = time.perf_counter() - start
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return memory


def anonymous_bytes(pid: int) -> int:
    """Return the resident anonymous memory of a process, or 0 if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def descendants(pid: int) -> Iterator[int]:
    """Yield all processes that a process started, directly or not."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return
    for child in map(int, children):
        yield child
        yield from descendants(child)


def measure(folder: Path, images: int, models: int, limit: float, address: str) -> Iterator[tuple[str, Memory]]:
    """Yield the memory of planning and of running the audit."""
    env = {**os.environ, "ENGRAM_CACHE": str(folder / "cache")}
    audit = [
        *("membership", f"question.data=folder:{folder / 'images'}#{SIDE}x{SIDE}#rgb", f"question.examples={images}"),
        *(f"question.models={models}", "training.network=bench.large_sets:average_squares", "training.epochs=1"),
    ]
    engram = [sys.executable, "-c", "from engram_command import main; main()"]
    yield "plan", run_limited([*engram, "plan", *audit], limit, env)
    run = [*engram, "run", *audit, "--address", address, "--store", str(folder / "store")]
    yield "run", run_limited(run, limit, env)


def format_table(images: int, measured: Sequence[tuple[str, Memory]], limit: float) -> str:
    lines = [
        f"`membership` on {images:,} images of {SIDE} x {SIDE} ({images * SIDE * SIDE * 3 / 1e9:.1f} GB decoded), "
        f"anonymous memory limited to {limit:g} GB per process:",
        "",
        "| command | seconds | driver, GB | largest worker, GB | processes |",
        "|---|---|---|---|---|",
    ]
    for command, memory in measured:
        lines.append(
            f"| {command} | {memory.seconds:.0f} | {memory.driver / 1e9:.2f} | {memory.worker / 1e9:.2f} | "
            f"{1 + len(memory.workers)} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--models", type=int, default=4)
    parser.add_argument("--limit", type=float, default=4.0)
    parser.add_argument("--address", default="none")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    folder = options.folder.absolute()
    write_images(folder / "images", options.images)
    measured = list(measure(folder, options.images, options.models, options.limit, options.address))
    text = format_table(options.images, measured, options.limit)
    print(text)
    if options.out:
        write_whole(text, options.out)


if __name__ == "__main__":
    main()
