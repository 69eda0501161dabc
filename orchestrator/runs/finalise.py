"""The steps after a run: drawing its pages, delivering it to MLflow, and copying its folder for other machines.

These steps do not change the outcome of the run. A step that fails is reported in one line and repeated by the next
start.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.errors import EngramError, StoreError
from orchestrator.inspection import pages
from orchestrator.inspection.parallel_pages import draw_pages
from orchestrator.run_folder.journal import COMPLETE
from orchestrator.runs.report import Report
from orchestrator.runs.session import Session
from orchestrator.scheduling.stop import Stop
from orchestrator.spec.audits import find_once
from orchestrator.spec.options import Execution
from orchestrator.store import Store, list_once
from orchestrator.tracking.delivery import Delivery, addresses
from orchestrator.tracking.tracking_store import Untracked, target

INTERRUPTED_SECONDS = 5.0  # seconds for tracking at the end of an interrupted run


def delivery(session: Session, sweep: str | None, execution: Execution) -> Delivery | None:
    """Return the delivery of these runs to their tracking store.

    If they are not tracked, report the reason as an event and return None.
    """
    runs = [part.journal.run for part in session.parts]
    return delivery_of(
        session.store, runs, sweep, execution, lambda line: session.notify({"event": "told", "line": line})
    )


def delivery_of(
    store: Store, runs: Sequence[str], sweep: str | None, execution: Execution, report: Callable[[str], object]
) -> Delivery | None:
    """Return the delivery of the named runs, and of their sweep or search. Returns None if they are not tracked.

    `report` receives the reason, unless tracking is off.
    """
    try:
        tracking_target = target(store, execution.mlflow, execution.experiment)
    except Untracked as error:
        report(str(error))
        return None
    if tracking_target is None:
        return None
    return Delivery(replace(tracking_target, jobs=execution.mlflow_jobs), store, runs, sweep)


def finish_run(report: Report, session: Session, execution: Execution, delivery: Delivery | None, stop: Stop) -> Report:
    """Draw the pages, deliver to tracking and share the folders. Returns the report with pages and addresses."""
    with list_once(), find_once():
        report = _draw_pages(report, session, execution)
        if execution.report:
            runs = [entry.run for entry in (*report.cells, report)]
            draw_index(session.store, runs, lambda line: session.notify({"event": "told", "line": line}))
    if delivery is not None:
        report = _deliver(report, session, delivery, stop)
    _share_folders(session)
    return report


def draw_index(store: Store, runs: Sequence[str], tell: Callable[[str], object]) -> None:
    """Update the page of all runs and the pages of what these runs examined. `tell` receives an error as a line."""
    try:
        pages.draw_index(store, runs)
    except EngramError as error:
        tell(str(error))


def _deliver(report: Report, session: Session, delivery: Delivery, stop: Stop) -> Report:
    """Return the report with the addresses of the tracked runs. Parts that could not be delivered are reported."""
    session.step("updating MLflow")
    earlier_reason = stop.reason
    if report.state == "interrupted":
        deadline = time.monotonic() + INTERRUPTED_SECONDS
    else:
        deadline = math.inf
    for line in delivery.finish(lambda: stop.reason != earlier_reason or time.monotonic() > deadline):
        session.notify({"event": "told", "line": line})
    urls = addresses(delivery, [entry.run for entry in (*report.cells, report)])
    cells = tuple(replace(cell, mlflow=urls.get(cell.run)) for cell in report.cells)
    return replace(report, mlflow=urls.get(report.run), cells=cells)


def _share_folders(session: Session) -> None:
    """Copy the run folders to the store for other machines. The results are already there."""
    try:
        session.share(last=True)
    except StoreError as error:
        session.notify({"event": "told", "line": f"the run's folder was not copied to the store yet: {error}"})


def _draw_pages(report: Report, session: Session, execution: Execution) -> Report:
    """Redraw the pages of the run, or of the sweep and its cells, if anything changed. Returns the report with them.

    If a page cannot be drawn, the error is reported. It changes the exit code but not the outcome of the run.
    """
    pages_by_run: dict[str, Path] = {}
    undrawn = ""
    for entries in (report.cells, [report]):  # the page of a sweep links to those of its cells
        outdated_runs = []
        for entry in entries:
            page = pages.page(session.store.folder("runs", entry.run))
            if page is not None:
                pages_by_run[entry.run] = page
            is_current = page is not None and entry.state in COMPLETE and not report.jobs["done"] and not report.damaged
            if execution.report and entry.state in (*COMPLETE, "failed") and (execution.show_images or not is_current):
                outdated_runs.append(entry.run)
        if outdated_runs:
            session.step("writing the report")
        for run, (page, error) in draw_pages(session.store, outdated_runs, execution.show_images):
            if page is not None:
                pages_by_run[run] = page
            if error:
                undrawn = undrawn or error
                session.notify({"event": "told", "line": error})
    cells = tuple(replace(cell, page=pages_by_run.get(cell.run)) for cell in report.cells)
    return replace(report, page=pages_by_run.get(report.run), cells=cells, undrawn=undrawn)
