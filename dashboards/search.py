"""What the page of a search shows beside its figure: the certificate, the trials, and what was asked."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dashboards import certificate as certificates
from dashboards import sheet
from dashboards.run import Run
from dashboards.signs import badge
from orchestrator.inspection import pages, search_results
from orchestrator.inspection.search_results import FRESH, SEARCHED, START, TRIALS, Row, SearchResults
from orchestrator.searches import recommendation

# Of how a search proceeds, in the words of `engram search --help`.
SETTINGS: Mapping[str, str] = {
    "sampler": "who proposes trials",
    "sampler_seed": "seed of the sampler",
    "trials": "trials",
    "rungs": "epochs after which only the most useful go on",
    "keep_one_in": "of how many trials one goes on",
    "give_up": "utility that may be lost",
    "concurrent": "trials at one time",
}


@dataclass(frozen=True)
class Trial:
    """A trial as the page shows it. `page` is the path of its run's page from this one; empty if it is not drawn."""

    row: Row
    name: str
    choices: Mapping[str, str]
    marks: tuple[str, ...]
    memorization: Mapping[str, Any] | None
    utility: Mapping[str, Any] | None
    page: str


def page_of(run: Run, other: str) -> str:
    """The path of another run's page from this run's; empty if it is not drawn."""
    there = bool(other) and pages.page(run.journal.sibling(other).folder) is not None
    return f"../{other}/{pages.PAGE}" if there else ""


def context(run: Run, search: SearchResults) -> dict[str, Any]:
    """The template's variables."""
    settings = search.settings
    chosen = {name for row in search.trials for name in recommendation.choices(row["setting"])}
    rungs = bool(settings["rungs"])
    shown = {name: settings[name] for name in SETTINGS if rungs or name not in ("rungs", "keep_one_in")}
    return {
        "search": search,
        "objectives": run.objectives,
        "fields": [name for name in settings["over"] if name in chosen],
        "trials": [_trial(run, search, row) for row in search.trials if row["part"] == SEARCHED],
        "again": [_trial(run, search, row) for row in search.trials if row["part"] == FRESH],
        "over": settings["over"],
        "how_it_proceeds": [(SETTINGS[name], _format_value(value)) for name, value in shown.items()],
        "noted": any(row["note"] for row in search.trials),
    }


def command(search: SearchResults) -> str:
    """The command that makes the search, and continues it."""
    return shlex.join(recommendation.command(search))


def certificate_context(run: Run, search: SearchResults) -> dict[str, Any]:
    """The template's variables of the certificate."""
    told = None if run.objectives is None else recommendation.certificate(search, run.objectives)
    audited = audited_rows(run, search)
    rows = {"audited": audited, "as_table": False, "unlisted": "", "unnamed": 0, "zoom": 1}
    if told is None or search.answer is None:
        return {"certificate": None, "findings": [], **rows}
    (finding,) = told.findings
    sign = badge(finding.answer, recommendation.meaning(search.answer))
    texts = {name: [getattr(told, name)] for name in ("asked", "rule", "error", "beyond")}
    texts |= {"controls": [run.controls] if run.controls else [], "steps": [*told.steps]}
    height = sheet.remaining_height(1, texts.values(), run.details) - sheet.FINDING - sheet.ROW * len(audited)
    found = [(run, certificates.present_finding(finding, sign))]
    return {"certificate": texts, "findings": found, **rows, "zoom": sheet.zoom_factor(height)}


def audited_rows(run: Run, search: SearchResults) -> list[certificates.AuditedRow]:
    """What was audited, the table of trials, and the summaries of the runs on which the answer rests."""
    winner = None if search.answer is None else search.answer.winner
    numbers = [START] if winner is None else [START, winner]
    found = [search.trial(number, part) for part in (SEARCHED, FRESH) for number in numbers]
    wanted = {(row["run"], "summary") for row in found if row is not None} | {(run.name, TRIALS)}
    return certificates.select_audited_rows(run, lambda table: (table.run, table.name) in wanted)


def notice(search: SearchResults, state: str) -> str:
    """That the search is not finished, and how it goes on; empty if it is."""
    if search.ended:
        return ""
    further = f"`engram search --resume {search.name}` goes on"
    further = "it was running when this page was drawn" if state == "running" else further
    return f"This search is not finished: {search.made} of {search.planned} trials are made; {further}."


def _trial(run: Run, search: SearchResults, row: Row) -> Trial:
    winner = None if search.answer is None else search.answer.winner
    marks = {"front": row["front"], "winner": row["part"] == SEARCHED and row["trial"] == winner}
    number = "start" if row["trial"] == START else f"{row['trial']}"
    return Trial(
        row=row,
        name=f"{number}, fresh seeds" if row["part"] == FRESH else number,
        choices=recommendation.choices(row["setting"]),
        marks=tuple(name for name, held in marks.items() if held),
        memorization=search_results.value(row, "memorization"),
        utility=search_results.value(row, "utility"),
        page=page_of(run, row["run"]),
    )


def _format_value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
