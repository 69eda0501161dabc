"""A run: one audit with one config, from its plan to its tables; or a sweep, which is several with one plan.

Its id follows from its plan's keys, so starting it again reopens it. Kill it at any moment: the same command goes on.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from orchestrator import audits, lease, reports, tables, timings
from orchestrator.delivery import Delivery, addresses
from orchestrator.driver import Driver, Observer, Stop
from orchestrator.errors import EngramError, SpecError, StoreError
from orchestrator.executors import open_executor
from orchestrator.fields import coerce, plain
from orchestrator.identity import run_id
from orchestrator.journal import Journal
from orchestrator.neighbours import Neighbours
from orchestrator.plan import Plan
from orchestrator.provenance import commit, versions
from orchestrator.session import Part, Session
from orchestrator.store import Store
from orchestrator.target import Untracked, target
from tasks.datasets.dataset import DatasetError

State = Literal["finished", "failed", "interrupted", "paused"]
EXIT_CODES: Mapping[State, int] = {"finished": 0, "failed": 3, "paused": 1, "interrupted": 130}  # the worst last
MENDED = 3  # times that results found damaged at the end are computed again before the run gives up


@dataclass(frozen=True)
class Execution:
    """Where and how fast; never part of a key. None is the default: local cluster, automatic grouping."""

    address: str | None = None  # "local", "auto", "HOST:PORT", or "none" for this process
    together: int | None = None  # jobs that share a call
    tolerate: int = 0  # failed jobs that the tables may go without
    fail_fast: bool = False
    stop_after: float | None = None  # seconds
    again: bool = False  # as a new run, though its results are reused
    mlflow: str | None = None  # the tracking store's URI, or "off"; None: an sqlite file inside a local store
    experiment: str | None = None
    report: bool = True  # whether a page is drawn at the end
    show_images: bool = False  # whether images of the user's own may be seen in it


@dataclass(frozen=True)
class Cell:
    """One audit with one config; `setting` is what a sweep varied."""

    audit: str
    config: Any
    preset: str | None = None
    setting: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """How a run ended.

    jobs: `planned`; `stored`, in the store now; `done`, computed by this start; `failed`. `page` is the report's file,
    `mlflow` where tracking shows the run; None where there is none.
    """

    run: str
    audit: str
    state: State
    jobs: Mapping[str, int]
    failures: tuple[tuple[str, str, str], ...] = ()  # (key, task, error)
    damaged: int = 0  # results found damaged or gone, and computed again
    note: str = ""
    cells: tuple[Report, ...] = ()
    roots: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    store: Store | None = field(default=None, repr=False)
    page: Path | None = None
    mlflow: str | None = None

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.state]

    def table(self, name: str) -> pa.Table:
        """One of the run's tables."""
        if name not in self.roots:
            raise EngramError(f"run {self.run} has no table {name!r}; it has {', '.join(self.roots) or 'none'}")
        assert self.store is not None
        rows = tables.read(self.store, self.roots[name])
        if rows is None:
            raise EngramError(f"run {self.run} has nothing in {name!r} yet")
        return rows


def start(cells: Sequence[Cell], store: Store, execution: Execution, observe: Observer | None = None) -> Report:
    """Run an audit's cell, or a sweep's cells as one plan, to the end. Results that are stored are not computed again.

    Raises Held where another living driver has the run, Unwritable where its folder cannot be made, and ClusterError
    where the cluster cannot be used.
    """
    runs = store.folder("runs")
    plans = [planned(cell) for cell in cells]
    parts = [
        Part(plan, Journal(_folder(runs, run_id(cell.audit, list(plan.jobs)), execution.again)))
        for cell, plan in zip(cells, plans, strict=True)
    ]
    if len({part.journal.run for part in parts}) < len(parts):
        raise SpecError("two cells of the sweep are the same; vary something that bears on the result")
    for cell, part in zip(cells, parts, strict=True):
        part.journal.create(_about(cell), part.plan)
        part.journal.tasks()  # one that cannot be read stops the run before anything is written
    if len(parts) == 1:
        return _run(parts, store, execution, observe, None)
    names = sorted(part.journal.run for part in parts)
    name = f"{cells[0].audit}-sweep-{hashlib.sha256(' '.join(names).encode()).hexdigest()[:8]}"
    sweep = Journal(runs / name)
    # A cell may have been run alone before and know nothing of the sweep, so the sweep keeps what each one is in it.
    settings = [dict(cell.setting) for cell in cells]
    about = {"audit": cells[0].audit, "cells": [part.journal.run for part in parts], "settings": settings}
    sweep.create(about, None)
    return _run(parts, store, execution, observe, sweep)


def resume(run: str, store: Store, execution: Execution, observe: Observer | None = None) -> Report:
    """Go on with a run or sweep where it was left, by its full name."""
    runs = store.folder("runs")
    journal = Journal(runs / run)
    if not journal.exists:
        raise SpecError(f"unknown run {run!r} in {store.location}")
    about = journal.about()
    if "cells" not in about:
        return _run([Part(reopened(journal)[1], journal)], store, execution, observe, None)
    journals = [Journal(runs / name) for name in about["cells"]]
    parts = [Part(reopened(each)[1], each) for each in journals]
    return _run(parts, store, execution, observe, journal)


def planned(cell: Cell) -> Plan:
    """The cell's plan. SpecError where the audit refuses the config for the data it meets."""
    try:
        return Plan.below(audits.find(cell.audit).audit.plan(cell.config))
    except DatasetError as error:  # gone or changed since it was pinned
        raise EngramError(str(error)) from None
    except ValueError as error:
        raise SpecError(f"{cell.audit}: {error}") from None


def reopened(journal: Journal) -> tuple[Cell, Plan]:
    """The cell and plan of a run from its folder; EngramError where today's code plans something else."""
    about = journal.about()
    found = audits.find(about["audit"])
    config = coerce(about["config"], found.audit.config, "config")
    cell = Cell(about["audit"], config, about["preset"], about["setting"])
    plan = planned(cell)
    before = journal.tasks()
    if set(before) != set(plan.jobs):
        other = sorted({plan.task(key) for key in plan.jobs if key not in before})
        raise EngramError(
            f"run {journal.run} was planned by other versions of {', '.join(other) or 'its tasks'}; "
            f"its results stay as they are: start the audit anew with `engram run {about['audit']}`"
        )
    return cell, plan


def _folder(runs: Path, run: str, again: bool) -> Path:
    folder = runs / run
    count = 2
    while again and folder.exists():
        folder = runs / f"{run}-{count}"
        count += 1
    return folder


def _about(cell: Cell) -> dict[str, Any]:
    return {
        "audit": cell.audit,
        "preset": cell.preset,
        "setting": dict(cell.setting),
        "config": plain(cell.config),
        "versions": dict(versions()),
        "commit": commit(),
    }


def _run(
    parts: Sequence[Part], store: Store, execution: Execution, observe: Observer | None, sweep: Journal | None
) -> Report:
    """Drive these runs, held by this driver alone, and say how they ended."""
    stop = Stop()
    runs = store.folder("runs")
    names = sorted(part.journal.run for part in parts)
    with ExitStack() as held:
        leases = [held.enter_context(lease.acquire(runs / name)) for name in names]
        mirror = store.mirror
        claims = [held.enter_context(mirror.claim(name)) for name in names] if mirror is not None else []
        session = Session(sweep.run if sweep else names[0], parts, store, observe)
        neighbours = Neighbours(runs, names, min(each.since for each in leases))

        def claimed(ours: set[str]) -> set[str]:
            if any(each.lost for each in leases) or any(each.lost for each in claims):
                stop.ask("another driver took this run over")
            return neighbours.claimed(ours)

        driver = Driver(
            store,
            lambda: open_executor(execution.address, store.location),
            session.take,
            stop,
            together=execution.together,
            fail_fast=execution.fail_fast,
            deadline=None if execution.stop_after is None else time.monotonic() + execution.stop_after,
            seconds=timings.known(runs),
            elsewhere=claimed,
        )
        held.callback(driver.close)
        delivery = _tracked(session, sweep, execution)
        if delivery is not None:
            held.callback(delivery.close)
        with stop.on_signals():
            session.begin()
            if delivery is not None and session.plan.missing(session.stored()):
                delivery.begin()
            try:
                _to_the_end(driver, session, execution.tolerate)
                driver.close()
                session.publish()
            except StoreError as error:  # it cannot be read for now, or holds what has just been found damaged
                driver.progress.paused = driver.progress.paused or str(error)
                driver.close()
            driver.progress.paused = driver.progress.paused or session.unwritable
            if driver.progress.around:
                driver.progress.seconds[timings.around(execution.address)].append(driver.progress.around)
            report = _shown(_reported(driver, session, sweep), session, execution)
            if delivery is not None:
                report = _delivered(report, session, delivery, stop)
            _shared(session)
            return report


def _tracked(session: Session, sweep: Journal | None, execution: Execution) -> Delivery | None:
    """The way of these runs to where they are tracked; None, with a line that says why, where they are not."""
    try:
        where = target(session.store, execution.mlflow, execution.experiment)
    except Untracked as error:
        session.tell({"event": "told", "line": str(error)})
        return None
    if where is None:
        return None
    runs = [part.journal.run for part in session.parts]
    return Delivery(where, session.store, runs, sweep.run if sweep else None)


def _delivered(report: Report, session: Session, delivery: Delivery, stop: Stop) -> Report:
    """The report with the addresses at which tracking shows the runs. What could not be delivered is told."""
    asked = stop.reason
    problem = delivery.finish(lambda: stop.reason != asked)
    if problem:
        session.tell({"event": "told", "line": problem})
    found = addresses(delivery, [each.run for each in (*report.cells, report)])
    cells = tuple(replace(each, mlflow=found.get(each.run)) for each in report.cells)
    return replace(report, mlflow=found.get(report.run), cells=cells)


def _shared(session: Session) -> None:
    """Leave the runs' folders where other machines find them; the results are there already."""
    try:
        session.share(last=True)
    except StoreError as error:
        session.tell({"event": "told", "line": f"what is noted of the run stays on this machine for now: {error}"})


def _to_the_end(driver: Driver, session: Session, tolerate: int) -> None:
    """Drive until every planned result is there and verifies, or there is a reason to stop."""
    progress = driver.progress
    for _ in range(1 + MENDED):
        driver.drive(session.plan, session.store.keys())
        if 0 < len(progress.failed) <= tolerate and not driver.stopped:
            session.tolerate(set(progress.failed))
            driver.drive(session.plan, session.store.keys())
        if driver.stopped or (progress.failed and driver.fail_fast):
            return
        session.publish()
        hopeless = session.plan.upon(progress.failed)
        damaged = {key: why for key, why in session.store.verify(session.plan.jobs) if key not in hopeless}
        if not damaged:
            return
        for key, why in damaged.items():
            session.take({"event": "damaged", "key": key, "task": session.plan.task(key), "problem": why})
        progress.damaged += len(damaged)
    progress.paused = "results are damaged again and again after they were written; check the disk"


def _reported(driver: Driver, session: Session, sweep: Journal | None) -> Report:
    stored = session.stored()
    reports = [_report(part, driver, stored, session.store) for part in session.parts]
    session.end(
        (part, {"event": report.state, "jobs": dict(report.jobs), "note": report.note})
        for part, report in zip(session.parts, reports, strict=True)
    )
    for part in session.parts:
        timings.write(part.journal.folder, driver.progress.seconds)
    whole = reports[0]
    if sweep is not None:
        worst = max((report.state for report in reports), key=list(EXIT_CODES).index)
        counts = _counts(session.plan.jobs, stored, driver)
        lost = tuple(dict.fromkeys(failure for report in reports for failure in report.failures))
        whole = replace(whole, run=sweep.run, state=worst, jobs=counts, failures=lost, cells=tuple(reports), roots={})
    session.tell({"event": whole.state, "run": whole.run})
    return whole


def _shown(report: Report, session: Session, execution: Execution) -> Report:
    """The report with the pages of the run, or of the sweep and its cells, drawn anew where anything has changed.

    What keeps a page from being drawn is told; the run has ended as it has, whatever becomes of its page.
    """
    pages: dict[str, Path] = {}
    for each in (*report.cells, report):
        folder = session.store.folder("runs", each.run)
        there = reports.page(folder)
        fresh = there is not None and each.state == "finished" and not report.jobs["done"] and not report.damaged
        try:
            if execution.report and each.state in ("finished", "failed") and (execution.show_images or not fresh):
                there = reports.draw(session.store, each.run, execution.show_images)
        except EngramError as error:
            session.tell({"event": "told", "line": str(error)})
        if there is not None:
            pages[each.run] = there
    cells = tuple(replace(each, page=pages.get(each.run)) for each in report.cells)
    return replace(report, page=pages.get(report.run), cells=cells)


def _report(part: Part, driver: Driver, stored: set[str], store: Store) -> Report:
    progress = driver.progress
    planned = part.journal.tasks()
    lost = [key for key in progress.failed if key in planned]
    state: State = "failed" if lost else "finished"
    if not all(key in stored for key in part.plan.jobs) and driver.stopped:
        state = "paused" if progress.paused else "interrupted"
    return Report(
        run=part.journal.run,
        audit=part.journal.about()["audit"],
        state=state,
        jobs=_counts({**planned, **dict.fromkeys(part.plan.jobs)}, stored, driver) | {"planned": len(planned)},
        failures=tuple((key, planned[key], progress.failed[key].error) for key in lost),
        damaged=progress.damaged,
        note=driver.stopped or "",
        roots=part.plan.roots,
        store=store,
    )


def _counts(keys: Iterable[str], stored: set[str], driver: Driver) -> dict[str, int]:
    keys = list(keys)
    progress = driver.progress
    return {
        "planned": len(keys),
        "stored": sum(key in stored for key in keys),
        "done": sum(key in progress.computed for key in keys),
        "failed": sum(key in progress.failed for key in keys),
    }
