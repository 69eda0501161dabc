"""Progress: counts over the events of a run, as its display, `status --watch` and tracking show them."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

Event = Mapping[str, Any]


@dataclass
class RunProgress:
    """Counts over one start of a run, by the times of its events; `clock` gives seconds since 1970."""

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
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    since: float = 0.0
    end: float | None = None

    def take(self, event: Event) -> None:
        """Count an event. `started` (in the log) and `planned` (to an observer) reset the counts."""
        match event["event"]:
            case "planned" | "started":
                self.planned, self.stored = event.get("planned", 0), event.get("stored", 0)
                self.tasks = Counter(event.get("tasks", {}))
                self.done = self.failed = self.lost = self.models = self.found_gone = 0
                self.gone.clear()
                self.reused.clear()
                self.seconds.clear()
                self.since = self._time(event)
                self.end = None
            case "stored":  # in a sweep, `started` of the first cell counts that cell alone
                self.reused.add(event["key"])
                self.stored = max(self.stored, len(self.reused))
            case "done":
                self.done += 1
                self.gone.discard(event["key"])
                self.models += event.get("models", 0)
                self.seconds[event["task"]].append(event["seconds"])
            case "failed" if "key" in event:
                self.failed += 1
            case "lost":
                self.lost += 1
            case "missing":
                self._lose(event["inputs"])
            case "damaged":
                self._lose([event["key"]])
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
    def there(self) -> int:
        """The number of results that are stored now."""
        return self.stored + self.done - self.found_gone

    @property
    def models_per_minute(self) -> float | None:
        """Networks trained per minute; None before the first."""
        return 60 * self.models / self.elapsed if self.models and self.elapsed > 0 else None

    @property
    def left(self) -> float | None:
        """Expected seconds to the end, from the time per job of each task and the number of jobs at a time."""
        spent = sum(map(sum, self.seconds.values()))
        to_do = self.planned - self.there - self.failed
        if to_do <= 0 or spent <= 0 or self.elapsed <= 0:
            return 0.0 if to_do <= 0 else None
        # Stored results may be of any task; the remaining jobs are assumed to be like the planned ones not yet done.
        waiting = {name: max(0, count - len(self.seconds[name])) for name, count in self.tasks.items()}
        mean = spent / self.done
        work = sum(n * (sum(s) / len(s) if (s := self.seconds[name]) else mean) for name, n in waiting.items())
        share = to_do / max(1, sum(waiting.values()))
        return work * share * self.elapsed / spent

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
