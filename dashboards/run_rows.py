"""The runs of a store as rows of a list: state, effect, answer and a small drawing of the effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup, escape

from dashboards import configuration, signs
from dashboards.run import Run, open_run
from orchestrator import headlines
from orchestrator.errors import EngramError
from orchestrator.inspection import answers, results
from orchestrator.inspection.disclosure import Disclosure
from orchestrator.inspection.pages import PAGE
from orchestrator.inspection.status import Status
from orchestrator.quantities import format_count
from orchestrator.run_folder.cancellation import CANCELLED
from orchestrator.run_folder.journal import Journal
from orchestrator.store import Store
from tasks.contract.objectives import Headline

Row = Mapping[str, Any]
# A run of another version, or of a changed audit, may have a configuration or summary that this version cannot judge.
UNJUDGED = (EngramError, KeyError, TypeError, ValueError)


@dataclass(frozen=True)
class RunRow:
    """One run of a list. `numbers` has its headline, or those of its cells; `report` is the address of its report."""

    status: Status
    answer: str
    badge: Markup
    effect: str
    numbers: tuple[Headline, ...]
    report: str | None
    command: str | None = None
    part_of: str = ""  # the sweep or search that contains this run

    @property
    def strength(self) -> float | None:
        """The largest distance of an effect from its null value. Lists are sorted by it."""
        return max((headline.strength for headline in self.numbers), default=None)

    @property
    def remark(self) -> str:
        """Why the run ended before its plan was complete. Reasons that may name folders or people are omitted."""
        if self.status.state == "decided":
            return self.status.note
        if self.status.note.startswith(CANCELLED):
            return "cancelled"
        return ""

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(headline.row for headline in self.numbers)


def read_rows(store: Store, statuses: Iterable[Status]) -> list[RunRow]:
    """Return a row for each of these runs, in their order, with its command without private parts."""
    runs: dict[str, RunRow] = {}
    order = []
    wholes = []
    for run_status in statuses:
        order.append(run_status.run)
        if run_status.cells:
            wholes.append(run_status)
        else:
            runs[run_status.run] = _read_row(store, run_status)
    part_of = {}
    for whole in wholes:
        for cell in whole.cells:
            part_of[cell] = whole.run
        runs[whole.run] = _read_whole(store, whole, [runs[cell] for cell in whole.cells if cell in runs])
    rows = []
    for name in order:
        row = runs[name]
        rows.append(replace(row, part_of=part_of.get(name, "")))
    return rows


def _read_row(store: Store, run_status: Status) -> RunRow:
    answer, badge, effect, command = "", Markup(""), "", None
    numbers: tuple[Headline, ...] = ()
    if run_status.state != "unreadable":
        run = Run(Journal(store.folder("runs", run_status.run)), store)
        with suppress(*UNJUDGED):
            if run.verdict is not None and run.meaning is not None:
                answer = run.verdict.answer
                badge = signs.badge(answer, run.meaning)
        with suppress(*UNJUDGED):
            if run.headline is not None:
                numbers = (run.headline,)
                effect = headlines.format_headline(run.headline)
        with suppress(*UNJUDGED):
            command = configuration.command(open_run(store, run_status.run, Disclosure()))
    return RunRow(run_status, answer, badge, effect, numbers, _report(run_status), command)


def _read_whole(store: Store, run_status: Status, cells: Sequence[RunRow]) -> RunRow:
    """Return the row of a sweep from those of its cells, or of a search, whose answer is its recommendation."""
    numbers: tuple[Headline, ...] = tuple(headline for cell in cells for headline in cell.numbers)
    effect = headlines.format_range(numbers)
    answer = ""
    with suppress(*UNJUDGED):
        journal = Journal(store.folder("runs", run_status.run))
        answer = results.short_answer(journal, store)
        if run_status.search is not None:
            effect = answers.effect(journal, store)
    return RunRow(run_status, answer, escape(answer), effect, numbers, _report(run_status))


def _report(run_status: Status) -> str | None:
    """Return the address of the run's report relative to the store. Returns None if it has not been drawn."""
    if run_status.page is None:
        return None
    return f"runs/{run_status.run}/{PAGE}"


def draw_effects(rows: Sequence[RunRow]) -> dict[str, Markup]:
    """Return the drawing of each run's effect: an estimate with its interval, or one mark for each cell of a sweep.

    Single runs with the same metric and unit share a scale.
    """
    scales: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if not row.status.cells:
            for headline in row.numbers:
                scales.setdefault((headline.name, headline.unit), []).append(headline.row)
    ends = {name: signs.extreme_rows(of_scale) for name, of_scale in scales.items()}
    drawings = {}
    for row in rows:
        if row.status.cells:
            drawings[row.status.run] = signs.sparkline(row.rows)
        elif row.numbers:
            (headline,) = row.numbers
            drawings[row.status.run] = signs.glyph(headline.row, neighbours=ends[headline.name, headline.unit])
        else:
            drawings[row.status.run] = Markup("")
    return drawings


def count_words(rows: Sequence[RunRow]) -> str:
    """Count the runs by answer and, without an answer, by state. The cells of a sweep count, but not the sweep."""
    counts: Counter[str] = Counter()
    for row in rows:
        if not row.status.cells:
            counts[row.answer or f"{row.status.state} without an answer"] += 1
    of_all = ", ".join(f"{count} {words}" for words, count in counts.most_common())
    return f"{format_count(counts.total(), 'run')}: {of_all}" if counts else "no runs"
