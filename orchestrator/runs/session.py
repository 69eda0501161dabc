"""A session: one start of a run. It passes events to journals and observers, and keeps the tables up to date."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import StoreError, Unwritable
from orchestrator.planning.plan import Plan
from orchestrator.pricing.price import prices_by_group
from orchestrator.run_folder import tables, timings
from orchestrator.run_folder.journal import Journal, now
from orchestrator.scheduling.driver import Event, Observer
from orchestrator.store import Store
from orchestrator.store.provenance import process
from tasks.job import Job, marks

PUBLISH_SECONDS = 5.0  # between updates of the Parquet parts


@dataclass
class Part:
    """A run of the session: its journal, and its plan, which shrinks when failed jobs are tolerated."""

    plan: Plan
    journal: Journal


class Session:
    """The runs that are driven together: one, or the cells of a sweep.

    Failed writes into their folders are retried until the end. `differing` are the keys that were computed and had
    a different result already. `held` says whether the folders are still this driver's to write; `search` is the name
    of the search that this start is a trial of.
    """

    def __init__(
        self,
        name: str,
        parts: Sequence[Part],
        store: Store,
        observe: Observer | None,
        held: Callable[[], bool] = lambda: True,
        search: str | None = None,
    ) -> None:
        self._held = held
        self._search = {} if search is None else {"search": search}
        self.name = name
        self.parts = parts
        self.store = store
        self.differing: set[str] = set()
        self._observe = observe
        self._unlogged: dict[str, list[Event]] = {}  # by run
        self._problems: dict[str, str] = {}  # errors of writing into the folders, by what is missing there
        self._stored: set[str] = set()
        self._published = 0.0
        self._renew()

    @property
    def lacking(self) -> str | None:
        """Why the runs' logs or tables are incomplete; None if they are complete."""
        return next(iter(self._problems.values()), None)

    def begin(self, seconds: Mapping[str, float] | None = None) -> None:
        """Log the start, and every job that is stored already.

        `seconds` are the expected seconds of a job by its group, where known.
        """
        stored = self._stored = self.store.keys() & self.plan.jobs.keys()
        missing = list(self.plan.missing(stored))
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
                **self._search,
                "trains": {
                    part.plan.task(key): count for key, job in part.plan.jobs.items() if (count := _trains(job))
                },
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
                "kinds": timings.kinds(self.plan, missing, seconds or {}),
                "prices": prices_by_group(self.plan, missing),
                "trainings": self._trainings(self.plan.jobs),
                "trained": self._trainings(stored),
            }
        )

    def take(self, event: Event) -> None:
        """Pass an event to the journals of the runs it concerns and to the observer."""
        event = {"time": now(), **event}  # the same time for all journals and the observer
        key = event.get("key")
        parts = self.parts if key is None else self._owners.get(key, ())
        for part in parts:
            self._log(part, [event])
        if event["event"] == "done":
            self._stored.add(event["key"])
        elif event["event"] == "differs":
            self.differing.add(event["key"])
        self.tell(event)
        if time.monotonic() - self._published > PUBLISH_SECONDS:
            self.publish()

    def publish(self, last: bool = False) -> None:
        """Update the tables' Parquet parts and the logs.

        With `last`, results stored by other runs are included, and the existing parts are checked.
        """
        if last:
            self._stored = self.stored() & self.plan.jobs.keys()
        self._problems.pop("tables", None)
        for publisher in self._publishers:
            try:
                publisher.publish(self._stored, look=last)
            except (StoreError, OSError) as error:
                self._problems.setdefault("tables", str(error))
        for part in self.parts:
            self._log(part, [])
        self._published = time.monotonic()
        with suppress(StoreError):  # the last time counts
            self.share()

    def share(self, last: bool = False) -> None:
        """Copy the runs' folders to the store for other machines: from time to time, and always the `last` time."""
        if self.store.mirror is not None:
            for run in {self.name, *(part.journal.run for part in self.parts)}:
                self.store.mirror.push(run, last)

    def stored(self) -> set[str]:
        """The keys of all stored results; the last known ones while the store cannot be read."""
        try:
            return self.store.keys()
        except StoreError:
            return set(self._stored)

    def tolerate(self, failed: set[str]) -> None:
        """Shrink the plans to what can be computed without these."""
        for part in self.parts:
            before = set(part.plan.jobs)
            part.plan = part.plan.without(failed)
            tolerated = {
                "keys": sorted(failed & before),
                "instead": sorted(set(part.plan.jobs) - before),
                "roots": part.plan.roots,
            }
            self._log(part, [{"event": "tolerated", **tolerated}])
        self._renew()
        self._stored = self.store.keys() & self.plan.jobs.keys()

    def end(self, states: Iterable[tuple[Part, Mapping[str, Any]]]) -> None:
        """Log how each run ended."""
        for part, state in states:
            self._log(part, [state])
            self._log(part, [])  # again, if earlier events had to be written first

    def _trainings(self, keys: Iterable[str]) -> int:
        """How many networks these jobs train."""
        return sum(_trains(self.plan.jobs[key]) for key in keys)

    def _renew(self) -> None:
        self.plan = Plan.union(part.plan for part in self.parts)
        self._owners: dict[str, list[Part]] = {}
        for part in self.parts:
            for key in part.plan.jobs:
                self._owners.setdefault(key, []).append(part)
        self._publishers = [
            tables.Publisher(part.journal.folder / "tables" / name, part.journal.run, self.store, keys)
            for part in self.parts
            for name, keys in part.plan.roots.items()
        ]

    def _log(self, part: Part, events: Sequence[Event]) -> None:
        """Append events to a run's log. Events that cannot be written are kept and retried later."""
        run = part.journal.run
        waiting = self._unlogged.get(run, [])
        if waiting and events:
            waiting.extend({"time": now(), **event} for event in events)
            return
        fresh = waiting or [{"time": now(), **event} for event in events]
        if not fresh:
            return
        try:
            part.journal.append(fresh)
        except Unwritable as error:
            self._unlogged[run] = fresh
            self._problems[f"log of {run}"] = str(error)
        else:
            self._unlogged.pop(run, None)
            self._problems.pop(f"log of {run}", None)

    def step(self, step: str) -> None:
        """Log and tell what is done besides the jobs."""
        self._note({"event": "step", "step": step})

    def ready(self, slots: float) -> None:
        """Log and tell that jobs begin, on so many slots."""
        self._note({"event": "ready", "slots": slots})

    def _note(self, event: Event) -> None:
        """Pass an event to all journals, while they are ours, and to the observer."""
        event = {"time": now(), **event}
        for part in self.parts if self._held() else ():
            self._log(part, [event])
        self.tell(event)

    def tell(self, event: Event) -> None:
        """Pass an event to the observer alone."""
        if self._observe is not None:
            self._observe(event)


def _trains(job: Job) -> int:
    """How many networks a job trains."""
    return marks(job.function).trains
