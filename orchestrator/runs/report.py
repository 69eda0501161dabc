"""A report: how a run or sweep ended, for the caller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import pyarrow as pa

from orchestrator.errors import EngramError
from orchestrator.run_folder import tables
from orchestrator.runs.session import Part, Session
from orchestrator.scheduling.driver import Driver
from orchestrator.store import Store

State = Literal["finished", "failed", "interrupted", "paused"]
EXIT_CODES: Mapping[State, int] = {"finished": 0, "failed": 3, "paused": 1, "interrupted": 130}  # the worst last


@dataclass(frozen=True)
class Report:
    """How a run ended.

    jobs: `planned`; `stored`, in the store now, and verified unless the run stopped before (always for `finished`);
    `done`, computed by this start; `failed`. `page` is the file of the report page, `mlflow` the address of the
    tracked run; None if there is none.
    """

    run: str
    audit: str
    state: State
    jobs: Mapping[str, int]
    failures: tuple[tuple[str, str, str], ...] = ()  # (key, task, error)
    damaged: int = 0  # results found damaged or gone, and computed again
    differing: int = 0  # results whose key had a different one already, which stays; the new ones are in conflicts/
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
        """One of the run's tables; for a sweep the tables of its cells, concatenated, with columns for the setting."""
        if self.cells:
            return self._of_cells(name)
        if name not in self.roots:
            raise EngramError(f"run {self.run} has no table {name!r}; it has {', '.join(self.roots) or 'none'}")
        assert self.store is not None
        rows = tables.read(self.store, self.roots[name])
        if rows is None:
            raise EngramError(f"run {self.run} has nothing in {name!r} yet")
        return rows

    def _of_cells(self, name: str) -> pa.Table:
        from orchestrator.inspection import results
        from orchestrator.run_folder.journal import Journal

        assert self.store is not None
        rows = results.read(Journal(self.store.folder("runs", self.run)), self.store, name).table
        if not rows.num_columns:
            raise EngramError(f"sweep {self.run} has nothing in {name!r} yet")
        return rows


def reported(driver: Driver, session: Session, sweep: str | None, sound: set[str] | None) -> Report:
    """How the session's runs ended, and the sweep they belong to, if any.

    `sound` are the keys whose results verify; None if they were not verified.
    """
    stored = session.stored()
    if sound is not None:
        stored -= session.plan.jobs.keys() - sound
    reports = [_report(part, driver, session, stored, sound or set()) for part in session.parts]
    whole = reports[0]
    if sweep is not None:
        worst = max((report.state for report in reports), key=list(EXIT_CODES).index)
        counts = _counts(session.plan.jobs, stored, driver)
        lost = tuple(dict.fromkeys(failure for report in reports for failure in report.failures))
        whole = replace(whole, run=sweep, state=worst, jobs=counts, failures=lost, cells=tuple(reports), roots={})
        whole = replace(whole, differing=len(session.differing))
    return whole


def _report(part: Part, driver: Driver, session: Session, stored: set[str], sound: set[str]) -> Report:
    progress = driver.progress
    planned = part.journal.tasks()
    lost = [key for key in progress.failed if key in planned]
    state: State = "failed" if lost else "finished"
    whole = not session.lacking and all(key in sound for key in part.plan.jobs)
    if not whole and (driver.stopped or not lost):
        state = "paused" if progress.paused else "interrupted"
    return Report(
        run=part.journal.run,
        audit=part.journal.about()["audit"],
        state=state,
        jobs=_counts({**planned, **dict.fromkeys(part.plan.jobs)}, stored, driver) | {"planned": len(planned)},
        failures=tuple((key, planned[key], progress.failed[key].error) for key in lost),
        damaged=progress.damaged,
        differing=sum(key in planned for key in session.differing),
        note=driver.stopped or "",
        roots=part.plan.roots,
        store=session.store,
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
