"""Reference timings of work units and tasks on one machine, and estimates for other jobs derived from them.

`python -m bench.reference_timings` measures `reference_timings.json`. The speed of this machine relative to the
reference machine is measured once, in a separate process: `python -m orchestrator.pricing.reference`.
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
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.executors.environment import ONE_THREAD
from orchestrator.store import atomic_write

SECONDS = 0.3  # duration of each of the two measurements; medians vary by 2 % between runs, as with 0.9
SIDE = 512  # rows and columns of the matrices
IMAGES = 16
CHANNELS = 16
PIXELS = 28
KERNEL = 3
HANGING = 60.0  # seconds
KINDS = ("product", "convolution")
FILE = Path(__file__).with_name("reference_timings.json")
# Error factors of the estimates.
TIMED = 1.4  # a timed unit with another batch size, or on a busy machine
LIKE = 2.0  # the same network on images of another size, or a task that reads another number of tables
FAR = 4.0  # a task that reads more or fewer tables than any timed job
NEARLY = 2.9  # above this, operations give a better estimate than timings on images of another size
DATA = " on "  # separates the network from its images in a unit name


@dataclass(frozen=True)
class Speed:
    """Processor seconds for one matrix product and for one convolution."""

    product: float
    convolution: float

    def against(self, reference: Speed) -> tuple[float, float]:
        """Return how many times slower this machine is, and the factor by which the two measurements disagree."""
        ratios = [getattr(self, kind) / getattr(reference, kind) for kind in KINDS]
        middle = math.sqrt(ratios[0] * ratios[1])
        return middle, max(ratios) / middle


def measure_speed(seconds: float = SECONDS) -> Speed:
    """Measure the speed of this process: the median processor time of the repetitions that fit into these seconds."""
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
    durations: list[float] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline or len(durations) < 3:
        start = time.process_time()
        run()
        durations.append(time.process_time() - start)
    return float(np.median(durations))


def machine_speed(folder: Path | None) -> Speed | None:
    """Return this machine's speed, read from `folder` or measured and stored there. Returns None on failure."""
    if folder is None:
        file = None
    else:
        file = folder / f"{socket.gethostname()}.json"
    if file is not None and (stored_speed := _read_speed(file)) is not None:
        return stored_speed
    speed = _measure_apart()
    if speed is not None and file is not None:
        _write_speed(file, speed)
    return speed


@functools.cache  # independent of the store
def _measure_apart() -> Speed | None:
    """Measure the speed in a separate process. Returns None on failure."""
    try:
        process = subprocess.run(
            [sys.executable, "-m", "orchestrator.pricing.reference"],
            capture_output=True,
            text=True,
            timeout=HANGING,
            env={**os.environ, **ONE_THREAD},
            check=True,
        )
        return _speed(json.loads(process.stdout))
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def _read_speed(file: Path) -> Speed | None:
    try:
        return _speed(json.loads(file.read_text()))
    except (OSError, ValueError, RecursionError):
        return None


def _write_speed(file: Path, speed: Speed) -> None:
    with suppress(OSError), atomic_write.put_in_place(file) as draft:  # on failure, the next call measures again
        draft.write_text(json.dumps(asdict(speed)))


def _speed(value: Any) -> Speed | None:
    seconds = []
    if isinstance(value, dict):
        seconds = [value.get(kind) for kind in KINDS]
    valid_seconds = []
    for duration in seconds:
        if isinstance(duration, float) and 0 < duration < math.inf:
            valid_seconds.append(duration)
    if len(valid_seconds) == len(KINDS):
        return Speed(*valid_seconds)
    return None


if __name__ == "__main__":
    print(json.dumps(asdict(measure_speed())))  # noqa: T201


@dataclass(frozen=True)
class Span:
    """Expected seconds, with a lower and an upper bound."""

    expected: float
    low: float
    high: float

    @classmethod
    def with_factor(cls, seconds: float, factor: float) -> Span:
        return cls(seconds, seconds / factor, seconds * factor)

    def __add__(self, other: Span) -> Span:
        return Span(self.expected + other.expected, self.low + other.low, self.high + other.high)

    def times(self, factor: float, low_factor: float = 1.0, high_factor: float = 1.0) -> Span:
        return Span(self.expected * factor, self.low * factor * low_factor, self.high * factor * high_factor)

    def widen(self, factor: float) -> Span:
        """Return the span with another, independent error factor: the logarithms of both add in quadrature."""
        if self.expected <= 0 or self.low <= 0:
            return self
        low = math.hypot(math.log(self.expected / self.low), math.log(factor))
        high = math.hypot(math.log(self.high / self.expected), math.log(factor))
        return Span(self.expected, self.expected / math.exp(low), self.expected * math.exp(high))


NOTHING = Span(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Reference:
    """The reference timings.

    `speed` is the speed of the reference machine. `units` maps each work unit to its seconds, `tasks` maps each task
    without units to the (tables read, seconds) pairs of its jobs, and `executor_seconds` gives the seconds to start and
    stop an executor.
    """

    speed: Speed
    units: Mapping[str, float]
    tasks: Mapping[str, Sequence[tuple[int, float]]]
    executor_seconds: Mapping[str, float]

    def estimate_work(self, amounts: Mapping[str, float]) -> Span | None:
        """Return the seconds for these units, or None if one of them has no comparable timing."""
        spans = [self.estimate_unit(unit, count) for unit, count in amounts.items()]
        known_spans = [span for span in spans if span is not None]
        if len(known_spans) == len(spans):
            return sum(known_spans, NOTHING)
        return None

    def bounds(self, unit: str, count: float) -> tuple[float, float] | None:
        """Bound the seconds of any unit of this kind, such as `train`, on images of this size.

        Returns None if unknown.
        """
        kind, _, _ = unit.partition(" ")
        _, split, shape = unit.rpartition(DATA)
        comparable_units = {}
        for timed_unit, seconds in self.units.items():
            if timed_unit.partition(" ")[0] == kind and (not split or timed_unit.rpartition(DATA)[1]):
                comparable_units[timed_unit] = seconds
        if not comparable_units:
            return None
        scaled = []
        for timed_unit, seconds in comparable_units.items():
            scaled.append(seconds * (_pixels(shape) / _pixels(timed_unit.rpartition(DATA)[2]) if split else 1.0))
        return min(scaled) * count, max(scaled) * count

    def estimate_task(self, task: str, tables: int) -> Span | None:
        """Return the seconds for a job of this task that reads this number of tables, or None if no such job was timed.

        Between timed jobs the estimate interpolates a power law. Beyond them, seconds grow in proportion to the tables.
        """
        points = sorted(self.tasks.get(task, ()))
        if not points:
            return None
        exact_matches = [seconds for count, seconds in points if count == tables]
        if exact_matches:
            return Span.with_factor(_middle(exact_matches), LIKE)
        fewer_tables = [point for point in points if point[0] < tables][-1:]
        more_tables = [point for point in points if point[0] > tables][:1]
        if fewer_tables and more_tables:
            (low_count, low_seconds), (high_count, high_seconds) = fewer_tables[0], more_tables[0]
            power = 1.0
            if low_seconds > 0 and high_seconds > 0:
                power = math.log(high_seconds / low_seconds) / math.log(max(high_count, 1) / max(low_count, 0.5))
            return Span.with_factor(low_seconds * (tables / max(low_count, 0.5)) ** power, LIKE)
        count, seconds = (fewer_tables or more_tables)[0]
        return Span.with_factor(seconds * max(tables, 1) / max(count, 1), FAR)

    def bounds_of_family(self, task: str, tables: int) -> tuple[float, float] | None:
        """Bound the seconds of the same audit's jobs that read this number of tables, to decide where jobs run.

        Returns None if none was timed. No price contains these bounds.
        """
        family = f"{task.partition('.')[0]}."
        spans = [
            span
            for timed_task in self.tasks
            if timed_task.startswith(family) and (span := self.estimate_task(timed_task, tables))
        ]
        if spans:
            return (min(span.low for span in spans), max(span.high for span in spans))
        return None

    def estimate_timed(self, unit: str, count: float) -> Span | None:
        """Return the seconds for units that were timed, if need be on images of up to twice the size."""
        span = self.estimate_unit(unit, count)
        if span is None or span.high > NEARLY * span.expected:
            return None
        return span

    def estimate_unit(self, unit: str, count: float) -> Span | None:
        """Return the seconds for units, from timings of the same network on any images. None without such timings."""
        if unit in self.units:
            return Span.with_factor(self.units[unit] * count, TIMED)
        network, split, shape = unit.rpartition(DATA)
        timed_units = [timed_unit for timed_unit in self.units if split and timed_unit.rpartition(DATA)[0] == network]
        if not timed_units:
            return None
        pixels = _pixels(shape)
        nearest = min(
            timed_units, key=lambda timed_unit: abs(math.log(pixels / _pixels(timed_unit.rpartition(DATA)[2])))
        )
        ratio = pixels / _pixels(nearest.rpartition(DATA)[2])
        # The work of convolutions is proportional to the pixels, that of dense layers grows more slowly.
        return Span.with_factor(self.units[nearest] * ratio * count, LIKE * max(ratio, 1 / ratio) ** 0.5)


def _pixels(shape: str) -> float:
    """Return the number of values in an image with this shape, such as `28x28x1`."""
    sides = []
    for side in shape.partition(" ")[0].split("x"):
        if side.isdecimal():
            sides.append(int(side))
    return float(math.prod(sides))


def _middle(values: Iterable[float]) -> float:
    logs = [math.log(max(value, 1e-6)) for value in values]
    return math.exp(sum(logs) / len(logs))


@functools.cache
def load_reference() -> Reference:
    """Load the reference timings shipped with this package."""
    return parse_reference(json.loads(FILE.read_text(encoding="utf-8")))


def parse_reference(value: Any) -> Reference:
    """Parse the content of the reference timings file."""
    tasks = {}
    for task, points in value["tasks"].items():
        tasks[task] = [(int(count), seconds) for count, seconds in points]
    return Reference(Speed(**value["speed"]), value["units"], tasks, value["around"])
