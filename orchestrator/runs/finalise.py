"""What comes after a run: its pages, its place in MLflow, and its folder for other machines.

None of it changes how the run ended. What cannot be done is told in a line, and done by the next start.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path

from orchestrator.errors import EngramError, StoreError
from orchestrator.inspection import pages
from orchestrator.runs.report import Report
from orchestrator.runs.session import Session
from orchestrator.scheduling.stop import Stop
from orchestrator.spec.execution import Execution
from orchestrator.tracking.delivery import Delivery, addresses
from orchestrator.tracking.target import Untracked, target

HURRY = 5.0  # seconds that tracking may still take where somebody waits for an interrupted run to end


def delivery(session: Session, sweep: str | None, execution: Execution) -> Delivery | None:
    """What delivers these runs to their tracking store; None, and a line that says why, where they are not tracked."""
    try:
        where = target(session.store, execution.mlflow, execution.experiment)
    except Untracked as error:
        session.tell({"event": "told", "line": str(error)})
        return None
    if where is None:
        return None
    runs = [part.journal.run for part in session.parts]
    return Delivery(where, session.store, runs, sweep)


def follow(report: Report, session: Session, execution: Execution, delivery: Delivery | None, stop: Stop) -> Report:
    """Draw the pages, deliver to tracking, share the folders; return the report with pages and addresses."""
    report = _shown(report, session, execution)
    if delivery is not None:
        report = _delivered(report, session, delivery, stop)
    _shared(session)
    return report


def _delivered(report: Report, session: Session, delivery: Delivery, stop: Stop) -> Report:
    """The report with the addresses of the tracked runs. Tells what could not be delivered."""
    asked = stop.reason
    late = time.monotonic() + HURRY if report.state == "interrupted" else math.inf
    for line in delivery.finish(lambda: stop.reason != asked or time.monotonic() > late):
        session.tell({"event": "told", "line": line})
    found = addresses(delivery, [each.run for each in (*report.cells, report)])
    cells = tuple(replace(each, mlflow=found.get(each.run)) for each in report.cells)
    return replace(report, mlflow=found.get(report.run), cells=cells)


def _shared(session: Session) -> None:
    """Copy the runs' folders to where other machines find them; the results are there already."""
    try:
        session.share(last=True)
    except StoreError as error:
        session.tell({"event": "told", "line": f"what is noted of the run stays on this machine for now: {error}"})


def _shown(report: Report, session: Session, execution: Execution) -> Report:
    """The report with the pages of the run, or of the sweep and its cells, redrawn where anything changed.

    What keeps a page from being drawn is told; the run has ended as it has, whatever becomes of its page.
    """
    found: dict[str, Path] = {}
    for each in (*report.cells, report):
        folder = session.store.folder("runs", each.run)
        there = pages.page(folder)
        fresh = there is not None and each.state == "finished" and not report.jobs["done"] and not report.damaged
        try:
            if execution.report and each.state in ("finished", "failed") and (execution.show_images or not fresh):
                there = pages.draw(session.store, each.run, execution.show_images)
        except EngramError as error:
            session.tell({"event": "told", "line": str(error)})
        if there is not None:
            found[each.run] = there
    cells = tuple(replace(each, page=found.get(each.run)) for each in report.cells)
    return replace(report, page=found.get(report.run), cells=cells)
