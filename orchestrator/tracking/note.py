"""The note of a run in Markdown: its answer in words with the supporting numbers, and the next commands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator import rounding
from orchestrator.errors import EngramError
from orchestrator.inspection import answers, pages, results, search_results
from orchestrator.inspection.search_results import SearchResults
from orchestrator.quantities import format_count
from orchestrator.run_folder.journal import Journal
from orchestrator.spec import audits
from orchestrator.store import Store

LONGEST = 7900  # characters; MLflow takes 8,000
FRONT = 20  # trials that are listed
HEAD = ("metric", "setting", "estimate", "95 % interval", "n", "null", "p")
STATES = {
    "running": "It is running.",
    "finished": "All of its jobs are done.",
    "failed": "Some of its jobs failed.",
    "interrupted": "It was interrupted.",
    "paused": "It has paused.",
}


def run_note(journal: Journal, store: Store, state: str, search: SearchResults | None = None) -> str:
    """The note of a run or sweep, or of a search, which is given, in this state, with the numbers stored so far."""
    if search is not None:
        return "\n\n".join([*_search(search), *_ways(journal, state, search_results.TRIALS)])[:LONGEST]
    about = journal.about()
    body = _cells(journal, store) if "cells" in about else _answer(journal, store)
    text = "\n\n".join([*_question(about["audit"]), *body, *_ways(journal, state, "summary")])
    return text if len(text) <= LONGEST else text[:LONGEST] + " ..."


def _question(audit: str) -> list[str]:
    try:
        return [f"*{audits.find(audit).question}*"]
    except EngramError:
        return []


def _answer(journal: Journal, store: Store) -> list[str]:
    rows = results.summary(journal, store).table.to_pylist()
    verdict = results.answer(journal, store)
    if verdict is None:
        return [_table(rows[:10])] if rows else []
    carrying = answers.supporting_rows(verdict, rows)
    table = [_table(carrying)] if carrying else []
    return [f"**{verdict.sentence}**", *table, *_effect(journal, store), verdict.limits_in_full]


def _effect(journal: Journal, store: Store) -> list[str]:
    """What the metric `effect` is."""
    row, unit = results.headline(journal, store), results.effect_unit(journal)
    return [f"The metric `effect` is {answers.row_name(row)}{f' (unit: {unit})' if unit else ''}."] if row else []


def _cells(journal: Journal, store: Store) -> list[str]:
    """A table with a line per cell: its distinguishing setting, its answer, and the supporting number."""
    lines = ["| varied | answer | estimate, 95 % interval | run |", "|---" * 4 + "|"]
    for cell in answers.cell_answers(journal, store):
        number = ""
        if cell.row is not None:
            estimate = rounding.format_row_value(cell.row, "estimate")
            ends = rounding.format_row_interval(cell.row)
            number = f"{answers.row_name(cell.row)}: {estimate} {ends}".rstrip()
        answer = cell.verdict.answer if cell.verdict else ""
        lines.append(f"| {_cell(cell.label)} | {answer} | {_cell(number)} | {cell.run} |")
    return ["\n".join(lines)]


def _search(search: SearchResults) -> list[str]:
    """What a search asks and recommends, and its front with the fresh audits."""
    told = answers.search_answer(search)
    said = [] if told is None else [f"**{told.sentence}**"]
    lines = ["| trial | choices | memorization | utility | run |", "|---" * 5 + "|"]
    shown = [row for row in search.trials if row["front"] or row["part"] == search_results.FRESH]
    for row in shown[:FRONT]:
        numbers = (search_results.value(row, name) for name in ("memorization", "utility"))
        texts = (
            f"{rounding.format_row_value(own, 'estimate')} {rounding.format_interval(own['low'], own['high'])}"
            if own
            else ""
            for own in numbers
        )
        lines.append(
            f"| {' | '.join(map(_cell, (row['trial'], search_results.trial_name(row), *texts, row['run'])))} |"
        )
    over = ", ".join(f"{name} from {domain}" for name, domain in search.settings["over"].items())
    question = f"*{search_results.QUESTION} {format_count(search.planned, 'trial')} over {over}.*"
    return [question, *said, "\n".join(lines), *([] if told is None else [told.limits])]


def _table(rows: Iterable[Mapping[str, Any]]) -> str:
    lines = [f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|"]
    for row in rows:
        n = "" if row["n"] is None else format_count(row["n"], row["unit"] or "")
        ends = rounding.format_row_interval(row)
        estimate, null = rounding.format_row_value(row, "estimate"), rounding.format_row_value(row, "null")
        cells = (
            row["metric"],
            rounding.format_setting(row["setting"]),
            estimate,
            ends,
            n,
            null,
            rounding.format_p_value(row["p_value"]),
        )
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    return "\n".join(lines)


def _cell(value: Any) -> str:
    """A text as a cell of a table in Markdown."""
    return "" if value is None else str(value).replace("|", "\\|").replace("\n", " ")


def _ways(journal: Journal, state: str, table: str) -> list[str]:
    """The state, where to find the results, first of all this table, and the command that continues."""
    look = []
    if pages.page(journal.folder) is not None:
        # MLflow shows it in a frame without an origin, where Chromium follows no link, not even to a section.
        look.append(
            f"The whole account is `{pages.PAGE}` under *Artifacts*; saved, it opens in any browser, where the links "
            "to its sections work."
        )
    look.append(f"In the store's folder, `engram results {journal.run} {table}` prints the numbers.")
    goes_on = "goes on" if state in ("interrupted", "paused") else "tries them again" if state == "failed" else ""
    if goes_on:
        look.append(f"`engram resume {journal.run}` {goes_on}.")
    if state == "running":
        look.append(f"`engram status {journal.run} --watch` follows it.")
    return [STATES.get(state, ""), " ".join(look)]
