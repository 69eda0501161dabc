"""Progress of a run: counts of its events, and the expected remaining time.

They appear in the terminal display, in `status --watch` and in tracking. The time is computed from the cost of each
kind of job and the number of concurrent jobs.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from orchestrator.quantities import approximate_duration
from orchestrator.run_folder.advances import CallAdvance, read_advances
from orchestrator.run_folder.job_metrics import LoggedMetrics, latest_metrics

MAX_DURATIONS = 50  # number of latest jobs of a kind that determine its cost
WEIGHT = 5  # weight of the number of slots, in jobs per slot, when estimating concurrency
MIN_PRICED = 1.0  # seconds of predicted cost below which the ratio to measured times is not used
MIN_ADVANCE = 0.05  # networks after which the time of a running training is used
MIN_DURATIONS = 2  # jobs of this run after which earlier timings are replaced; the first job also loads libraries
MAX_LOGGED = 5  # running jobs whose latest metrics are shown
Event = Mapping[str, Any]


@dataclass
class Kind:
    """Jobs that take about the same time: how many remain, and the seconds per job if known."""

    remaining: int = 0
    expected: float | None = None  # from earlier runs
    priced: float | None = None  # from timings on other machines
    durations: list[float] = field(default_factory=list)  # of the latest jobs in this run

    @property
    def cost(self) -> float | None:
        """Seconds per job. None if unknown."""
        if self.durations and (self.expected is None or len(self.durations) >= MIN_DURATIONS):
            return statistics.median(self.durations)
        return self.expected


class TimeLeft:
    """Counts down the remaining jobs by kind. All times are seconds of one clock.

    `kinds` gives the remaining jobs of each kind and the expected seconds per job (None if no run has timed one). For
    kinds without timings, `prices` gives predicted seconds from the plan's price, if any. They are scaled by the ratio
    of measured to predicted times of jobs that have ended.
    """

    def __init__(
        self, kinds: Mapping[str, tuple[int, float | None]], prices: Mapping[str, float] | None = None
    ) -> None:
        self._kinds = {name: Kind(count, seconds, (prices or {}).get(name)) for name, (count, seconds) in kinds.items()}
        # Measured and predicted seconds of ended jobs that had a price.
        self._measured_seconds = self._priced_seconds = 0.0
        self._slots: int | None = None
        self._ready_time: float | None = None  # when the executor was ready
        self._last_event_time: float | None = None
        self._job_seconds = 0.0  # total seconds of all ended jobs
        self._ended_jobs = 0

    def ready(self, now: float, slots: int | None) -> None:
        """Record that the executor is ready for this number of concurrent jobs (None if unknown)."""
        self._slots = slots
        self._ready_time = now
        self._last_event_time = now

    def done(self, kind: str, seconds: float, now: float) -> None:
        """Record that a job has ended."""
        entry = self._kinds.setdefault(kind, Kind())
        entry.remaining = max(0, entry.remaining - 1)
        entry.durations = [*entry.durations, seconds][-MAX_DURATIONS:]
        if entry.priced is not None:
            self._measured_seconds += seconds
            self._priced_seconds += entry.priced
        self._job_seconds += seconds
        self._ended_jobs += 1
        self._last_event_time = now

    def drop(self, kind: str, jobs: int = 1) -> None:
        """Remove jobs that will not be computed because they have failed or are stored."""
        if kind in self._kinds:
            self._kinds[kind].remaining = max(0, self._kinds[kind].remaining - jobs)

    def add(self, kind: str) -> None:
        """Add a job whose result was lost and must be computed again."""
        self._kinds.setdefault(kind, Kind()).remaining += 1

    @property
    def is_complete(self) -> bool:
        """Whether the cost of every remaining kind is known. Otherwise, `seconds` is a lower bound."""
        return all(self._cost(kind) is not None for kind in self._kinds.values() if kind.remaining)

    def seconds(self, now: float, advances: Sequence[CallAdvance] = ()) -> float | None:
        """Return the expected remaining seconds. Returns None if the cost of every remaining job is unknown.

        This is the remaining work divided by the number of concurrent jobs. Between the ends of two jobs, it decreases
        with the `advances` of running calls if they report any, and otherwise with the clock.
        """
        costs = []
        for name, kind in self._kinds.items():
            if kind.remaining:
                running = [advance for advance in advances if name in (advance.kind, advance.kind.partition("/")[0])]
                networks = sum(advance.networks for advance in running)
                costs.append((max(0.0, kind.remaining - networks), self._running_cost(kind, running)))
        known_seconds = [count * cost for count, cost in costs if cost is not None]
        if not known_seconds:
            if not any(kind.remaining for kind in self._kinds.values()):
                return 0.0
            return None
        if self._last_event_time is None or advances:
            elapsed = 0.0
        else:
            elapsed = now - self._last_event_time
        return max(0.0, sum(known_seconds) / self._concurrency(now) - elapsed)

    def _running_cost(self, kind: Kind, running: Sequence[CallAdvance]) -> float | None:
        """Return the seconds per job, from the running calls of this kind if no job has ended yet."""
        networks = sum(advance.networks for advance in running)
        if kind.durations or networks < MIN_ADVANCE:
            return self._cost(kind)
        return sum(advance.seconds for advance in running) / networks

    def _cost(self, kind: Kind) -> float | None:
        """Return the seconds per job: measured in this or earlier runs, else the scaled price, else None."""
        if kind.cost is not None or kind.priced is None:
            return kind.cost
        return kind.priced * (
            self._measured_seconds / self._priced_seconds if self._priced_seconds > MIN_PRICED else 1.0
        )

    def _concurrency(self, now: float) -> float:
        """Return the number of concurrent jobs, estimated as seconds of work per elapsed second.

        At the beginning, running jobs are not counted yet, so WEIGHT jobs per slot are added to the ended ones.
        """
        if self._ready_time is None or not self._ended_jobs:
            return float(self._slots or 1)
        busy = (now if self._last_event_time is None else self._last_event_time) - self._ready_time
        extra = 0.0
        if self._slots:
            extra = WEIGHT * self._job_seconds / self._ended_jobs
        worked = self._job_seconds + extra * (self._slots or 0)
        passed = busy + extra
        if worked > 0 and passed > 0:
            return worked / passed
        return 1.0


@dataclass
class RunProgress:
    """Counts over one start of a run, based on event times. `clock` returns seconds since 1970.

    `step` names the current activity if it is not a job. The event `ready` marks the beginning of jobs.
    """

    clock: Callable[[], float] = time.time
    planned: int = 0
    stored: int = 0  # results stored before the start
    reused: set[str] = field(default_factory=set)  # keys of these results that the log has named so far
    done: int = 0
    failed: int = 0
    missing_keys: set[str] = field(default_factory=set)  # found absent or damaged, and not recomputed yet
    lost_results: int = 0  # number of times that a result was found absent or damaged
    lost: int = 0
    tasks: Counter[str] = field(default_factory=Counter)  # planned
    models: int = 0  # networks trained by finished jobs
    trainings: int = 0  # networks that the plan trains
    trained_before: int = 0  # number of these whose results were stored before the start
    start_time: float = 0.0
    end: float | None = None
    step: str = ""  # activity before, between and after jobs; empty while jobs run
    step_since: float = 0.0
    slots: int | None = None  # concurrent jobs, or concurrent calls of several jobs; None until the executor is ready
    reported_running: int | None = None  # number of running jobs as last reported
    advance_folder: Path | None = None  # files of the running calls, if this machine can see them
    _time_left: TimeLeft = field(default_factory=lambda: TimeLeft({}))

    def take(self, event: Event) -> None:
        """Count an event. `started` (in the log) and `planned` (to an observer) reset the counts."""
        match event["event"]:
            case "planned" | "started":
                self.planned = event.get("planned", 0)
                self.stored = event.get("stored", 0)
                self.tasks = Counter(event.get("tasks", {}))
                self.done = self.failed = self.lost = self.models = self.lost_results = 0
                self.trainings = event.get("trainings", 0)
                self.trained_before = event.get("trained", 0)
                self.missing_keys.clear()
                self.reused.clear()
                self.start_time = self._time(event)
                self.end = self.slots = self.reported_running = None
                kinds = event.get("kinds") or {task: (count, None) for task, count in self.tasks.items()}
                self.advance_folder = Path(event["advances"]) if event.get("advances") else None
                self._time_left = TimeLeft(kinds, event.get("prices"))
                self._time_left.ready(self.start_time, None)
            case "step":
                self.step, self.step_since = event["step"], self._time(event)
            case "ready":
                self.step = ""
                self.slots = event["slots"]
                self._time_left.ready(self._time(event), event["slots"])
            case "running":
                self.reported_running = event["count"]
            case "stored":  # in a sweep, `started` of the first cell counts only that cell
                for task, keys in stored_results(event).items():
                    self._time_left.drop(task, len(set(keys) - self.reused))
                    self.reused.update(keys)
                self.stored = max(self.stored, len(self.reused))
            case "done":
                self.step = ""
                self.done += 1
                self.missing_keys.discard(event["key"])
                self.models += event.get("models", 0)
                self._time_left.done(event.get("kind", event["task"]), event["seconds"], self._time(event))
            case "failed" if "key" in event:
                self.failed += 1
                self._time_left.drop(event.get("kind", event["task"]))
            case "lost":
                self.lost += 1
            case "missing":
                self._lose(event["inputs"])
            case "damaged":
                self._lose([event["key"]])
                self._time_left.add(event.get("kind", event["task"]))
            case "finished" | "decided" | "failed" | "interrupted" | "paused":
                self.end = self._time(event)

    @property
    def has_ended(self) -> bool:
        return self.end is not None

    @property
    def elapsed(self) -> float:
        """Seconds from the start until the end, or until now."""
        return (self.clock() if self.end is None else self.end) - self.start_time

    @property
    def seconds_in_step(self) -> float:
        """Seconds since the current step began."""
        return self.clock() - self.step_since

    @property
    def stored_now(self) -> int:
        """Number of results stored now."""
        return self.stored + self.done - self.lost_results

    @property
    def running(self) -> int:
        """Number of running jobs as reported by the driver. Without a report, it is estimated from the slots."""
        if self.has_ended or self.step:
            return 0
        if self.reported_running is None:
            running = self.slots or 0
        else:
            running = self.reported_running
        return max(0, min(running, self.planned - self.stored_now - self.failed))

    def advances(self) -> list[CallAdvance]:
        """Return how far the running calls are, as far as they report it."""
        if self.has_ended or self.step:
            return []
        return read_advances(self.advance_folder)

    def logged_metrics(self) -> list[tuple[str, LoggedMetrics]]:
        """Return the latest metrics of running jobs that log some, with their keys: at most MAX_LOGGED jobs."""
        logged = []
        for key in sorted({advance.logging_key for advance in self.advances()} - {""})[:MAX_LOGGED]:
            assert self.advance_folder is not None
            latest = latest_metrics(self.advance_folder.parent.parent, key)
            if latest is not None:
                logged.append((key, latest))
        return logged

    @property
    def networks_in_progress(self) -> float:
        """The trainings in progress, as a number of networks: two that are half done count as one."""
        networks = sum(advance.networks for advance in self.advances())
        return max(0.0, min(networks, self.trainings - self.trained_before - self.models))

    @property
    def waiting(self) -> int:
        """Number of jobs that are not stored, running or failed."""
        return max(0, self.planned - self.stored_now - self.failed - self.running)

    @property
    def models_per_minute(self) -> float | None:
        """Networks trained per minute. None before the first one."""
        if self.models and self.elapsed > 0:
            return 60 * self.models / self.elapsed
        return None

    @property
    def seconds_left(self) -> float | None:
        """Expected remaining seconds, from the times of each kind of job. None if unknown."""
        return self._time_left.seconds(self.clock(), [advance for advance in self.advances() if advance.networks])

    @property
    def time_left_text(self) -> str:
        """Remaining time as text, such as `about 18 min`, or `at least` if the time of some jobs is unknown.

        Empty if there is no estimate or the run has ended.
        """
        if self.has_ended or not (seconds_left := self.seconds_left):
            return ""
        return f"{'about' if self._time_left.is_complete else 'at least'} {approximate_duration(seconds_left)}"

    @property
    def phase(self) -> str:
        """The current activity: `reading data`, `training 3/24 (17%)`, `measures`. Empty if unknown."""
        if self.step or self.has_ended or not self.trainings:
            return self.step
        trained_models = self.trained_before + self.models
        if trained_models < self.trainings:
            phase = f"training {trained_models}/{self.trainings}"
            if networks := self.networks_in_progress:
                return f"{phase} ({(trained_models + networks) / self.trainings:.0%})"
            return phase
        return "measures"

    def _lose(self, keys: Iterable[str]) -> None:
        """Count lost results. A result reported by several readers before it is recomputed counts once."""
        lost_keys = set(keys) - self.missing_keys
        self.missing_keys |= lost_keys
        self.lost_results += len(lost_keys)

    def _time(self, event: Event) -> float:
        if "time" in event:
            return seconds_of(event["time"])
        return self.clock()


def stored_results(event: Event) -> Mapping[str, Sequence[str]]:
    """Return the keys in a `stored` event by task: all that a start found, or a single key in older logs."""
    results: Mapping[str, Sequence[str]] = event.get("results") or {event.get("task", ""): [event["key"]]}
    return results


def seconds_of(stamp: str) -> float:
    """Convert an event's time to seconds since 1970."""
    return datetime.fromisoformat(stamp).timestamp()
