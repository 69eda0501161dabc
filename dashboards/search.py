"""Template variables for a search page: certificate, trials and settings."""

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

# Search settings, described as in `engram search --help`.
SETTINGS: Mapping[str, str] = {
    "sampler": "method that proposes trials",
    "sampler_seed": "seed of the sampler",
    "trials": "trials",
    "rungs": "epochs after which only the most useful trials continue",
    "keep_one_in": "number of trials of which one continues",
    "give_up": "largest acceptable loss of utility",
    "concurrent": "concurrent trials",
}


@dataclass(frozen=True)
class Trial:
    """One row in the table of trials. `page` is the relative path of the trial's page, or empty if there is none."""

    row: Row
    name: str
    choices: Mapping[str, str]
    marks: tuple[str, ...]
    memorization: Mapping[str, Any] | None
    utility: Mapping[str, Any] | None
    page: str


def page_of(run: Run, other_run: str) -> str:
    """Return the relative path of another run's page. Returns an empty string if it has no page."""
    has_page = bool(other_run) and pages.page(run.journal.sibling(other_run).folder) is not None
    if has_page:
        return f"../{other_run}/{pages.PAGE}"
    return ""


def context(run: Run, search: SearchResults) -> dict[str, Any]:
    """Return the template variables for the trials and settings."""
    settings = search.settings
    varied_names = set()
    for row in search.trials:
        for name in recommendation.choices(row["setting"]):
            varied_names.add(name)
    rungs = bool(settings["rungs"])
    shown_settings = {}
    for name in SETTINGS:
        if rungs or name not in ("rungs", "keep_one_in"):
            shown_settings[name] = settings[name]
    return {
        "search": search,
        "objectives": run.objectives,
        "fields": [name for name in settings["over"] if name in varied_names],
        "trials": [_trial(run, search, row) for row in search.trials if row["part"] == SEARCHED],
        "again": [_trial(run, search, row) for row in search.trials if row["part"] == FRESH],
        "over": settings["over"],
        "how_it_proceeds": [(SETTINGS[name], _format_value(value)) for name, value in shown_settings.items()],
        "noted": any(row["note"] for row in search.trials),
    }


def command(search: SearchResults) -> str:
    """Return the command that starts or continues the search."""
    return shlex.join(recommendation.command(search))


def certificate_context(run: Run, search: SearchResults) -> dict[str, Any]:
    """Return the template variables for the certificate."""
    certificate = None
    if run.objectives is not None:
        certificate = recommendation.certificate(search, run.objectives)
    audited = audited_rows(run, search)
    rows: dict[str, Any] = {"audited": audited, "as_table": False, "unlisted": "", "unnamed": 0, "zoom": 1, "rules": []}
    rows["prints_strip"] = False
    if certificate is None or search.answer is None:
        return {"certificate": None, "findings": [], **rows}
    (finding,) = certificate.findings
    meaning = recommendation.meaning(search.answer)
    sign = badge(finding.answer, meaning)
    texts = {
        "examined": [certificate.examined] if certificate.examined else [],
        "question": certificates.split_question([certificate.asked]),
        "meaning": [certificates.define_answer(finding.answer, meaning)],
        "reliability": certificates.state_reliability([certificate]),
        "conditions": certificates.list_conditions([certificate]),
        "limits": [certificate.beyond],
        "steps": certificates.list_steps(run, [certificate]),
        "rule": [certificate.rule],
        "other_errors": [certificate.other_errors] if certificate.other_errors else [],
        "controls": [run.controls] if run.controls else [],
    }
    first_page = [texts[name] for name in certificates.FIRST_PAGE]
    rows["rules"] = [certificates.split_rule(certificate.rule)]
    height = sheet.remaining_height(1, first_page, run.details) - sheet.FINDING - sheet.ROW * len(audited) - sheet.NOTE
    findings = [(run, certificates.present_finding(finding, sign))]
    return {
        "certificate": texts,
        "findings": findings,
        **rows,
        "missing_details": certificates.name_missing_details(run.details),
        "zoom": sheet.zoom_factor(height),
    }


def audited_rows(run: Run, search: SearchResults) -> list[certificates.AuditedRow]:
    """Return the audited items, the table of trials, and the summaries of the runs that decide the answer."""
    if search.answer is None:
        winner = None
    else:
        winner = search.answer.winner
    if winner is None:
        numbers = [START]
    else:
        numbers = [START, winner]
    deciding_rows = []
    for part in (SEARCHED, FRESH):
        for number in numbers:
            deciding_rows.append(search.trial(number, part))
    table_names = {(row["run"], "summary") for row in deciding_rows if row is not None} | {(run.name, TRIALS)}
    return certificates.select_audited_rows(run, lambda table: (table.run, table.name) in table_names)


def notice(search: SearchResults, state: str) -> str:
    """Return a notice that the search is unfinished, with the command that continues it.

    Returns an empty string if the search is finished.
    """
    if search.ended:
        return ""
    next_step = f"`engram search --resume {search.name}` continues it"
    if state == "running":
        next_step = "The search was active when this page was drawn"
    return f"This search is not finished: {search.made} of {search.planned} trials are done. {next_step}."


def _trial(run: Run, search: SearchResults, row: Row) -> Trial:
    if search.answer is None:
        winner = None
    else:
        winner = search.answer.winner
    marks = {"front": row["front"], "winner": row["part"] == SEARCHED and row["trial"] == winner}
    if row["trial"] == START:
        number = "start"
    else:
        number = f"{row['trial']}"
    return Trial(
        row=row,
        name=f"{number}, fresh seeds" if row["part"] == FRESH else number,
        choices=recommendation.choices(row["setting"]),
        marks=tuple(name for name, is_set in marks.items() if is_set),
        memorization=search_results.value(row, "memorization"),
        utility=search_results.value(row, "utility"),
        page=page_of(run, row["run"]),
    )


def _format_value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)
