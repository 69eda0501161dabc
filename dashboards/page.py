"""The page of a run, sweep or search: one file that opens from disk, without a network connection or scripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dashboards import (
    audits,
    certificate,
    configuration,
    document,
    html_table,
    provenance,
    search,
    symbols,
)
from dashboards.chart import Figure
from dashboards.document import add_seal
from dashboards.figures import figures
from dashboards.gallery import Gallery, record_gallery
from dashboards.provenance import Provenance
from dashboards.run import Run, open_run
from orchestrator.inspection import status
from orchestrator.inspection.disclosure import Disclosure
from orchestrator.inspection.pages import PAGE, PRIVATE_PAGE
from orchestrator.inspection.search_results import QUESTION
from orchestrator.quantities import format_count
from orchestrator.store import Store, stored_keys
from orchestrator.store.failure_log import FailureLog
from tasks.contract.schemas import SUMMARY

FAILURES = 20  # failures shown
STRATEGIES = 4  # environments named in a notice
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Failure:
    """A failed job. If `tolerated` is set, tables were computed without it."""

    key: str
    task: str
    error: str
    traceback: str
    tolerated: bool


def draw(store: Store, run: str, folder: Path, show_images: bool) -> None:
    """Write a page with the run's current results, and write the figures to separate files.

    With `show_images`, write a second page that includes the user's own images and burnt-in words. Raises OSError if a
    file cannot be written.
    """
    public_run = open_run(store, run)
    public_figures = figures(public_run)
    _write_figures(folder / "figures", public_figures)
    public = _page(public_run, public_figures, gallery(public_run, False))
    document.write(folder / PAGE, add_seal(public, [public_run], PAGE))
    if show_images:
        private_run = open_run(store, run, Disclosure(words=True))
        private = _page(private_run, figures(private_run), gallery(private_run, True))
        if private != public:
            document.write(folder / PRIVATE_PAGE, add_seal(private, [private_run], PRIVATE_PAGE))


def _page(run: Run, run_figures: list[Figure], run_gallery: Gallery | None) -> str:
    opening_strip = None
    if run_gallery is not None:
        opening_strip = run_gallery.opening_strip
    context = _context(run, run_figures, opening_strip is not None)
    return document.render("run.html", gallery=run_gallery, opening_strip=opening_strip, **context)


def gallery(run: Run, show_images: bool) -> Gallery | None:
    """Return the run's images or records. Returns None if its audit has none, or there are no results to show.

    Images from embedded data are always shown; the user's own images and all records only with `show_images`. For an
    audit of records without its own gallery, the records under audit are shown.
    """
    if run.cells:
        return None
    module = audits.find(run.audit)
    if module is None or not hasattr(module, "gallery"):
        return record_gallery(run, show_images)
    pictures: Gallery | None = module.gallery(run, show_images)
    return pictures


def _write_figures(folder: Path, run_figures: list[Figure]) -> None:
    """Write the figures as files and delete the figures of an earlier page that no longer exist."""
    folder.mkdir(parents=True, exist_ok=True)
    for figure in run_figures:
        document.write(folder / f"{figure.name}.svg", figure.svg + "\n")
    for path in folder.glob("*.svg"):
        if path.stem not in {figure.name for figure in run_figures}:
            path.unlink()


def _context(run: Run, run_figures: list[Figure], has_strip: bool) -> dict[str, Any]:
    """Return the template variables of the page."""
    run_provenance = provenance.gather(run.store, sorted(_planned_keys(run) & stored_keys(run.store)))
    starts = [] if run.search is not None else provenance.starts(run)  # a search has one per trial
    shown_sheets, unshown = html_table.sheets(run)
    conflicting = sum(start.conflicting for start in starts)
    notices = [*_progress_notices(run), *_code_notices(run), *_notices(run_provenance), *_conflicts(conflicting)]
    answer_context = _answer_context(run, len(notices), has_strip)
    return {
        "run": run,
        "status": run.status,
        "notices": notices,
        "searched": run.search,
        "several": bool(run.cells) and run.search is None,
        "question": _question(run, answer_context["certificate"]),
        **answer_context,
        "figures": [(figure, document.inline(figure)) for figure in run_figures],
        "sheets": shown_sheets,
        "unshown": unshown,
        "failures": list(failures(run)),
        "failures_in_all": len(run.status.failures),
        "trial_of": [(trial, search.page_of(run, trial.search)) for trial in run.trial_of],
        "settings": configuration.settings(run),
        "command": configuration.command(run) if run.search is None else search.command(run.search),
        "documentation": configuration.documentation(run),
        "tasks": Counter(_tasks(run).values()),
        "starts": starts,
        "made": run_provenance,
    }


def _question(run: Run, certificate_texts: Mapping[str, Sequence[str]] | None) -> str:
    """Return the heading of the page: the question of the certificate, or of the audit if there is no answer yet."""
    if certificate_texts is not None:
        return certificate_texts["question"][0]
    if run.search is not None:
        return QUESTION
    return run.question or run.audit


def _answer_context(run: Run, notices: int, has_strip: bool) -> dict[str, Any]:
    """Return the template variables for the certificate, which is below `notices` notices, and for its evidence."""
    if run.search is not None:
        of_search = {**search.certificate_context(run, run.search), **search.context(run, run.search)}
        return {**of_search, "symbols": [], "summary": [], "counts": "", "telling": []}
    return {
        **certificate.context(run, notices, has_strip),
        "symbols": symbols.explain_symbols(run),
        **_results_context(run),
    }


def _results_context(run: Run) -> dict[str, Any]:
    """Return the template variables for the summary and for a sweep's cells."""
    return {
        "evidence": evidence(run),
        "summary": summary(run),
        "summed": run.table("summary").num_columns > 0,
        "columns": _columns(run.summary),
        "evidence_columns": _columns(evidence(run)),
        "answers": [(cell, cell.headline and cell.headline.row) for cell in run.cells],
        "telling": configuration.distinguishing_fields(run),
        "counts": _counts(run),
        "together": html_table.sheet("summary", run.table("summary")) if run.cells else None,
    }


def _tasks(run: Run) -> dict[str, str]:
    """Map each planned key of the run, or of a sweep's cells, to its task."""
    tasks: dict[str, str] = {}
    for part in run.cells or (run,):
        tasks |= part.journal.tasks()
    return tasks


def _planned_keys(run: Run) -> set[str]:
    """Return the planned keys, plus the keys of tables computed without tolerated jobs, which differ."""
    all_keys = set(_tasks(run))
    for part in run.cells or (run,):
        for keys in status.roots(part.journal).values():
            all_keys.update(keys)
    return all_keys


def evidence(run: Run) -> list[Row]:
    """Return the summary rows that decide the verdict, most important first."""
    rows = {(row["metric"], row["setting"] or "{}"): row for row in run.summary}
    deciding_rows = run.verdict.rows if run.verdict else ()
    return [rows[name] for name in deciding_rows if name in rows]


def summary(run: Run) -> list[tuple[bool, Row]]:
    """Return the summary rows, deciding rows first, each with a flag that is true if it decides the verdict."""
    carrying = evidence(run)
    return [*((True, row) for row in carrying), *((False, row) for row in run.summary if row not in carrying)]


def failures(run: Run, selection: slice = slice(FAILURES)) -> Iterator[Failure]:
    """Yield the jobs that failed in the last start and the error of each, in order of failure.

    An error message may quote private fields, so a run with private fields shows only the error type.
    """
    tolerated = _tolerated_keys(run)
    for key, task, error in run.status.failures[selection]:
        if run.withholds:
            yield Failure(
                key, task, f"{_kind(error)}; `engram runs status {run.name}` prints the message", "", key in tolerated
            )
        else:
            log = FailureLog.from_text(run.store.failure(key) or "")
            yield Failure(key, task, error, log.traceback, key in tolerated)


def _kind(error: str) -> str:
    """Return the error type with a note that the message is withheld."""
    name = error.partition(":")[0]
    return f"{name if name.isidentifier() else 'An error'}, whose message may contain private data"


def _columns(rows: Sequence[Row]) -> list[str]:
    """Return the summary columns in which at least one of these rows has a value."""
    columns = []
    for name in SUMMARY.names:
        if any(row.get(name) is not None for row in rows):
            columns.append(name)
    return columns


def _counts(run: Run) -> str:
    """Count the sweep's cells, or the run's targets, by answer."""
    if run.cells:
        answers = []
        for cell in run.cells:
            answers.append(cell.verdict.answer if cell.verdict else "without an answer")
    else:
        answers = []
        if run.certificate:
            answers = [finding.answer for finding in run.certificate.findings]
    of_all = ", ".join(f"{count} {answer}" for answer, count in Counter(answers).items())
    return f"{format_count(len(answers), 'run' if run.cells else 'target')}: {of_all}."


def _progress_notices(run: Run) -> Iterator[str]:
    """Yield notices about jobs that failed or have not been computed yet."""
    if run.search is not None:
        notice = search.notice(run.search, run.status.state)
        yield from [notice] if notice else []
        return
    if run.status.state == "decided" and run.status.note:
        yield f"{run.status.note[0].upper()}{run.status.note[1:]}."
    planned_count = run.status.jobs["planned"]
    stored_count = run.status.jobs["stored"]
    failed = run.status.jobs["failed"]
    absent = planned_count - stored_count - failed
    if failed and _tolerated_keys(run):
        were = "were"
        if failed == 1:
            were = "was"
        yield f"{format_count(failed, 'job')} failed and {were} tolerated: the results below do not include them."
    elif failed:
        line = f"{format_count(failed, 'job')} failed"
        if absent:
            line += f", and {absent} that need them could not be computed"
        yield f"{line}. See Failed jobs."
    if absent and not failed and not run.status.finished:
        running = run.status.state == "running"
        if running:
            next_step = "The run was active when this page was drawn"
        else:
            next_step = f"`engram resume {run.name}` continues it"
        yield (
            f"This run is not finished: {absent} of {format_count(planned_count, 'job')} are not computed yet. "
            f"This page shows preliminary results. {next_step}."
        )


def _tolerated_keys(run: Run) -> set[str]:
    """Return the keys of failed jobs that the last start tolerated."""
    keys: set[str] = set()
    for part in run.cells or (run,):
        for event in part.journal.last_start(("tolerated",)):
            keys.update(event["keys"])
    return keys


def _code_notices(run: Run) -> Iterator[str]:
    """Yield notices about accepted changes to the user's code, after which the run mixes results of both versions."""
    for line in run.status.accepted:
        yield f"Code changed within this run. {line[0].upper()}{line[1:]}."


def _notices(run_provenance: Provenance) -> Iterator[str]:
    """Yield notices about how results were computed, if this affects their interpretation."""
    if len(run_provenance.ways) > 1:
        parts = []
        for way in run_provenance.ways[:STRATEGIES]:
            fields = ", ".join(f"{name} {way.fields.get(name, 'not recorded')}" for name in run_provenance.differing)
            parts.append(f"{format_count(way.jobs, 'job')} with {fields}")
        if len(run_provenance.ways) > STRATEGIES:
            parts.append(f"{len(run_provenance.ways) - STRATEGIES} more, listed under Environment")
        yield f"These results were computed in {len(run_provenance.ways)} ways: {'; '.join(parts)}."
    if run_provenance.unread:
        unread = format_count(run_provenance.unread, "stored result")
        yield f"{unread} cannot be read; `engram store verify` lists them."


def _conflicts(conflicting: int) -> Iterator[str]:
    if conflicting:
        yield (
            f"{format_count(conflicting, 'result')} differed when computed a second time. This page uses the first; "
            "the others are in the store's conflicts folder."
        )
