"""A session: one start of a run. It tells journals and observers what happens, and keeps the tables up."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from orchestrator import tables
from orchestrator.driver import Event, Observer
from orchestrator.errors import StoreError, Unwritable
from orchestrator.journal import Journal, now
from orchestrator.plan import Plan
from orchestrator.provenance import process
from orchestrator.store import Store

PUBLISH_SECONDS = 5.0  # between looks at what the Parquet parts lack


@dataclass
class Part:
    """A run of the session: its plan, which shrinks where failed jobs are tolerated, and its journal."""

    plan: Plan
    journal: Journal


class Session:
    """The runs that are driven together: one, or the cells of a sweep.

    `unwritable` says why its folders cannot be written, once they cannot.
    """

    def __init__(self, name: str, parts: Sequence[Part], store: Store, observe: Observer | None) -> None:
        self.name = name
        self.parts = parts
        self.store = store
        self.unwritable: str | None = None
        self._observe = observe
        self._stored: set[str] = set()
        self._published = 0.0
        self._renew()

    def begin(self) -> None:
        """Log the start, and every job whose result is there already."""
        stored = self._stored = self.store.keys() & self.plan.jobs.keys()
        stamp = now()
        for part in self.parts:
            reused = [key for key in part.plan.jobs if key in stored]
            started = {
                "time": stamp,
                "event": "started",
                "driver": process(),
                "planned": len(part.plan.jobs),
                "stored": len(reused),
                "tasks": dict(part.plan.count()),
            }
            skipped = ({"event": "stored", "key": key, "task": part.plan.task(key)} for key in reused)
            part.journal.append([started, *skipped])
        self.publish()
        self.tell(
            {
                "time": stamp,
                "event": "planned",
                "run": self.name,
                "planned": len(self.plan.jobs),
                "stored": len(self._stored),
                "tasks": dict(self.plan.count()),
            }
        )

    def take(self, event: Event) -> None:
        """One event: to the journals of the runs it concerns, and to the observer."""
        event = {"time": now(), **event}  # one time, whoever hears of it
        key = event.get("key")
        parts = self.parts if key is None else self._owners.get(key, ())
        with self._writing():
            for part in parts:
                part.journal.append([event])
        if event["event"] == "done":
            self._stored.add(event["key"])
        self.tell(event)
        if time.monotonic() - self._published > PUBLISH_SECONDS:
            self.publish()

    def publish(self) -> None:
        """Bring the tables' Parquet parts up to what is stored."""
        with self._writing():
            for publisher in self._publishers:
                publisher.publish(self._stored)
        self._published = time.monotonic()
        with suppress(StoreError):  # the last time counts
            self.share()

    def share(self, last: bool = False) -> None:
        """Let other machines see what the runs' folders hold, from time to time and the `last` time in any case."""
        if self.store.mirror is not None:
            for run in {self.name, *(part.journal.run for part in self.parts)}:
                self.store.mirror.push(run, last)

    def stored(self) -> set[str]:
        """Keys of all results that are stored; those that were when the store could last be seen, if it cannot be."""
        try:
            return self.store.keys()
        except StoreError:
            return set(self._stored)

    def tolerate(self, failed: set[str]) -> None:
        """Plan again for what can be had without these."""
        for part in self.parts:
            before = set(part.plan.jobs)
            part.plan = part.plan.without(failed)
            tolerated = {
                "keys": sorted(failed & before),
                "instead": sorted(set(part.plan.jobs) - before),
                "roots": part.plan.roots,
            }
            with self._writing():
                part.journal.append([{"event": "tolerated", **tolerated}])
        self._renew()
        self._stored = self.store.keys() & self.plan.jobs.keys()

    def end(self, states: Iterable[tuple[Part, Mapping[str, Any]]]) -> None:
        """Log how each run ended."""
        with self._writing():
            for part, state in states:
                part.journal.append([state])

    def _renew(self) -> None:
        self.plan = Plan.union(part.plan for part in self.parts)
        self._owners: dict[str, list[Part]] = {}
        for part in self.parts:
            for key in part.plan.jobs:
                self._owners.setdefault(key, []).append(part)
        self._publishers = [
            tables.Publisher(part.journal.folder / "tables" / name, self.store, keys)
            for part in self.parts
            for name, keys in part.plan.roots.items()
        ]

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """What cannot be written is remembered; the results' own refusal is what pauses the run."""
        try:
            yield
        except Unwritable as error:
            self.unwritable = str(error)

    def tell(self, event: Event) -> None:
        """One event to the observer alone."""
        if self._observe is not None:
            self._observe(event)
