"""The course of a run over all its starts, read off its log: what its charts show, and how it stands.

A longer log only adds points behind those of a shorter one, so that whoever reads it later sees the same points, and
two who write them down write the same. A start that found nothing to do adds none.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.run_folder.journal import ENDS
from orchestrator.run_folder.merged_log import MergedLog
from orchestrator.run_folder.progress import Event, RunProgress, seconds_of

SECONDS = 5.0  # of the log between two points
DULL = {"started", "stored"}  # events that are no news: a start has them though it finds nothing to do


@dataclass(frozen=True)
class Point:
    """The run's counts at a time (seconds since 1970); steps count from 0 over all starts."""

    step: int
    time: float
    done: int  # results that are there, whichever start computed them
    failed: int
    models_per_minute: float | None


class ProgressLog:
    """Follows a log; `read` processes what was added to it.

    state: how the last start ended; None while it has not, or where its driver was killed. `began` and `ended` are
    when the run was first started, and when something was last done in it.
    """

    def __init__(self, log: MergedLog) -> None:
        self.points: list[Point] = []
        self.state: str | None = None
        self.began: float | None = None
        self.ended: float | None = None
        self.log = log
        self._now = 0.0
        self._tally = RunProgress(clock=lambda: self._now)
        self._busy = False  # this start has had news
        self._shown = True  # its latest counts are in a point
        self._ends: str | None = None  # how the start before this one ended

    def read(self, settled: bool = True) -> None:
        for event in self.log.read(settled):
            self._take(event)

    def _take(self, event: Event) -> None:
        if event["event"] == "started":
            self._close()
            self._busy, self.state = False, None
        elif is_news(event) and not self._busy:
            self._busy = True
            self._add()  # where this start began
        now = self._now = seconds_of(event["time"])
        self.began = now if self.began is None else self.began
        self._tally.take(event)
        if is_end(event):
            self.state = event["event"]
            if self._busy:
                self.ended = now
            elif self.state != self._ends:  # another one did what was left, or nothing was to do from the first
                self.ended, self._shown = now, False
            self._ends = self.state
            self._close()
        elif self._busy:
            self.ended, self._shown = now, False
            if now - self.points[-1].time >= SECONDS:
                self._add()

    def _close(self) -> None:
        """The last point of a start that has changed something."""
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
    """Whether the event is more than the start or end of a run."""
    return event["event"] not in DULL and not is_end(event)
