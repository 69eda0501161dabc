"""The log of a run, or the merged logs of a sweep's cells."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence

from orchestrator.run_folder.journal import Journal
from orchestrator.run_folder.progress import Event, seconds_of

SETTLED = 2.0  # seconds after which no cell's log can still get an event that the others have


class MergedLog:
    """Follows these logs; `read` returns the events added to them, ordered by time.

    An event that is in several logs is returned once. Two starts are the same event if their times are equal, two
    results found stored within one start if their keys are, any others if their whole content is. Events before
    `since`, when a sweep's cells were still separate runs, are left out. `position` is the number of bytes read of a
    single run's log.
    """

    def __init__(self, journals: Sequence[Journal], since: str = "") -> None:
        self.position = 0
        self._journals = journals
        self._positions = [0] * len(journals)
        self._since = since
        self._waiting: list[Event] = []
        self._began = ""
        self._seen: set[str] = set()

    def read(self, settled: bool = True) -> list[Event]:
        """The new events; for several logs only those that no later event can precede, unless `settled`.

        A driver writes an event into all of them at once, so that 2 s are enough.
        """
        fresh: list[Event] = []
        for at, journal in enumerate(self._journals):
            events, self._positions[at] = journal.events_from(self._positions[at])
            fresh += events
        if len(self._journals) == 1:
            self.position = self._positions[0]
            return fresh
        self._waiting = sorted([*self._waiting, *fresh], key=lambda event: str(event["time"]))
        until = math.inf if settled else time.time() - SETTLED
        ready = [event for event in self._waiting if seconds_of(event["time"]) <= until]
        self._waiting = self._waiting[len(ready) :]
        return [event for event in ready if event["time"] >= self._since and self._is_new(event)]

    def _is_new(self, event: Event) -> bool:
        """Whether no log has had this event since the last start."""
        if event["event"] == "started":
            if event["time"] == self._began:
                return False
            self._began, self._seen = event["time"], set()
            return True
        words = event["key"] if event["event"] == "stored" else json.dumps(event, sort_keys=True)
        if words in self._seen:
            return False
        self._seen.add(words)
        return True
