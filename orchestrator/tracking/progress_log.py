"""The progress of a run over all its starts, from its log: the points of its charts, and its state.

A longer log only appends points to those of a shorter one, so that later readers get the same points, and two writers
write the same. A start without anything to do adds none.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.run_folder.journal import ENDS
from orchestrator.run_folder.merged_log import MergedLog
from orchestrator.run_folder.progress import Event, RunProgress, seconds_of

SECONDS = 5.0  # of the log between two points
DULL = {"started", "stored", "step", "ready"}  # events that a start logs even without anything to do


@dataclass(frozen=True)
class Point:
    """The run's counts at a time (seconds since 1970); steps count from 0 over all starts."""

    step: int
    time: float
    done: int  # stored results, regardless of the start that computed them
    failed: int
    models_per_minute: float | None


class ProgressLog:
    """Follows a log; `read` processes the events added to it.

    state: how the last start ended; None if it has not ended, or if its driver was killed. `began` and `ended` are
    the times of the first start and of the last activity.
    """

    def __init__(self, log: MergedLog) -> None:
        self.points: list[Point] = []
        self.state: str | None = None
        self.began: float | None = None
        self.ended: float | None = None
        self.log = log
        self._now = 0.0
        self._tally = RunProgress(clock=lambda: self._now)
        self._busy = False  # whether this start has done anything
        self._shown = True  # whether its latest counts are in a point
        self._ends: str | None = None  # how the previous start ended

    def read(self, settled: bool = True) -> None:
        for event in self.log.read(settled):
            self._take(event)

    def _take(self, event: Event) -> None:
        if event["event"] == "started":
            self._close()
            self._busy, self.state = False, None
        elif is_news(event) and not self._busy:
            self._busy = True
            self._add()  # the counts when this start began
        now = self._now = seconds_of(event["time"])
        self.began = now if self.began is None else self.began
        self._tally.take(event)
        if is_end(event):
            self.state = event["event"]
            if self._busy:
                self.ended = now
            elif self.state != self._ends:  # another run did the rest, or there was nothing to do from the beginning
                self.ended, self._shown = now, False
            self._ends = self.state
            self._close()
        elif self._busy:
            self.ended, self._shown = now, False
            if now - self.points[-1].time >= SECONDS:
                self._add()

    def _close(self) -> None:
        """Add the last point of a start that has changed something."""
        if not self._shown:
            self._add()

    def _add(self) -> None:
        tally = self._tally
        step = len(self.points)
        self.points.append(Point(step, self._now, tally.there, tally.failed, tally.models_per_minute))
        self._shown = True


def is_end(event: Event) -> bool:
    return event["event"] in ENDS and "key" not in event


def is_news(event: Event) -> bool:
    """Whether the event reports progress, and not only the start or end of a run."""
    return event["event"] not in DULL and not is_end(event)
