"""The first page: what a person can act on, and by digest what was audited and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from markupsafe import Markup

from dashboards import configuration, sheet
from dashboards.number_line import Entry, legend_entries, number_line
from dashboards.run import Run
from dashboards.signs import badge
from orchestrator.inspection import page_seal
from orchestrator.inspection.page_seal import AuditedItem, ResultTable
from orchestrator.quantities import format_count, format_size
from tasks.contract.certificate import Certificate, Finding

BY_THEMSELVES = 3  # findings that are shown one by one; more stand in a table
TONES = ("accused", "open", "cleared")  # in this order where not all are shown
MASKED = (
    "What stands in angle brackets is masked here. Whoever ran the audit holds it, in the folder of the run, and can "
    "write a page that shows it."
)


@dataclass(frozen=True)
class ShownFinding:
    """A finding as the page shows it: its badge, and its number with what the marks stand for."""

    finding: Finding
    badge: Markup
    line: Markup
    legend: tuple[Entry, ...]


@dataclass(frozen=True)
class AuditedRow:
    """A row of what was audited: all as text."""

    what: str
    name: str
    digest: str
    size: str
    date: str


def findings(run: Run) -> list[ShownFinding]:
    """The certificate's findings; none where there is no answer."""
    there = () if run.certificate is None else run.certificate.findings
    return [present_finding(finding, badge(finding.answer, run.meaning_of(finding.answer))) for finding in there]


def audited_rows(run: Run) -> tuple[list[AuditedRow], dict[str, AuditedRow]]:
    """What was audited, a row each, and by its run the summary of what came of it, or those of a sweep's cells."""
    tables = page_seal.tables(run.journal, run.store)
    results = [table for table in tables if table.stored and table.name == "summary"]
    things = [_thing_row(thing) for thing in page_seal.audited_items(run.journal, run.store)]
    return things, {table.run: _table_row(table, bool(run.cells)) for table in results}


def select_audited_rows(run: Run, wanted: Callable[[ResultTable], bool]) -> list[AuditedRow]:
    """What was audited, and those tables of what came of it that are `wanted`, a row each."""
    tables = [table for table in page_seal.tables(run.journal, run.store) if wanted(table)]
    things = [_thing_row(thing) for thing in page_seal.audited_items(run.journal, run.store)]
    return [*things, *(_table_row(table, bool(run.cells)) for table in tables)]


def present_finding(finding: Finding, sign: Markup) -> ShownFinding:
    """A finding with the badge of its answer."""
    drawn = Markup("") if finding.line is None else number_line(finding.line)
    legend = () if finding.line is None else tuple(legend_entries(finding.line))
    return ShownFinding(finding, sign, drawn, legend)


def _thing_row(thing: AuditedItem) -> AuditedRow:
    if thing.embedded:  # its file's date is that of the installation
        return AuditedRow(thing.what, thing.name, thing.digest, "embedded: comes with the program", "")
    size = "" if thing.size is None else format_size(thing.size)
    return AuditedRow(thing.what, thing.name, thing.digest, size, _day(thing.modified))


def _table_row(table: ResultTable, of_sweep: bool) -> AuditedRow:
    name = f"{table.name} of {table.run}" if of_sweep else table.name
    parts = format_count(table.stored, "result")
    size = parts if table.stored == table.planned else f"{table.stored} of {format_count(table.planned, 'result')}"
    return AuditedRow("result", name, table.digest, size, _day(table.finished))


def _day(stamp: str | None) -> str:
    """The day of a time stamp; empty where there is none."""
    try:
        return "" if not stamp else datetime.fromisoformat(stamp).date().isoformat()
    except ValueError:
        return ""


def context(run: Run, notices: int = 0) -> dict[str, Any]:
    """The template's variables: of the run, or of each cell of a sweep, as far as one sheet of paper holds them.

    So many `notices` stand above. What is left out is counted.
    """
    told = _certificate_texts(run)
    every = [(each, finding) for each in run.cells or (run,) for finding in findings(each)]
    things, results = audited_rows(run)
    as_table = bool(run.cells) or len(every) > BY_THEMSELVES
    left = sheet.remaining_height(notices, told.values(), run.details)
    fewest = min(len(things), sheet.THINGS)
    fit = _fitting_findings(run, every, left - fewest * sheet.ROW) if as_table else range(len(every))
    found = [every[at] for at in fit]
    by_themselves = sum(sheet.finding_height(shown.finding.sentence) for _, shown in found)
    few = fewest if as_table else sheet.row_count(left - by_themselves, fewest)
    of_shown = {cell.name for cell, _ in found} if found else {*list(results)[: sheet.row_count(left, 1)]}
    came = [row for of, row in results.items() if not run.cells or of in of_shown]
    filled: float = (len(things[:few]) + len(came)) * sheet.ROW - (0 if as_table else sheet.TABLE)
    filled += sum(_heights(run, [every[at] for at in fit])) if as_table else by_themselves
    return {
        "certificate": told if any(each.certificate for each in run.cells or (run,)) else None,
        "findings": found,
        "as_table": as_table,
        "unlisted": _describe_left_out(
            [left_out for at, (_, left_out) in enumerate(every) if at not in fit], bool(run.cells)
        ),
        "audited": [*things[:few], *came],
        "zoom": sheet.zoom_factor(left - filled),
        "unnamed": max(0, len(things) - few) + len(results) - len(came),
    }


def _certificate_texts(run: Run) -> dict[str, list[str]]:
    """The texts of the certificate by name, or of those of the cells, each once."""
    certificates = [each.certificate for each in run.cells or (run,)]
    there = [certificate for certificate in certificates if certificate is not None]
    told = {
        name: _distinct_texts(getattr(each, name) for each in there) for name in ("asked", "rule", "error", "beyond")
    }
    if len(told["asked"]) > 1:
        told["asked"] = _distinct_texts([run.question, "Of each cell of the sweep, by what was varied."])
    if len(told["beyond"]) > 1:
        told["beyond"] = _distinct_texts(
            [_common_sentences(told["beyond"]), "What else an answer does not say is on its cell’s own page."]
        )
    if run.withholds and any("<" in text for text in _texts(there)):
        told["asked"].append(MASKED)
    told["controls"] = _distinct_texts([run.controls] if there else [])
    return {**told, "steps": _distinct_texts(step for each in there for step in each.steps)}


def _texts(certificates: Iterable[Certificate]) -> Iterator[str]:
    """Every question, sentence and target of these certificates."""
    for each in certificates:
        yield each.asked
        for finding in each.findings:
            yield from (finding.sentence, finding.target)


def _fitting_findings(run: Run, every: Sequence[tuple[Run, ShownFinding]], left: float) -> Sequence[int]:
    """Which findings in a table a sheet holds; of more than that those that accuse first, then the open ones."""
    result = sheet.ROW if run.cells else 0
    heights = [height + result for height in _heights(run, every)]
    if sum(heights) <= left - (0 if run.cells else sheet.ROW):
        return range(len(every))
    order = sorted(range(len(every)), key=lambda at: TONES.index(_tone(*every[at])))
    return sorted(sheet.fitting_items(order, [heights[at] for at in order], left - sheet.ROW))


def _heights(run: Run, every: Sequence[tuple[Run, ShownFinding]]) -> list[float]:
    """Of each of these findings its row in a table."""
    columns = len(configuration.distinguishing_fields(run)) if run.cells else 0
    columns += 1 + any(shown.finding.target for _, shown in every)
    return [sheet.row_height(shown.finding.sentence, columns) for _, shown in every]


def _tone(run: Run, shown: ShownFinding) -> str:
    return run.meaning_of(shown.finding.answer).tone


def _describe_left_out(left_out: Sequence[ShownFinding], of_sweep: bool) -> str:
    """`18 more cells: 15 not detected, 3 undecided`; empty where none is left out."""
    if not left_out:
        return ""
    counts = Counter(shown.finding.answer for shown in left_out)
    by_answer = ", ".join(f"{count} {answer}" for answer, count in counts.items())
    return f"{format_count(len(left_out), 'more cell' if of_sweep else 'more target')}: {by_answer}"


def _common_sentences(texts: Sequence[str]) -> str:
    """The sentences that all of these texts have, in the order of the first."""
    by_text = [text.removesuffix(".").split(". ") for text in texts]
    shared = [each for each in by_text[0] if all(each in sentences for sentences in by_text)]
    return "".join(f"{each}. " for each in shared).strip()


def _distinct_texts(texts: Iterable[str]) -> list[str]:
    """The distinct ones of these texts, without empty ones and the marks of code."""
    return [text for text in dict.fromkeys(text.replace("`", "") for text in texts) if text]
