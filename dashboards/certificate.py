"""The first page: what a person can act on, and by digest what was audited and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from markupsafe import Markup

from dashboards.number_line import Entry, entries, number_line
from dashboards.run import Run
from dashboards.signs import badge
from orchestrator.counted import counted
from orchestrator.inspection import audited
from orchestrator.inspection.audited import Audited, ResultTable
from tasks.certificate import Finding

UNITS = ("bytes", "kB", "MB", "GB", "TB")


@dataclass(frozen=True)
class Shown:
    """A finding as the page shows it: its badge, and its number with what the marks stand for."""

    finding: Finding
    badge: Markup
    line: Markup
    legend: tuple[Entry, ...]


@dataclass(frozen=True)
class Named:
    """A row of what was audited: all as text."""

    what: str
    name: str
    digest: str
    size: str
    date: str


def findings(run: Run) -> list[Shown]:
    """The certificate's findings; none where there is no answer."""
    there = () if run.certificate is None else run.certificate.findings
    return [shown(finding, badge(finding.answer, run.meaning_of(finding.answer))) for finding in there]


def named(run: Run, wanted: Callable[[ResultTable], bool] = lambda table: table.name == "summary") -> list[Named]:
    """What was audited, and the tables that are `wanted` of what came of it, or of a sweep's cells: a row each."""
    tables = audited.tables(run.journal, run.store)
    results = [table for table in tables if table.stored and wanted(table)]
    return [
        *map(_thing, audited.audited(run.journal, run.store)),
        *(_table(table, bool(run.cells)) for table in results),
    ]


def shown(finding: Finding, sign: Markup) -> Shown:
    """A finding with the badge of its answer."""
    drawn = Markup("") if finding.line is None else number_line(finding.line)
    legend = () if finding.line is None else tuple(entries(finding.line))
    return Shown(finding, sign, drawn, legend)


def _thing(thing: Audited) -> Named:
    if thing.embedded:  # its file's date is that of the installation
        return Named(thing.what, thing.name, thing.digest, "embedded: comes with the program", "")
    size = "" if thing.size is None else _bytes(thing.size)
    return Named(thing.what, thing.name, thing.digest, size, _day(thing.modified))


def _table(table: ResultTable, of_sweep: bool) -> Named:
    name = f"{table.name} of {table.run}" if of_sweep else table.name
    parts = counted(table.stored, "result")
    size = parts if table.stored == table.planned else f"{table.stored} of {counted(table.planned, 'result')}"
    return Named("result", name, table.digest, size, _day(table.finished))


def _bytes(size: int) -> str:
    """A size in bytes, to three digits in its unit."""
    power = 0
    value = float(size)
    while value >= 1000 and power < len(UNITS) - 1:
        value, power = value / 1000, power + 1
    return f"{size:,} bytes" if not power else f"{value:.3g} {UNITS[power]}"


def _day(stamp: str | None) -> str:
    """The day of a time stamp; empty where there is none."""
    try:
        return "" if not stamp else datetime.fromisoformat(stamp).date().isoformat()
    except ValueError:
        return ""


def context(run: Run) -> dict[str, Any]:
    """The template's variables: of the run, or of each cell of a sweep."""
    certified = [(each, each.certificate) for each in run.cells or (run,)]
    there = [certificate for _, certificate in certified if certificate is not None]
    told = {name: _once(getattr(each, name) for each in there) for name in ("asked", "rule", "error", "beyond")}
    if len(told["asked"]) > 1:
        told["asked"] = _once([run.question, "Of each cell of the sweep, by what was varied."])
    if len(told["beyond"]) > 1:
        told["beyond"] = _once([_shared(told["beyond"]), "What else an answer does not say is on its cell’s own page."])
    return {
        "certificate": {**told, "steps": _once(step for each in there for step in each.steps)} if there else None,
        "findings": [(each, finding) for each, _ in certified for finding in findings(each)],
        "audited": named(run),
    }


def _shared(texts: Sequence[str]) -> str:
    """The sentences that all of these texts have, in the order of the first."""
    by_text = [text.removesuffix(".").split(". ") for text in texts]
    shared = [each for each in by_text[0] if all(each in sentences for sentences in by_text)]
    return "".join(f"{each}. " for each in shared).strip()


def _once(texts: Iterable[str]) -> list[str]:
    """The distinct ones of these texts, without empty ones and the marks of code."""
    return [text for text in dict.fromkeys(text.replace("`", "") for text in texts) if text]
