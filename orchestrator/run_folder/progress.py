"""Progress: counts over the events of a run, as its display, `status --watch` and tracking show them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from orchestrator.run_folder.time_left import TimeLeft

Event = Mapping[str, Any]


@dataclass
class RunProgress:
    """Counts over one start of a run, by the times of its events; `clock` gives seconds since 1970.

    `step` names what is done besides the jobs, and `ready` says when jobs begin.
    """

    clock: Callable[[], float] = time.time
    planned: int = 0
    stored: int = 0  # results stored before the start
    reused: set[str] = field(default_factory=set)  # those of them that the log has named so far, by key
    done: int = 0
    failed: int = 0
    gone: set[str] = field(default_factory=set)  # found absent or damaged, and not computed again yet
    found_gone: int = 0  # number of times that a result was found absent or damaged
    lost: int = 0
    tasks: Counter[str] = field(default_factory=Counter)  # planned
    models: int = 0  # networks trained by the jobs that are done
    trainings: int = 0  # networks that the plan trains
    trained: int = 0  # of these, those whose results were stored before the start
    since: float = 0.0
    end: float | None = None
    step: str = ""  # what is done before, between and after the jobs; empty while jobs run
    step_since: float = 0.0
    _left: TimeLeft = field(default_factory=lambda: TimeLeft({}))

    def take(self, event: Event) -> None:
        """Count an event. `started` (in the log) and `planned` (to an observer) reset the counts."""
        match event["event"]:
            case "planned" | "started":
                self.planned, self.stored = event.get("planned", 0), event.get("stored", 0)
                self.tasks = Counter(event.get("tasks", {}))
                self.done = self.failed = self.lost = self.models = self.found_gone = 0
                self.trainings, self.trained = event.get("trainings", 0), event.get("trained", 0)
                self.gone.clear()
                self.reused.clear()
                self.since = self._time(event)
                self.end = None
                kinds = event.get("kinds") or {task: (count, None) for task, count in self.tasks.items()}
                self._left = TimeLeft(kinds, event.get("prices"))
                self._left.ready(self.since, None)
            case "step":
                self.step, self.step_since = event["step"], self._time(event)
            case "ready":
                self.step = ""
                self._left.ready(self._time(event), event["slots"])
            case "stored":  # in a sweep, `started` of the first cell counts that cell alone
                if event["key"] not in self.reused:
                    self._left.drop(event.get("task", ""))
                self.reused.add(event["key"])
                self.stored = max(self.stored, len(self.reused))
            case "done":
                self.step = ""
                self.done += 1
                self.gone.discard(event["key"])
                self.models += event.get("models", 0)
                self._left.done(event.get("kind", event["task"]), event["seconds"], self._time(event))
            case "failed" if "key" in event:
                self.failed += 1
                self._left.drop(event.get("kind", event["task"]))
            case "lost":
                self.lost += 1
            case "missing":
                self._lose(event["inputs"])
            case "damaged":
                self._lose([event["key"]])
                self._left.again(event.get("kind", event["task"]))
            case "finished" | "failed" | "interrupted" | "paused":
                self.end = self._time(event)

    @property
    def over(self) -> bool:
        return self.end is not None

    @property
    def elapsed(self) -> float:
        """Seconds since the start, until now or until the end."""
        return (self.clock() if self.end is None else self.end) - self.since

    @property
    def in_step(self) -> float:
        """Seconds since the present step began."""
        return self.clock() - self.step_since

    @property
    def there(self) -> int:
        """The number of results that are stored now."""
        return self.stored + self.done - self.found_gone

    @property
    def models_per_minute(self) -> float | None:
        """Networks trained per minute; None before the first."""
        return 60 * self.models / self.elapsed if self.models and self.elapsed > 0 else None

    @property
    def left(self) -> float | None:
        """Expected seconds to the end, from what jobs of each kind took; None while that is not known."""
        return self._left.seconds(self.clock())

    @property
    def left_is_whole(self) -> bool:
        """Whether `left` counts all jobs that are to do, or only those of kinds that were timed."""
        return self._left.whole

    @property
    def phase(self) -> str:
        """What the run is doing: `reading data`, `training 3/24`, `measures`; empty where that is not known."""
        if self.step or self.over or not self.trainings:
            return self.step
        at = self.trained + self.models
        return f"training {at}/{self.trainings}" if at < self.trainings else "measures"

    def _lose(self, keys: Iterable[str]) -> None:
        """Count lost results; one that several readers report before it is computed again counts once."""
        lost = set(keys) - self.gone
        self.gone |= lost
        self.found_gone += len(lost)

    def _time(self, event: Event) -> float:
        return seconds_of(event["time"]) if "time" in event else self.clock()


def seconds_of(stamp: str) -> float:
    """Seconds since 1970 of an event's time."""
    return datetime.fromisoformat(stamp).timestamp()
