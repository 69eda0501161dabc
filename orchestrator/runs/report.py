"""A run as seen by Python callers: its state, answer, tables, figures and page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any, Literal, cast

import pyarrow as pa

from orchestrator.errors import EngramError, short_traceback
from orchestrator.inspection import answers, disclosure, pages, results, status
from orchestrator.inspection.answers import Answer
from orchestrator.inspection.pages import DrawnFigure
from orchestrator.inspection.search_results import SearchResults
from orchestrator.quantities import format_count
from orchestrator.run_folder.journal import COMPLETE, Journal
from orchestrator.runs.session import Session, SessionRun
from orchestrator.scheduling.driver import Driver
from orchestrator.spec.resolve import LeftOut
from orchestrator.store import Store
from orchestrator.store.regular_file import regular_text

MAX_ROWS = 5  # summary rows shown
HEIGHT = 620  # pixel height of the certificate's frame, which scrolls
HEAD = re.compile(r"<!doctype html>.*?</head>", re.DOTALL)
CERTIFICATE = re.compile(r'<section aria-labelledby="certificate".*?</section>', re.DOTALL)
State = Literal["finished", "decided", "running", "failed", "paused", "interrupted"]
# From best to worst. `running` means a driver in another process, so no start of this process reports it.
EXIT_CODES: Mapping[State, int] = {
    "finished": 0,
    "decided": 0,
    "running": 1,
    "failed": 3,
    "paused": 1,
    "interrupted": 130,
}


def _certificate(page: Path) -> str | None:
    """Return the first page of a report, including styles, in a frame.

    Returns None if the report has no certificate.
    """
    try:
        text = regular_text(page)
    except (OSError, ValueError):
        return None
    head = HEAD.match(text)
    section = CERTIFICATE.search(text)
    if head is None or section is None:
        return None
    document = f"{head[0]}<body><main>{section[0]}</main></body></html>"
    frame = f'sandbox="" style="width:100%;height:{HEIGHT}px;border:0" title="Certificate"'
    return f'<iframe {frame} srcdoc="{escape(document)}"></iframe>'


def _outline(title: str, paragraphs: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    """Render a heading, paragraphs, and the first rows of a summary as HTML."""
    parts = [f"<p><strong>{escape(title)}</strong></p>", *(f"<p>{escape(text)}</p>" for text in paragraphs if text)]
    if rows:
        head = "".join(f"<th>{escape(name)}</th>" for name in answers.HEAD)
        cells = [answers.row_cells(row, " = ") for row in rows[:MAX_ROWS]]
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row_cells)}</tr>" for row_cells in cells)
        parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
        hidden_count = len(rows) - MAX_ROWS
        if hidden_count > 0:
            parts += [f"<p>and {format_count(hidden_count, 'row')} more</p>"]
    return f"<div>{''.join(parts)}</div>"


@dataclass(frozen=True)
class Report:
    """A run or sweep, as returned by `orchestrator.run` and `orchestrator.open`.

    `jobs` counts the jobs that are `planned`; `stored` (in the store now, and verified if the state is `finished` or
    `decided`); `done` (computed by this or the last start); and `failed`. `page` is the file of the report page, and
    `mlflow` the address of the tracked run. Either is None if it does not exist. `cells` contains the runs of a sweep,
    or the trial runs of a search. `search` contains the settings and trials of a search, whose tables are `trials` and
    `front`.

    Properties and methods raise EngramError, or SpecError for an unknown name, as the command line does.
    """

    run: str
    audit: str
    state: State
    jobs: Mapping[str, int]
    failures: tuple[tuple[str, str, str], ...] = ()  # (key, task, error)
    damaged: int = 0  # results that were damaged or missing and have been recomputed
    # New results that differ from the stored ones; the stored ones are kept, the new ones are in conflicts/.
    differing: int = 0
    note: str = ""
    cells: tuple[Report, ...] = ()
    left_out: tuple[LeftOut, ...] = ()  # the preset's cells that this start skipped because data are missing
    search: SearchResults | None = field(default=None, repr=False)
    roots: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    store: Store | None = field(default=None, repr=False)
    page: Path | None = None
    mlflow: str | None = None
    undrawn: str = ""  # why a requested page could not be drawn

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.state] or int(bool(self.undrawn))

    @property
    def look(self) -> Mapping[str, Any] | None:
        """The run's look at its question, as recorded in its folder: number, cells and summed error.

        None for a sweep, or if there is no answer yet.
        """
        if self.store is None or self.cells or self.search is not None:
            return None
        with suppress(EngramError):
            look: Mapping[str, Any] | None = self._journal.about().get("look")
            return look
        return None

    @cached_property
    @short_traceback
    def verdict(self) -> Answer | None:
        """The answer and the numbers that support it. None for a sweep, or if there is no answer yet.

        For a search, this is the recommendation: `setting` has the winner's choices, as arguments for
        `orchestrator.run`, and the number is its reduction in memorisation relative to the start.
        """
        return answers.run_answer(self._journal, self._store)

    @property
    @short_traceback
    def effect(self) -> str:
        """The number that compares runs, with its unit and interval, such as `0.37 nats [0.18, 0.55]`.

        For a sweep, this is the range over its cells. Empty if there is no number yet.
        """
        return answers.effect(self._journal, self._store)

    @cached_property
    @short_traceback
    def config(self) -> Any:
        """The configuration as the audit's dataclass, with data sets pinned to their content.

        `orchestrator.run` accepts it, also with fields replaced by `dataclasses.replace`. None for a sweep or search,
        whose cells have the configurations, and if the audit is not installed or has changed since the run.
        """
        about = self._journal.about()
        return None if "cells" in about else disclosure.typed_config(about)

    @property
    @short_traceback
    def tables(self) -> tuple[str, ...]:
        """The names of the run's tables. For a sweep, those of any cell; for a search, also `trials` and `front`."""
        return results.table_names(self._journal)

    @property
    def summary(self) -> pa.Table:
        """The table `summary`, which contains the audit's numbers with one row per metric and setting."""
        return self.table("summary")

    @short_traceback
    def table(self, name: str) -> pa.Table:
        """Return one of the run's tables.

        For a sweep, the tables of all cells are concatenated, with setting columns added.

        The first column is the run. A column `setting` (JSON) is followed by its values as columns `setting_NAME`. The
        metadata of a summary contain the meanings of its columns and, for a run, the `effect` with its unit.
        """
        rows = results.export(self._journal, self._store, name).table
        if not rows.num_columns:
            if self.search:
                kind = "search"
            elif self.cells:
                kind = "sweep"
            else:
                kind = "run"
            raise EngramError(f"{kind} {self.run} has no rows in {name!r} yet")
        return rows

    @property
    def figures(self) -> tuple[str, ...]:
        """The names of the figures on the run's page.

        The page is drawn first if it is missing or the run is unfinished.
        """
        return tuple(pages.figures(self._drawn_folder()))

    @short_traceback
    def figure(self, name: str) -> DrawnFigure:
        """Return a figure from the run's page. It has the attributes `svg` and `path`, the path of its file.

        Notebooks display it.
        """
        return pages.figure(self._drawn_folder(), name)

    def _repr_html_(self) -> str:
        """Render the page's certificate. If there is none, render the state, the answer and the first summary rows."""
        certificate = _certificate(self.page) if self.page is not None else None
        if certificate is not None:
            return certificate
        answered_cells = () if self.search else self.cells
        paragraphs = []
        for cell in answered_cells:
            if cell.verdict:
                paragraphs.append(", ".join(filter(None, (cell.verdict.effect, cell.verdict.answer))) + f": {cell.run}")
        paragraphs += [self.verdict.sentence] if self.verdict else []
        title = f"{self.audit}: {self.verdict.answer if self.verdict else self.state}"
        jobs = f"Run {self.run}, {self.state}: {self.jobs['stored']} of {self.jobs['planned']} jobs stored."
        rows: Sequence[Mapping[str, Any]] = []
        if not self.search:
            summary_rows = results.summary(self._journal, self._store).table.to_pylist()
            rows = answers.leading_rows(results.answer(self._journal, self._store), summary_rows, len(summary_rows))
        return _outline(title, [*paragraphs, jobs], rows)

    @property
    def _store(self) -> Store:
        if self.store is None:
            raise EngramError(f"run {self.run} has no store")
        return self.store

    @property
    def _journal(self) -> Journal:
        return Journal(self._store.folder("runs", self.run))

    @short_traceback
    def _drawn_folder(self) -> Path:
        """Return the run's folder, after drawing its page and figures if needed."""
        folder = self._journal.folder
        if self.state not in COMPLETE or pages.page(folder) is None:
            pages.draw(self._store, self.run)
        return folder


def open_report(journal: Journal, store: Store) -> Report:
    """Open a run, sweep or search from its folder, even if another process is driving it.

    Raises StoreError if it is unreadable.
    """
    run_status = status.status(journal, store)
    return Report(
        run=run_status.run,
        audit=run_status.audit,
        state=cast(State, run_status.state),
        jobs=run_status.jobs,
        failures=run_status.failures,
        note=run_status.note,
        cells=tuple(open_report(journal.sibling(cell), store) for cell in run_status.cells),
        search=run_status.search,
        roots={} if run_status.cells else status.roots(journal),
        store=store,
        page=run_status.page,
        mlflow=run_status.mlflow,
    )


def session_report(
    driver: Driver, session: Session, sweep: str | None, stored_keys: set[str], sound: set[str] | None
) -> Report:
    """Return the report on the session's runs, and on their sweep if there is one.

    `stored_keys` are the keys in the store. `sound` are the keys of verified results, or None if they were not
    verified.
    """
    if sound is not None:
        stored_keys = stored_keys - (session.plan.jobs.keys() - sound)
    reports = []
    for part in session.parts:
        reports.append(_report(part, driver, session, stored_keys, sound or set()))
    whole = reports[0]
    if sweep is not None:
        worst = max((report.state for report in reports), key=list(EXIT_CODES).index)
        counts = _counts(set(session.plan.jobs), stored_keys, driver)
        failures = tuple(dict.fromkeys(failure for report in reports for failure in report.failures))
        whole = replace(whole, run=sweep, state=worst, jobs=counts, failures=failures, cells=tuple(reports), roots={})
        whole = replace(whole, differing=len(session.differing))
    return whole


def _report(part: SessionRun, driver: Driver, session: Session, stored_keys: set[str], sound: set[str]) -> Report:
    progress = driver.progress
    planned_tasks = part.journal.tasks()
    failed_keys = [key for key in progress.failed if key in planned_tasks]
    state: State = "failed" if failed_keys else "decided" if part.decision else "finished"
    is_complete = not session.lacking and sound.issuperset(part.plan.jobs)
    if not is_complete and (driver.stopped or not failed_keys):
        state = "interrupted"
        if progress.paused:
            state = "paused"
    return Report(
        run=part.journal.run,
        audit=part.journal.about()["audit"],
        state=state,
        jobs=_counts({*planned_tasks, *part.plan.jobs}, stored_keys, driver) | {"planned": len(planned_tasks)},
        failures=tuple((key, planned_tasks[key], progress.failed[key].error) for key in failed_keys),
        damaged=progress.damaged,
        differing=sum(key in planned_tasks for key in session.differing),
        note=driver.stopped or part.decision,
        roots=part.plan.roots,
        store=session.store,
    )


def _counts(keys: set[str], stored_keys: set[str], driver: Driver) -> dict[str, int]:
    progress = driver.progress
    return {
        "planned": len(keys),
        "stored": len(keys & stored_keys),
        "done": len(keys & progress.computed),
        "failed": len(keys & progress.failed.keys()),
    }
