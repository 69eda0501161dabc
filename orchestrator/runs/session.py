"""A session: one start of a run. It passes events to journals and observers and updates the tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from orchestrator.errors import StoreError, Unwritable
from orchestrator.planning.plan import Plan
from orchestrator.pricing.price import prices_by_group
from orchestrator.run_folder import advances, other_runs, tables
from orchestrator.run_folder.journal import Journal
from orchestrator.run_folder.notes import Verified, read_verified, record_verified
from orchestrator.scheduling.driver import Event, Observer
from orchestrator.scheduling.rounds import Rounds
from orchestrator.store import Store
from orchestrator.store.provenance import now, process

MAX_REREAD = 1000  # maximum number of results reread at the end, which saves the next start from reading them
PUBLISH_SECONDS = 5.0  # between updates of the Parquet parts


@dataclass
class SessionRun:
    """A run in the session: its journal, and its plan, which shrinks when failed jobs are tolerated.

    A run that stops once it is decided has its pairs in `rounds`. Its plan then shrinks, and `decision` describes this.
    """

    plan: Plan
    journal: Journal
    rounds: Rounds | None = None
    decision: str = ""

    @cached_property
    def verified(self) -> Verified:
        """The record of the run's last verification."""
        return read_verified(self.journal)


class Session:
    """Runs that are driven together: a single run, or the cells of a sweep.

    While jobs run, a second thread writes and copies their tables; `publish` and `tolerate` wait for it. Failed writes
    to the folders are retried until the end. `differing` contains the computed keys that already had a different
    result. `is_held` returns whether this driver may still write to the folders. `search` is the name of the search if
    this start is a trial.
    """

    def __init__(
        self,
        name: str,
        parts: Sequence[SessionRun],
        store: Store,
        observe: Observer | None,
        is_held: Callable[[], bool] = lambda: True,
        search: str | None = None,
    ) -> None:
        self._is_held = is_held
        if search is None:
            self._search = {}
        else:
            self._search = {"search": search}
        self.name = name
        self.parts = parts
        self.store = store
        self.differing: set[str] = set()
        self._observe = observe
        self._unlogged: dict[str, list[Event]] = {}  # by run
        self._problems: dict[str, str] = {}  # errors from writing to the folders, by what is missing
        self._stored: set[str] = set()
        self._advances = advances.folder_of(store, name)
        self._stamps: Mapping[str, str] = {}  # stamps of the verified results
        self._published = 0.0
        self._thread = ThreadPoolExecutor(1, "publish")
        self._publishing: Future[str | None] | None = None
        self._renew()

    @property
    def lacking(self) -> str | None:
        """Why the runs' logs or tables are incomplete. None if they are complete."""
        return next(iter(self._problems.values()), None)

    def begin(self, seconds: Mapping[str, float] | None = None) -> None:
        """Log the start and the stored jobs.

        `seconds` has the expected seconds per job by group, if known.
        """
        stored_keys = self._stored = self.store.keys() & self.plan.tasks.keys()
        missing_keys = list(self.plan.missing(stored_keys))
        prices = prices_by_group(self.plan, missing_keys)
        prices_of_tasks = other_runs.mean_seconds_by_task(prices)
        stamp = now()
        for part in self.parts:
            reused: dict[str, list[str]] = {}
            for key, task in part.plan.tasks.items():
                if key in stored_keys:
                    reused.setdefault(task, []).append(key)
            started = {
                "time": stamp,
                "event": "started",
                "driver": process(),
                "planned": len(part.plan.jobs),
                "stored": sum(map(len, reused.values())),
                "tasks": dict(part.plan.count()),
                **self._search,
                "trains": dict(part.plan.trains),
                "prices": prices_of_tasks,
            }
            part.journal.append([started, *([{"event": "stored", "results": reused}] if reused else [])])
        self.publish()
        self._notify_plan(stamp, missing_keys, seconds or {}, prices)

    def _notify_plan(
        self, stamp: str, missing_keys: Sequence[str], seconds: Mapping[str, float], prices: Mapping[str, float]
    ) -> None:
        """Report the plan, and which part of it is stored, to the observer."""
        self.notify(
            {
                "time": stamp,
                "event": "planned",
                "run": self.name,
                "planned": len(self.plan.jobs),
                "stored": len(self._stored),
                "tasks": dict(self.plan.count()),
                "kinds": other_runs.jobs_by_kind(self.plan, missing_keys, seconds),
                "prices": dict(prices),
                "trainings": self.plan.trainings(),
                "trained": self.plan.trainings(self._stored),
                "advances": None if self._advances is None else str(self._advances),
            }
        )

    def is_settled(self) -> bool:
        """Whether the runs have finished and their results and tables have not been written since."""
        if not all(self._has_finished(part) for part in self.parts):
            return False
        recorded_stamps = {key: stamp for part in self.parts for key, stamp in part.verified.results.items()}
        stamps = self.store.stamps(self.plan.jobs)
        if not all((stamp := stamps.get(key)) and stamp == recorded_stamps.get(key) for key in self.plan.jobs):
            return False
        self._stored = set(self.plan.jobs)
        self._notify_plan(now(), (), {}, {})
        return True

    def _has_finished(self, part: SessionRun) -> bool:
        publishers = self._tables[part.journal.run]
        recorded_tables = part.verified.tables
        return (
            part.rounds is None
            and part.journal.has_finished()
            and publishers.keys() == recorded_tables.keys()
            and all(publisher.stamps() == recorded_tables[name] for name, publisher in publishers.items())
            and all(stamps and all(stamps.values()) for stamps in recorded_tables.values())
        )

    def record_verified(self) -> None:
        """Record the verified results of finished runs, so that later starts read only results that have changed.

        A result verified immediately after it was written had no stamp yet, so it is read again to get one. Nothing is
        recorded if no result has a stamp.
        """
        keys_without_stamp = [key for key in self.plan.jobs if not self._stamps.get(key)]
        if self.store.mirror is None and len(keys_without_stamp) <= MAX_REREAD:
            new_stamps = self.store.stamps(keys_without_stamp)
            self._stamps = {**self._stamps, **new_stamps, **dict.fromkeys(dict(self.store.verify(new_stamps)), "")}
        if not self._stamps:
            return
        for part in self.parts:
            results = {key: self._stamps.get(key, "") for key in part.plan.jobs}
            recorded_tables = part.verified.tables
            publishers = self._tables[part.journal.run].items()
            parts = {}
            for name, publisher in publishers:
                parts[name] = publisher.verified_stamps(recorded_tables.get(name, {}))
            if (verified := Verified(results, parts)) != part.verified:
                record_verified(part.journal, verified)

    def take(self, events: Sequence[Event]) -> None:
        """Pass events to the journals of their runs, all at once, and to the observer, one at a time."""
        stamp = {"time": now()}  # same time for all journals and the observer
        events = [{**stamp, **event} for event in events]
        for part in self.parts:
            run_events = [event for event in events if "key" not in event or event["key"] in part.plan.jobs]
            if run_events:
                self._log(part, run_events)
        for event in events:
            if event["event"] == "done":
                self._stored.add(event["key"])
            elif event["event"] == "differs":
                self.differing.add(event["key"])
            elif event["event"] == "lost":
                advances.discard(self._advances, [event["key"]])  # its worker may have died
            self.notify(event)
        idle = self._publishing is None or self._publishing.done()
        if idle and time.monotonic() - self._published > PUBLISH_SECONDS:
            self._finish_publishing()
            self._publishing = self._thread.submit(self._update_tables, frozenset(self._stored))

    @property
    def stored(self) -> Set[str]:
        """The planned keys known to be stored, without reading the store."""
        return self._stored

    def publish(self, last: bool = False, verified: set[str] | None = None) -> None:
        """Update the Parquet parts of the tables and the logs.

        With `last`, results stored by other runs are included and the existing parts are checked. `verified` then
        contains the verified planned results, or None if they were not verified.
        """
        self._finish_publishing()
        if last:
            if verified is None:
                self._stored = self.stored_keys() & self.plan.jobs.keys()
            else:
                self._stored = verified
        self._note_problem(self._update_tables(self._stored, last))

    def _update_tables(self, stored_keys: Set[str], last: bool = False) -> str | None:
        """Write the table parts and copy the run folders. Returns the first problem with a table, if any."""
        problem = None
        for publisher in self._publishers():
            try:
                publisher.publish(stored_keys, reads_parts=last)
            except (StoreError, OSError) as error:
                problem = problem or str(error)
        with suppress(StoreError):  # only the last time matters
            self.share()
        return problem

    def _finish_publishing(self) -> None:
        """Wait for the publishing thread and record its problem, if any."""
        if self._publishing is not None:
            self._note_problem(self._publishing.result())
            self._publishing = None

    def _note_problem(self, problem: str | None) -> None:
        """Record the problem with the tables, and retry unwritten events."""
        self._problems.pop("tables", None)
        if problem is not None:
            self._problems["tables"] = problem
        for part in self.parts:
            self._log(part, [])
        self._published = time.monotonic()

    def verify(self) -> dict[str, StoreError]:
        """Return the problems with the plan's results by key.

        Results that an earlier start verified and that have not been written since are not reread. A request to a
        bucket takes longer than most jobs, so a result in a bucket that this start has already read and checked for a
        table part is only listed.
        """
        stamps = self.store.stamps(self.plan.jobs)
        recorded_stamps = [verified for part in self.parts for verified in part.verified.results.items()]
        unchanged_keys = {key for key, stamp in recorded_stamps if stamp and stamp == stamps.get(key)}
        read_keys: set[str] = set()
        if self.store.mirror is not None:
            self.publish()
            read_keys = {key for publisher in self._publishers() for key in publisher.read_keys} & self.store.keys()
        keys_to_read = [key for key in self.plan.jobs if key not in unchanged_keys and key not in read_keys]
        problems = dict(self.store.verify(keys_to_read))
        checked_keys = unchanged_keys.union(keys_to_read)
        self._stamps = {key: stamp for key, stamp in stamps.items() if key in checked_keys and key not in problems}
        return problems

    def share(self, last: bool = False) -> None:
        """Copy the run folders to the store for other machines: at intervals, and always if `last` is set."""
        if self.store.mirror is not None:
            for run in {self.name, *(part.journal.run for part in self.parts)}:
                self.store.mirror.push(run, last)

    def stored_keys(self) -> set[str]:
        """Return the keys of all stored results, or the last known ones if the store cannot be read."""
        try:
            return self.store.keys()
        except StoreError:
            return set(self._stored)

    def tolerate(self, failed: set[str]) -> None:
        """Shrink the plans to the jobs that can be computed without the failed ones."""
        for part in self.parts:
            self._replan(part, part.plan.drop_keys(failed), "tolerated", failed)

    def curtail(self, part: SessionRun, rounds: Rounds, pairs: int) -> None:
        """Shrink the plan of a decided run to its first `pairs` pairs."""
        plan = rounds.first(pairs)
        unneeded = part.plan.jobs.keys() - plan.jobs.keys()
        part.decision = rounds.describe(pairs, len(part.plan.jobs) - len(plan.jobs))
        self._replan(part, plan, "curtailed", unneeded)

    def _replan(self, part: SessionRun, plan: Plan, event: str, dropped: Set[str]) -> None:
        """Replace the plan of a run and log which jobs were dropped and added."""
        self._finish_publishing()  # it iterates over the tables that are replaced here
        earlier_keys = set(part.plan.jobs)
        part.plan = plan
        keys = {"keys": sorted(dropped & earlier_keys), "instead": sorted(set(plan.jobs) - earlier_keys)}
        self._log(part, [{"event": event, **keys, "roots": plan.roots}])
        self._renew()
        self._stored = self.store.keys() & self.plan.jobs.keys()

    def clear_advances(self) -> None:
        """Remove what workers have reported of running calls. None is running."""
        advances.clear(self._advances)

    def end(self, states: Iterable[tuple[SessionRun, Mapping[str, Any]]]) -> None:
        """Log the end of each run."""
        self._finish_publishing()
        for part, state in states:
            self._log(part, [state])
            self._log(part, [])  # again, in case earlier events had to be written first

    def _renew(self) -> None:
        self.plan = Plan.union(part.plan for part in self.parts)
        self._tables = {
            part.journal.run: {
                name: tables.Publisher(part.journal.folder / "tables" / name, part.journal.run, self.store, keys)
                for name, keys in part.plan.roots.items()
            }
            for part in self.parts
        }

    def _publishers(self) -> list[tables.Publisher]:
        return [publisher for run_publishers in self._tables.values() for publisher in run_publishers.values()]

    def _log(self, part: SessionRun, events: Sequence[Event]) -> None:
        """Append events to a run's log. Events that cannot be written are retried later."""
        run = part.journal.run
        waiting = self._unlogged.get(run, [])
        stamp = {"time": now()}
        if waiting and events:
            waiting.extend({**stamp, **event} for event in events)
            return
        unlogged_events = waiting or [{**stamp, **event} for event in events]
        if not unlogged_events:
            return
        try:
            part.journal.append(unlogged_events)
        except Unwritable as error:
            self._unlogged[run] = unlogged_events
            self._problems[f"log of {run}"] = str(error)
        else:
            self._unlogged.pop(run, None)
            self._problems.pop(f"log of {run}", None)

    def step(self, step: str) -> None:
        """Log and report an activity other than jobs."""
        self._note({"event": "step", "step": step})

    def ready(self, slots: float, pages: Mapping[str, str]) -> None:
        """Log and report that jobs begin, with the number of slots and the addresses of Ray's own pages."""
        self._note({"event": "ready", "slots": slots, **({"pages": dict(pages)} if pages else {})})

    def _note(self, event: Event) -> None:
        """Pass an event to the observer and, as long as this driver holds the runs, to all journals."""
        event = {"time": now(), **event}
        for part in self.parts if self._is_held() else ():
            self._log(part, [event])
        self.notify(event)

    def notify(self, event: Event) -> None:
        """Pass an event to the observer only."""
        if self._observe is not None:
            self._observe(event)
