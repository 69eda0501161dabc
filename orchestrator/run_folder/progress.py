"""Progress: counts over the events of a run, and the expected time to its end.

The display, `status --watch` and tracking show them. The time follows from what jobs of each kind cost and how many run
at a time.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from orchestrator.quantities import approximate_duration

LATEST = 50  # jobs of a kind from which its cost is learnt
WEIGHT = 5  # jobs on each slot that the number of slots counts for, beside those that have ended
LITTLE = 1.0  # seconds of prices below which what jobs took says nothing of the other prices
ENOUGH = 2  # jobs after which what they took counts, and not what earlier runs took: the first one loads libraries
Event = Mapping[str, Any]


@dataclass
class Kind:
    """Jobs that take about as long as one another: how many are to do, and the seconds of one, where that is known."""

    to_do: int = 0
    expected: float | None = None  # from earlier runs
    priced: float | None = None  # from what is known of other machines
    taken: list[float] = field(default_factory=list)  # of the latest ones in this run

    @property
    def cost(self) -> float | None:
        """Seconds of one job; None while nothing is known of any."""
        if self.taken and (self.expected is None or len(self.taken) >= ENOUGH):
            return statistics.median(self.taken)
        return self.expected


class TimeLeft:
    """Counts jobs down by kind; all times are seconds of one clock.

    `kinds` gives for each kind the jobs to do, and the expected seconds of one, None where no run has timed one. For
    those `prices` has the seconds by which the plan was priced, if any: they count times what the jobs that have ended
    took of their own prices.
    """

    def __init__(
        self, kinds: Mapping[str, tuple[int, float | None]], prices: Mapping[str, float] | None = None
    ) -> None:
        self._kinds = {name: Kind(count, seconds, (prices or {}).get(name)) for name, (count, seconds) in kinds.items()}
        self._taken = self._priced = 0.0  # seconds of the jobs that have ended and had a price, and their prices
        self._slots: int | None = None
        self._since: float | None = None  # when the executor was ready
        self._at: float | None = None  # the time of the last news
        self._spent = 0.0  # seconds of all jobs that have ended
        self._ended = 0

    def ready(self, now: float, slots: int | None) -> None:
        """The executor is ready for so many jobs at a time; None where that is not known."""
        self._slots, self._since, self._at = slots, now, now

    def done(self, kind: str, seconds: float, now: float) -> None:
        """A job has ended."""
        entry = self._kinds.setdefault(kind, Kind())
        entry.to_do = max(0, entry.to_do - 1)
        entry.taken = [*entry.taken, seconds][-LATEST:]
        if entry.priced is not None:
            self._taken += seconds
            self._priced += entry.priced
        self._spent += seconds
        self._ended += 1
        self._at = now

    def drop(self, kind: str, jobs: int = 1) -> None:
        """So many jobs will not be computed: they have failed, or their results are there."""
        if kind in self._kinds:
            self._kinds[kind].to_do = max(0, self._kinds[kind].to_do - jobs)

    def again(self, kind: str) -> None:
        """A result was lost, and is to be computed again."""
        self._kinds.setdefault(kind, Kind()).to_do += 1

    @property
    def whole(self) -> bool:
        """Whether the cost of every kind that is to do is known; otherwise `seconds` is the least that it takes."""
        return all(self._cost(kind) is not None for kind in self._kinds.values() if kind.to_do)

    def seconds(self, now: float) -> float | None:
        """Expected seconds to the end; None while the cost of nothing that is to do is known.

        The work that is left by the number of jobs at a time. Between two ends of jobs it runs down with the clock.
        """
        costs = [(kind.to_do, self._cost(kind)) for kind in self._kinds.values() if kind.to_do]
        known = [count * cost for count, cost in costs if cost is not None]
        if not known:
            return 0.0 if not any(kind.to_do for kind in self._kinds.values()) else None
        passed = 0.0 if self._at is None else now - self._at
        return max(0.0, sum(known) / self._concurrency(now) - passed)

    def _cost(self, kind: Kind) -> float | None:
        """Seconds of one job: as jobs of its kind took, here or in this run; else its price, scaled; else None."""
        if kind.cost is not None or kind.priced is None:
            return kind.cost
        return kind.priced * (self._taken / self._priced if self._priced > LITTLE else 1.0)

    def _concurrency(self, now: float) -> float:
        """Jobs at a time: seconds of work per second that has passed.

        In the beginning jobs run that are not counted yet; so WEIGHT jobs on each slot are added to those that ended.
        """
        if self._since is None or not self._ended:
            return float(self._slots or 1)
        busy = (now if self._at is None else self._at) - self._since
        extra = WEIGHT * self._spent / self._ended if self._slots else 0.0
        worked, passed = self._spent + extra * (self._slots or 0), busy + extra
        return worked / passed if worked > 0 and passed > 0 else 1.0


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
    slots: int | None = None  # jobs that can run at a time, or calls of several; None until the executor is ready
    told_running: int | None = None  # jobs that were running when that last changed
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
                self.end = self.slots = self.told_running = None
                kinds = event.get("kinds") or {task: (count, None) for task, count in self.tasks.items()}
                self._left = TimeLeft(kinds, event.get("prices"))
                self._left.ready(self.since, None)
            case "step":
                self.step, self.step_since = event["step"], self._time(event)
            case "ready":
                self.step = ""
                self.slots = event["slots"]
                self._left.ready(self._time(event), event["slots"])
            case "running":
                self.told_running = event["count"]
            case "stored":  # in a sweep, `started` of the first cell counts that cell alone
                for task, keys in stored_results(event).items():
                    self._left.drop(task, len(set(keys) - self.reused))
                    self.reused.update(keys)
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
            case "finished" | "decided" | "failed" | "interrupted" | "paused":
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
    def running(self) -> int:
        """The number of jobs that are running now: as the driver told, who is busy itself where it computes them."""
        if self.over or self.step:
            return 0
        most = self.slots or 0 if self.told_running is None else self.told_running
        return max(0, min(most, self.planned - self.there - self.failed))

    @property
    def waiting(self) -> int:
        """The number of jobs that are neither there nor running, and have not failed."""
        return max(0, self.planned - self.there - self.failed - self.running)

    @property
    def models_per_minute(self) -> float | None:
        """Networks trained per minute; None before the first."""
        return 60 * self.models / self.elapsed if self.models and self.elapsed > 0 else None

    @property
    def left(self) -> float | None:
        """Expected seconds to the end, from what jobs of each kind took; None while that is not known."""
        return self._left.seconds(self.clock())

    @property
    def left_in_words(self) -> str:
        """`about 18 min`; `at least` where nothing is known of some jobs; empty without an estimate, and at the end."""
        if self.over or not (left := self.left):
            return ""
        return f"{'about' if self._left.whole else 'at least'} {approximate_duration(left)}"

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


def stored_results(event: Event) -> Mapping[str, Sequence[str]]:
    """The keys that a `stored` event tells of, by task: all that a start found; in older logs one for each event."""
    results: Mapping[str, Sequence[str]] = event.get("results") or {event.get("task", ""): [event["key"]]}
    return results


def seconds_of(stamp: str) -> float:
    """Seconds since 1970 of an event's time."""
    return datetime.fromisoformat(stamp).timestamp()
