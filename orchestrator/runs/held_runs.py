"""Drives runs under their leases to completion: one run, or the cells of a sweep."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from typing import Any

from orchestrator.errors import Absent, Damaged, Held, StoreError
from orchestrator.executors import Executor, open_executor
from orchestrator.executors.metrics import Metrics
from orchestrator.executors.session_folder import session_folder
from orchestrator.planning.extras import RAYLESS
from orchestrator.planning.undivided import describe_undivided
from orchestrator.pricing.place import choose_address, modules_of
from orchestrator.pricing.price import highest_price
from orchestrator.run_folder import other_runs
from orchestrator.run_folder.cancellation import Cancellation
from orchestrator.run_folder.journal import Journal
from orchestrator.run_folder.looks import record_looks
from orchestrator.run_folder.other_runs import CheckpointGc, ConcurrentRuns
from orchestrator.runs import deciding, finalise
from orchestrator.runs.report import Report, session_report
from orchestrator.runs.session import Session, SessionRun
from orchestrator.scheduling.driver import Driver, Observer
from orchestrator.scheduling.stop import Budget, Stop
from orchestrator.scheduling.waiting import SYSTEM, Clock
from orchestrator.spec.options import Execution
from orchestrator.spec.resolve import pinned_data
from orchestrator.store import Store, lease
from orchestrator.store.holder import Holder, takeover_message

MAX_REPAIRS = 3  # times that results found damaged at the end are recomputed before the run pauses


def drive_held(
    parts: Sequence[SessionRun],
    store: Store,
    execution: Execution,
    observe: Observer | None,
    sweep: Journal | None,
    clock: Clock = SYSTEM,
    search: str | None = None,
    check: Callable[[], None] = lambda: None,
    take_answer: Callable[[Report], None] = lambda _: None,
) -> Report:
    """Drive these runs under their leases and return their report. `check` raises an error if they cannot be driven.

    `take_answer` receives the report before pages are drawn and the runs are delivered to MLflow.
    """
    with ExitStack() as resources:
        held_runs = HeldRuns(parts, store, execution, observe, sweep, clock, search, resources, take_answer)
        with held_runs.stop.handle_signals(held_runs.say):
            if held_runs.session.is_settled():
                return held_runs.report_settled()
            check()
            return held_runs.drive()


class HeldRuns:
    """Runs whose leases this process holds, and the objects that drive them.

    Leases, claims, driver and delivery are released when `resources` closes. Raises Held if another living driver has
    one of the runs.
    """

    def __init__(
        self,
        parts: Sequence[SessionRun],
        store: Store,
        execution: Execution,
        observe: Observer | None,
        sweep: Journal | None,
        clock: Clock,
        search: str | None,
        resources: ExitStack,
        take_answer: Callable[[Report], None],
    ) -> None:
        self._parts = parts
        self._store = store
        self._execution = execution
        self._address = execution.address  # chosen when the executor starts
        self._observe = observe
        self._take_answer = take_answer
        self._sweep = sweep.run if sweep else None
        self._clock = clock
        self._runs = store.folder("runs")
        self._names = sorted(part.journal.run for part in parts)
        # If the caller passes a clock, it is used for everything. With the system clock, heartbeats use the file system
        # clock.
        now = None if clock is SYSTEM else clock.now
        folders = [self._runs / name for name in self._names]
        self._leases = resources.enter_context(lease.acquire(folders, now, report=self.say))
        mirror = store.mirror
        if mirror is None:
            self._claims = None
        else:
            self._claims = resources.enter_context(mirror.claim(*self._names))
        self.stop = Stop()
        name = self._sweep or self._names[0]
        self.session = Session(
            name, parts, store, observe, is_held=lambda: self._find_takeover() is None, search=search
        )
        self._entire_plan = self.session.plan  # the original plan, whereas the session's plan may shrink
        self._cancellation = Cancellation(store, name, clock.monotonic)
        self._neighbours = ConcurrentRuns(self._runs, self._names, self._leases.since, now, clock.monotonic)
        self._seconds = other_runs.mean_seconds(self._runs)
        self._price = cache(self._highest_price)
        self._states = CheckpointGc(store, self._runs, self._names, execution.keep == "state")
        self._driver = self._create_driver()
        resources.callback(self.session.clear_advances)
        resources.callback(self._driver.close)
        self._delivery = finalise.delivery(self.session, self._sweep, execution)
        if self._delivery is not None:
            resources.callback(self._delivery.close)

    def say(self, line: str) -> None:
        """Report a line to the observer."""
        if self._observe is not None:
            self._observe({"event": "told", "line": line})

    def report_settled(self) -> Report:
        """Return the report of runs that finished earlier, after adding missing pages and deliveries."""
        stored_keys = set(self.session.stored)
        self._states.clear(self._entire_plan, stored_keys)
        report = session_report(self._driver, self.session, self._sweep, stored_keys, sound=stored_keys)
        self.session.notify({"event": report.state, "run": report.run})
        return self._finish(report)

    def drive(self) -> Report:
        """Drive the runs to completion, or until there is a reason to stop. Returns their report."""
        self._begin()
        sound = self._compute_and_publish()
        self._check_still_held()
        progress = self._driver.progress
        progress.paused = progress.paused or self.session.lacking
        stored_keys = self.session.stored_keys()
        if not progress.paused:
            self._states.clear(self._entire_plan, stored_keys)
        if progress.executor_seconds:
            progress.seconds[other_runs.startup_group(self._address)].append(progress.executor_seconds)
        report = self._log_end(stored_keys, sound)
        report = self._finish(report)
        if report.state == "finished":
            self.session.record_verified()
        return report

    def _finish(self, report: Report) -> Report:
        """Pass the answer on, then draw the pages and deliver the runs."""
        if self._delivery is not None and report.jobs["done"]:
            self._delivery.prepare()  # MLflow is loaded while the answer is printed and the pages are drawn
        self._take_answer(report)
        return finalise.finish_run(report, self.session, self._execution, self._delivery, self.stop)

    def _begin(self) -> None:
        """Log the start, and begin the delivery if any job has to be computed.

        Ray's workers use all cores, so the delivery waits until the run is long. The cells of a sweep are many.
        """
        self.session.clear_advances()
        self.session.begin(self._seconds)
        if self._delivery is None or not self.session.plan.missing(self.session.stored):
            return
        if self._execution.address == "none" and self._sweep is None:
            self._delivery.begin()
        else:
            self._delivery.begin_later()

    def _compute_and_publish(self) -> set[str] | None:
        """Compute the missing results and publish the tables. Returns the verified keys, or None if unknown."""
        sound: set[str] | None = None
        try:
            sound = self._drive_to_end()
            self._driver.close()
            self._check_still_held()
            self.session.publish(True, sound)
            self._record_looks(sound)
        except StoreError as error:  # the store cannot be read at the moment
            self._driver.progress.paused = self._driver.progress.paused or str(error)
            self._driver.close()
        return sound

    def _drive_to_end(self) -> set[str] | None:
        """Drive until every required result is stored and verified, or there is a reason to stop.

        Returns the keys of verified results, or None if the driver stopped before verification.
        """
        driver = self._driver
        session = self.session
        progress = driver.progress
        if not deciding.drive_rounds(driver, session):
            return None
        for repetition in range(1 + MAX_REPAIRS):
            driver.drive(session.plan, self._store.keys() if repetition else set(session.stored))
            self._tolerate_failures()
            is_unfinished = driver.stopped and session.plan.missing(session.stored_keys())
            if is_unfinished or (progress.failed and driver.fail_fast):
                return None
            session.step("checking stored results")
            unsound = session.verify()
            sound = set(session.plan.jobs) - set(unsound)
            # Results that cannot be read, or are damaged and cannot be set aside, cannot be replaced.
            unreplaceable = []
            for error in unsound.values():
                if not isinstance(error, Absent | Damaged):
                    unreplaceable.append(error)
            if unreplaceable:
                other_errors = ""
                if len(unreplaceable) > 1:
                    other_errors = f" (and {len(unreplaceable) - 1} more)"
                progress.paused = progress.paused or f"{unreplaceable[0]}{other_errors}"
                return sound
            damaged = self._select_replaceable(unsound)
            if not damaged or driver.stopped:
                return sound
            self._note_damaged(damaged)
        progress.paused = "results are repeatedly damaged after being written; check the disk"
        return sound

    def _tolerate_failures(self) -> None:
        """If few enough jobs failed, shrink the plan to jobs that do not need them, and compute those."""
        failed = self._driver.progress.failed
        if 0 < len(failed) <= self._execution.tolerate and not self._driver.stopped:
            self.session.tolerate(set(failed))
            self._driver.drive(self.session.plan, self._store.keys())

    def _select_replaceable(self, unsound: Mapping[str, StoreError]) -> dict[str, StoreError]:
        """Return the unsound results that do not depend on a failed job."""
        failed = self._driver.progress.failed
        if failed:
            dependents = self.session.plan.dependents(failed)
        else:
            dependents = set()
        return {key: error for key, error in unsound.items() if key not in dependents}

    def _note_damaged(self, damaged: Mapping[str, StoreError]) -> None:
        """Log the damaged results and count them."""
        task = self.session.plan.task
        self.session.take(
            [
                {"event": "damaged", "key": key, "task": task(key), "problem": str(error)}
                for key, error in damaged.items()
            ]
        )
        self._driver.progress.damaged += len(damaged)

    def _record_looks(self, sound: set[str] | None) -> None:
        """Record the look of each run whose results are complete, before its answer is shown."""
        answered_parts = []
        for part in self._parts:
            if sound is not None and part.plan.jobs.keys() <= sound:
                answered_parts.append(part)
        record_looks([part.journal for part in answered_parts], [part.plan for part in answered_parts])

    def _log_end(self, stored_keys: set[str], sound: set[str] | None) -> Report:
        """Log the ends of the runs and return their report."""
        progress = self._driver.progress
        report = session_report(self._driver, self.session, self._sweep, stored_keys, sound)
        states = []
        for part, run_report in zip(self._parts, report.cells or (report,), strict=True):
            state = {"event": run_report.state, "jobs": dict(run_report.jobs), "note": run_report.note}
            states.append((part, {**state, **_unsound_keys(part, sound)}))
        self.session.end(states)
        for part in self._parts:
            other_runs.write_timings(part.journal.folder, progress.seconds)
        if self.session.lacking and not progress.paused:
            progress.paused = self.session.lacking
            report = session_report(self._driver, self.session, self._sweep, stored_keys, sound)
        self.session.notify({"event": report.state, "run": report.run})
        return report

    def _find_takeover(self) -> tuple[str, Holder | None] | None:
        """Return a run that another driver has taken over, with that driver. Returns None while all runs are ours."""
        return self._leases.lost or (None if self._claims is None else self._claims.lost)

    def _check_still_held(self) -> None:
        """Raise Held if another driver has taken over a run, so that this process stops writing its files."""
        takeover = self._find_takeover()
        if takeover is not None:
            raise Held(takeover_message(*takeover))

    def _create_driver(self) -> Driver:
        execution = self._execution
        first_run = self._parts[0].journal
        if self._sweep:
            runs = (self._sweep, *self._names)
        else:
            runs = (self._names[0], *other_runs.sweeps_with(first_run))
        stand_ins: dict[str, str] = {}
        for part in self._parts:
            stand_ins.update(part.journal.about().get("stand_ins", {}))
        return Driver(
            self._store,
            self._start_executor,
            self.session.take,
            self.stop,
            gpus_per_job=execution.gpus_per_job,
            processes_per_job=execution.processes_per_job,
            together=execution.together,
            way=execution.way,
            stand_ins=stand_ins,
            runs=runs,
            fail_fast=execution.fail_fast,
            deadline=None if execution.stop_after is None else self._clock.monotonic() + execution.stop_after,
            budget=Budget(execution),
            seconds=self._seconds,
            timeout=execution.timeout,
            price=self._price,
            elsewhere=self._neighbours.find_claims,
            cancelled=self._cancellation.look,
            check_held=self._check_still_held,
            states=self._states,
            metrics=Metrics(self.session.name),
            clock=self._clock,
        )

    def _start_executor(self) -> Executor:
        execution = self._execution
        plan = self.session.plan
        missing_keys = plan.missing(self.session.stored)
        self._address = address = choose_address(execution, plan, missing_keys, self._seconds)
        if address not in RAYLESS:
            is_local = address in (None, "local")
            self.session.step("starting Ray" if is_local else "connecting to Ray and checking its nodes")
        executor = open_executor(
            address,
            self._store,
            execution.gpus,
            self._data_of_missing_jobs,
            execution.dashboard,
            modules_of(plan, missing_keys),
        )
        self.session.ready(executor.slots, executor.pages)
        for line in describe_undivided(plan, missing_keys, execution):
            self.say(line)
        if execution.dashboard:
            self.say(_describe_dashboard(executor.pages))
        return executor

    def _data_of_missing_jobs(self) -> list[Any]:
        missing_keys = self.session.plan.missing(self.session.stored_keys())
        return pinned_data(self.session.plan.jobs[key].config for key in missing_keys)

    def _highest_price(self, group: str) -> float | None:
        """Return the maximum seconds per job of this group.

        It comes from earlier runs in this store or, failing that, from the reference timings.
        """
        if group in self._seconds:
            return self._seconds[group]
        return highest_price(self.session.plan, group)


def _describe_dashboard(pages: Mapping[str, str]) -> str:
    """Describe the URL of Ray's dashboard and the token of the cluster started by this process, for the terminal."""
    if not pages:
        return f"Ray's dashboard did not start; see {session_folder()}/session_latest/logs/dashboard.log"
    token = os.environ.get("RAY_AUTH_TOKEN", "of the cluster")
    return f"Ray's dashboard: {pages['driver']}; it requires the token {token}"


def _unsound_keys(part: SessionRun, sound: set[str] | None) -> dict[str, list[str]]:
    """Return the run's results that failed verification, in the form used in its log. Its counts exclude them."""
    if sound is None:
        unsound = []
    else:
        unsound = sorted(part.plan.jobs.keys() - sound)
    return {"unsound": unsound} if unsound else {}
