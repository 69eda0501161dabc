"""A run: one audit with one config, from its plan to its tables; or a sweep, several runs with one plan.

Its id follows from its plan's keys, so starting it again reopens it. After a kill at any moment the same command
continues it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from orchestrator.errors import Absent, Damaged, Held, SpecError, StoreError
from orchestrator.executors import Executor, open_executor
from orchestrator.executors.metrics import Metrics
from orchestrator.executors.session_folder import session_folder
from orchestrator.planning.code import code_of
from orchestrator.planning.extras import check_extras
from orchestrator.planning.identity import run_id
from orchestrator.planning.idle_fields import describe_idle_fields, find_idle_fields
from orchestrator.planning.plan import Plan, plan_of
from orchestrator.pricing.price import highest_price
from orchestrator.run_folder import other_runs
from orchestrator.run_folder.cancellation import Cancellation
from orchestrator.run_folder.code_changes import accept, check_code, describe_code, find_changes, note_accepted
from orchestrator.run_folder.journal import Journal, cell_description, reopen_cell, sweep_description
from orchestrator.run_folder.looks import record_looks
from orchestrator.run_folder.other_runs import CheckpointGc, ConcurrentRuns
from orchestrator.run_folder.recorded_plan import open_plan, record
from orchestrator.runs import deciding, finalise
from orchestrator.runs.report import Report, session_report
from orchestrator.runs.session import Session, SessionRun
from orchestrator.scheduling.driver import Driver, Observer
from orchestrator.scheduling.rounds import Rounds
from orchestrator.scheduling.stop import Budget, Stop
from orchestrator.scheduling.waiting import SYSTEM, Clock
from orchestrator.spec.options import Execution
from orchestrator.spec.resolve import Cell, LeftOut, describe_data, left_out_as_json, pinned_data
from orchestrator.spec.specification import Spec
from orchestrator.store import Store, lease
from orchestrator.store.holder import Holder, takeover_message

MENDED = 3  # times that results found damaged at the end are computed again before the run pauses


def prepare_cells(asked: Spec, cells: Sequence[Cell], store: Store) -> tuple[list[Cell], list[str]]:
    """The pinned cells as they run, and lines for the user: changed code, settings without effect, unusual data.

    Changes of the user's code are accepted if the specification says so.
    """
    changes = find_changes(cells, store)
    lines = []
    for change in changes:
        what = "accepted as the same code" if asked.same_code else "--same-code uses the results of the code before"
        lines.append(f"{change.describe()}; {what}")
    if asked.same_code:
        cells = [accept(cell, changes) for cell in cells]
    known = store.digests()
    idle = find_idle_fields(asked, known)
    if idle:
        lines.append(describe_idle_fields(idle, asked))
    return list(cells), [*lines, *describe_data(cells, known)]


def start(
    cells: Sequence[Cell],
    store: Store,
    execution: Execution,
    observe: Observer | None = None,
    *,
    clock: Clock = SYSTEM,
    search: str | None = None,
    left_out: Sequence[LeftOut] = (),
) -> Report:
    """Run an audit's cell, or a sweep's cells as one plan, to the end. Stored results are not computed again.

    `search` is the name of the search that a run is a trial of, which its log tells. `left_out` are the cells of the
    preset that do not run, which the folder of the run or sweep keeps.

    Raises Held if another living driver has the run, Unwritable if its folder cannot be made, and ClusterError if the
    cluster cannot be used.
    """
    if observe is not None:
        observe({"event": "step", "step": "planning"})
    runs = store.folder("runs")
    plans = [plan_of(cell) for cell in cells]
    check_extras(Plan.union(plans), store.keys, execution.address)
    parts = [
        SessionRun(
            plan,
            Journal(_folder(runs, run_id(cell.audit, list(plan.jobs), cell.config), execution.again)),
            Rounds.of(cell, plan),
        )
        for cell, plan in zip(cells, plans, strict=True)
    ]
    deciding.check_execution(parts, execution)
    if len({part.journal.run for part in parts}) < len(parts):
        raise SpecError("two cells of the sweep are the same; vary something that bears on the result")
    for cell, part in zip(cells, parts, strict=True):
        part.journal.create(cell_description(cell) | describe_code(code_of(cell.config, part.plan)), part.plan)
        part.journal.check()  # one that cannot be read stops the run before anything is written
        if cell.accepted:
            note_accepted(part.journal, cell, part.plan)
        record(part.journal, part.plan)
    missing = left_out_as_json(cells, left_out)
    if len(parts) == 1:
        parts[0].journal.note_left_out(missing)
        return replace(_run(parts, store, execution, observe, None, clock, search), left_out=tuple(left_out))
    names = sorted(part.journal.run for part in parts)
    name = f"{cells[0].audit}-sweep-{hashlib.sha256(' '.join(names).encode()).hexdigest()[:8]}"
    sweep = Journal(runs / name)
    sweep.create(sweep_description(cells, [part.journal.run for part in parts]), None)
    sweep.check()
    sweep.note_left_out(missing)
    return replace(_run(parts, store, execution, observe, sweep, clock), left_out=tuple(left_out))


def resume(run: str, store: Store, execution: Execution, observe: Observer | None = None) -> Report:
    """Continue a run or sweep, given its full name.

    Raises SpecError if the user's code has changed since, unless `execution.same_code` accepts that.
    """
    runs = store.folder("runs")
    journal = Journal(runs / run)
    if not journal.exists:
        raise SpecError(f"unknown run {run!r} in {store.location}")
    about = journal.about()
    is_sweep = "cells" in about
    journals = [Journal(runs / name) for name in about["cells"]] if is_sweep else [journal]
    for cell in journals:
        check_code(cell, store, execution.same_code)
    parts = [_reopen(cell) for cell in journals]
    deciding.check_execution(parts, execution)

    def check_missing() -> None:
        plan, stored = Plan.union(part.plan for part in parts), store.keys()
        if plan.missing(stored):
            check_extras(plan, lambda: stored, execution.address)

    return _run(parts, store, execution, observe, journal if is_sweep else None, SYSTEM, check=check_missing)


def _reopen(journal: Journal) -> SessionRun:
    plan = open_plan(journal)
    return SessionRun(plan, journal, Rounds.of(reopen_cell(journal), plan))


def _folder(runs: Path, run: str, again: bool) -> Path:
    folder = runs / run
    count = 2
    while again and folder.exists():
        folder = runs / f"{run}-{count}"
        count += 1
    return folder


def _run(
    parts: Sequence[SessionRun],
    store: Store,
    execution: Execution,
    observe: Observer | None,
    sweep: Journal | None,
    clock: Clock,
    search: str | None = None,
    check: Callable[[], None] = lambda: None,
) -> Report:
    """Drive these runs under a lease; return their report. `check` raises an error unless they can be driven here."""
    stop = Stop()
    runs = store.folder("runs")
    names = sorted(part.journal.run for part in parts)
    with ExitStack() as held:

        def say(line: str) -> None:
            if observe is not None:
                observe({"event": "told", "line": line})

        # A caller's clock is used for everything; with the system's, heartbeats go by the file system's clock.
        now = None if clock is SYSTEM else clock.now
        leases = held.enter_context(lease.acquire([runs / name for name in names], now, tell=say))
        mirror = store.mirror
        claims = held.enter_context(mirror.claim(*names)) if mirror is not None else None

        def lost_run() -> tuple[str, Holder | None] | None:
            return leases.lost or (None if claims is None else claims.lost)

        name = sweep.run if sweep else names[0]
        session = Session(name, parts, store, observe, held=lambda: lost_run() is None, search=search)
        cancellation = Cancellation(store, name, clock.monotonic)
        neighbours = ConcurrentRuns(runs, names, leases.since, now, clock.monotonic)
        seconds = other_runs.mean_seconds(runs)

        def start_executor() -> Executor:
            if execution.address != "none":
                local = execution.address in (None, "local")
                session.step("starting Ray" if local else "connecting to Ray and checking its nodes")

            def needed_data() -> list[Any]:
                missing = session.plan.missing(session.stored_keys())
                return pinned_data(session.plan.jobs[key].config for key in missing)

            executor = open_executor(execution.address, store, execution.gpus, needed_data, execution.dashboard)
            session.ready(executor.slots, executor.pages)
            if execution.dashboard:
                say(_describe_dashboard(executor.pages))
            return executor

        planned, states = session.plan, CheckpointGc(store, runs, names, execution.keep == "state")

        @cache
        def price_of_group(group: str) -> float | None:
            """The most seconds of a job of this group: by earlier runs of this store, else by the reference timings."""
            return seconds[group] if group in seconds else highest_price(session.plan, group)

        def check_ours() -> None:
            """Raise Held if another driver has taken a run over: nothing of it may be written any more."""
            if (by := lost_run()) is not None:
                raise Held(takeover_message(*by))

        driver = Driver(
            store,
            start_executor,
            session.take,
            stop,
            gpus_per_job=execution.gpus_per_job,
            together=execution.together,
            way=execution.way,
            stand_ins={now: keys for part in parts for now, keys in part.journal.about().get("stand_ins", {}).items()},
            runs=(sweep.run, *names) if sweep else (names[0], *other_runs.sweeps_with(parts[0].journal)),
            fail_fast=execution.fail_fast,
            deadline=None if execution.stop_after is None else clock.monotonic() + execution.stop_after,
            budget=Budget(execution),
            seconds=seconds,
            timeout=execution.timeout,
            price=price_of_group,
            elsewhere=neighbours.find_claims,
            cancelled=cancellation.look,
            ours=check_ours,
            states=states,
            metrics=Metrics(name),
            clock=clock,
        )
        held.callback(driver.close)
        delivery = finalise.delivery(session, sweep.run if sweep else None, execution)
        if delivery is not None:
            held.callback(delivery.close)
        with stop.handle_signals(say):
            if session.is_settled():
                stored = set(session.stored)
                states.clear(planned, stored)
                report = session_report(driver, session, sweep.run if sweep else None, stored, sound=stored)
                session.tell({"event": report.state, "run": report.run})
                return finalise.finish_run(report, session, execution, delivery, stop)
            check()
            session.begin(seconds)
            if delivery is not None and session.plan.missing(session.stored):
                delivery.begin()
            sound: set[str] | None = None
            try:
                sound = _drive_to_end(driver, session, execution.tolerate)
                driver.close()
                check_ours()
                session.publish(True, sound)
                _record_looks(session, sound)
            except StoreError as error:  # the store cannot be read for now
                driver.progress.paused = driver.progress.paused or str(error)
                driver.close()
            check_ours()
            driver.progress.paused = driver.progress.paused or session.lacking
            stored = session.stored_keys()
            if not driver.progress.paused:
                states.clear(planned, stored)
            if driver.progress.around:
                driver.progress.seconds[other_runs.startup_group(execution.address)].append(driver.progress.around)
            report = _conclude(driver, session, sweep.run if sweep else None, stored, sound)
            report = finalise.finish_run(report, session, execution, delivery, stop)
            if report.state == "finished":
                session.record_verified()
            return report


def _record_looks(session: Session, sound: set[str] | None) -> None:
    """Record which look each run is at its question, if all of its results are there, before anything shows them."""
    answered = [part for part in session.parts if sound is not None and part.plan.jobs.keys() <= sound]
    record_looks([part.journal for part in answered], [part.plan for part in answered])


def _describe_dashboard(pages: Mapping[str, str]) -> str:
    """Where Ray's dashboard is, with the token of the cluster that this process has started; for the terminal alone."""
    if not pages:
        return f"Ray's dashboard did not start; {session_folder()}/session_latest/logs/dashboard.log may say why"
    token = os.environ.get("RAY_AUTH_TOKEN", "of the cluster")
    return f"Ray's dashboard: {pages['driver']}; it asks for the token {token}"


def _drive_to_end(driver: Driver, session: Session, tolerate: int) -> set[str] | None:
    """Drive until every planned result that is needed is stored and verified, or there is a reason to stop.

    Returns the keys whose results verify; None if it was stopped before they were verified.
    """
    progress = driver.progress
    if not deciding.drive_rounds(driver, session):
        return None
    for mended in range(1 + MENDED):
        driver.drive(session.plan, session.store.keys() if mended else set(session.stored))
        if 0 < len(progress.failed) <= tolerate and not driver.stopped:
            session.tolerate(set(progress.failed))
            driver.drive(session.plan, session.store.keys())
        unfinished = driver.stopped and session.plan.missing(session.stored_keys())
        if unfinished or (progress.failed and driver.fail_fast):
            return None
        session.step("checking what is stored")
        wrong = session.verify()
        sound = set(session.plan.jobs) - set(wrong)
        stuck = [error for error in wrong.values() if not isinstance(error, Absent | Damaged)]
        if stuck:  # they cannot be read, or are damaged and cannot be set aside, so they cannot be replaced
            more = f" (and {len(stuck) - 1} more)" if len(stuck) > 1 else ""
            progress.paused = progress.paused or f"{stuck[0]}{more}"
            return sound
        hopeless = session.plan.dependents(progress.failed) if progress.failed else set()
        damaged = {key: error for key, error in wrong.items() if key not in hopeless}
        if not damaged or driver.stopped:
            return sound
        session.take(
            [
                {"event": "damaged", "key": key, "task": session.plan.task(key), "problem": str(error)}
                for key, error in damaged.items()
            ]
        )
        progress.damaged += len(damaged)
    progress.paused = "results are damaged again and again after they were written; check the disk"
    return sound


def _unsound_keys(part: SessionRun, sound: set[str] | None) -> dict[str, list[str]]:
    """The run's results that did not verify, which its counts leave out, as its log tells them."""
    unsound = [] if sound is None else sorted(part.plan.jobs.keys() - sound)
    return {"unsound": unsound} if unsound else {}


def _conclude(driver: Driver, session: Session, sweep: str | None, stored: set[str], sound: set[str] | None) -> Report:
    """Log how the runs ended; return their report."""
    report = session_report(driver, session, sweep, stored, sound)
    ends = zip(session.parts, report.cells or (report,), strict=True)
    session.end(
        (part, {"event": ended.state, "jobs": dict(ended.jobs), "note": ended.note, **_unsound_keys(part, sound)})
        for part, ended in ends
    )
    for part in session.parts:
        other_runs.write_timings(part.journal.folder, driver.progress.seconds)
    if session.lacking and not driver.progress.paused:
        driver.progress.paused = session.lacking
        report = session_report(driver, session, sweep, stored, sound)
    session.tell({"event": report.state, "run": report.run})
    return report
