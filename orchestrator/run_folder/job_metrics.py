"""The metrics that a training logs by step: one JSON line per call of `log`, at most about MAX_LINES per job."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from io import TextIOWrapper
from numbers import Real
from pathlib import Path

from orchestrator.store import Store
from orchestrator.store.atomic_write import put_in_place
from orchestrator.store.entry import OUTPUTS
from orchestrator.store.job_files import METRICS, read_output

MAX_LINES = 2000  # beyond this number, every second step is removed
TAIL_BYTES = 4096  # read to find the latest metrics


@dataclass(frozen=True)
class LoggedMetrics:
    """Metrics at one step of a training. `time` is in seconds since 1970."""

    time: float
    step: int
    metrics: Mapping[str, float]

    def describe(self) -> str:
        """Format the metrics, such as `step 12: loss 0.21, accuracy 0.9`."""
        return f"step {self.step}: {', '.join(f'{name} {value:.4g}' for name, value in self.metrics.items())}"

    def to_line(self) -> str:
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def from_line(cls, line: str) -> LoggedMetrics:
        """Parse a line. Raises ValueError, KeyError, TypeError or AttributeError for any other text."""
        fields = json.loads(line)
        metrics = {str(name): float(value) for name, value in fields["metrics"].items()}
        return cls(float(fields["time"]), int(fields["step"]), metrics)


def checked_metrics(metrics: Mapping[str, float], step: int) -> LoggedMetrics:
    """Return the metrics as numbers, with the current time. Raises ValueError if they are not numbers."""
    numbers = {}
    for name, value in metrics.items():
        try:
            numbers[str(name)] = float(value)
        except (TypeError, ValueError):
            raise ValueError(f"metric {name} is {value!r}; it must be a number") from None
    if not isinstance(step, Real) or not math.isfinite(step):
        raise ValueError(f"step is {step!r}; it must be a whole number")
    return LoggedMetrics(time.time(), int(step), numbers)


class MetricsWriter:
    """Appends metrics to a job's file. Once it has MAX_LINES, the file is thinned to every second step, and so on."""

    def __init__(self, path: Path) -> None:
        self.latest: LoggedMetrics | None = None
        self._path = path
        self._lines = len(_read_file(path))
        self._stride = 1  # write the metrics of every `_stride`-th step
        self._index = -1  # of the current step
        self._unwritten: list[LoggedMetrics] = []  # of the current step
        self._file = self._open()

    def add(self, logged: LoggedMetrics) -> None:
        if self.latest is None or logged.step != self.latest.step:
            self._index += 1
            self._unwritten.clear()
        self.latest = logged
        self._unwritten.append(logged)
        if self._index % self._stride == 0:
            self._write()
        if self._lines >= MAX_LINES:
            self._thin()

    def close(self) -> None:
        """Write the metrics of the last step and close the file."""
        self._write()
        self._file.close()

    def _open(self) -> TextIOWrapper:
        return open(self._path, "a", encoding="utf-8")

    def _write(self) -> None:
        with suppress(OSError):  # metrics are only displayed
            self._file.writelines(logged.to_line() for logged in self._unwritten)
            self._file.flush()
        self._lines += len(self._unwritten)
        self._unwritten.clear()

    def _thin(self) -> None:
        self._stride *= 2
        points = _read_file(self._path)
        steps = list(dict.fromkeys(point.step for point in points))
        kept_steps = {*steps[::2], *steps[-1:]}
        kept_points = [point for point in points if point.step in kept_steps]
        with suppress(OSError):
            with put_in_place(self._path) as draft:
                draft.write_text("".join(point.to_line() for point in kept_points), encoding="utf-8")
            self._file.close()
            self._file = self._open()
        self._lines = len(kept_points)


def read_metrics(store: Store, key: str) -> list[LoggedMetrics]:
    """Return the metrics that a job has logged, in order. Incomplete lines are left out."""
    return _parse(read_output(store, key, METRICS).decode(errors="replace").splitlines())


def latest_metrics(store_folder: Path, key: str) -> LoggedMetrics | None:
    """Return the latest value of each metric of a job, with the latest step. None if it has logged none.

    `store_folder` is the folder of the store.
    """
    try:
        with open(store_folder / OUTPUTS / key / METRICS, "rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - TAIL_BYTES))
            points = _parse(file.read().decode(errors="replace").splitlines())
    except OSError:
        return None
    return merge_latest(points)


def merge_latest(points: Sequence[LoggedMetrics]) -> LoggedMetrics | None:
    """Return the latest value of each metric, with the latest step. None if there are no points."""
    if not points:
        return None
    metrics: dict[str, float] = {}
    for point in points:
        metrics.update(point.metrics)
    return LoggedMetrics(points[-1].time, points[-1].step, metrics)


def _read_file(path: Path) -> list[LoggedMetrics]:
    try:
        return _parse(path.read_text(encoding="utf-8", errors="replace").splitlines())
    except OSError:
        return []


def _parse(lines: Iterable[str]) -> list[LoggedMetrics]:
    points = []
    for line in lines:
        with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
            points.append(LoggedMetrics.from_line(line))
    return points
