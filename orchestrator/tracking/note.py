"""The note of a run in Markdown: its answer in words with the supporting numbers, and the next commands."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.counted import counted
from orchestrator.errors import EngramError
from orchestrator.inspection import labels, pages, results
from orchestrator.run_folder.journal import Journal
from orchestrator.spec import audits
from orchestrator.store import Store

LONGEST = 7900  # characters; MLflow takes 8,000
HEAD = ("metric", "setting", "estimate", "95 % interval", "n", "null", "p")
STATES = {
    "running": "It is running.",
    "finished": "All of its jobs are done.",
    "failed": "Some of its jobs failed.",
    "interrupted": "It was interrupted.",
    "paused": "It has paused.",
}


def of(journal: Journal, store: Store, state: str) -> str:
    """The note of a run or sweep in this state, with the numbers stored so far."""
    about = journal.about()
    body = _cells(journal, store) if "cells" in about else _answer(journal, store)
    text = "\n\n".join([*_question(about["audit"]), *body, *_ways(journal, state)])
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
    carrying = [row for name in verdict.rows for row in rows if (row["metric"], row["setting"]) == name]
    return [f"**{verdict.sentence}**", *([_table(carrying)] if carrying else []), verdict.limits]


def _cells(journal: Journal, store: Store) -> list[str]:
    """A table with a line per cell: its distinguishing setting, its answer, and the supporting number."""
    settings = results.cells(journal)
    lines = ["| varied | answer | estimate, 95 % interval | run |", "|---" * 4 + "|"]
    telling = labels.telling(list(settings.values()))
    for name, setting in settings.items():
        cell = journal.beside(name)
        verdict = results.answer(cell, store)
        rows = results.read(cell, store, "summary").table.to_pylist()
        first = verdict.rows[0] if verdict and verdict.rows else None
        carrying = next((row for row in rows if first in (None, (row["metric"], row["setting"]))), None)
        varied = labels.label(setting, telling)
        number = ""
        if carrying:
            what = " ".join(filter(None, (carrying["metric"], _varied(carrying["setting"]))))
            number = f"{what}: {' '.join(filter(None, (_cell(carrying['estimate']), _interval(carrying, '({})'))))}"
        lines.append(f"| {_cell(varied)} | {verdict.answer if verdict else ''} | {_cell(number)} | {name} |")
    return ["\n".join(lines)]


def _table(rows: Iterable[Mapping[str, Any]]) -> str:
    lines = [f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|"]
    for row in rows:
        interval = _interval(row)
        n = "" if row["n"] is None else counted(row["n"], row["unit"] or "")
        cells = (row["metric"], _varied(row["setting"]), row["estimate"], interval, n, row["null"], row["p_value"])
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    return "\n".join(lines)


def _interval(row: Mapping[str, Any], form: str = "{}") -> str:
    if row["low"] is None or row["high"] is None:
        return ""
    return form.format(f"{_cell(row['low'])} to {_cell(row['high'])}")


def _varied(setting: str | None) -> str:
    try:
        return ", ".join(f"{name}={value}" for name, value in json.loads(setting or "{}").items())
    except (ValueError, AttributeError):
        return str(setting)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")


def _ways(journal: Journal, state: str) -> list[str]:
    """The state, where to find the results, and the command that continues."""
    look = []
    if pages.page(journal.folder) is not None:
        look.append(f"The whole account is `{pages.PAGE}` under *Artifacts*; saved, it opens in any browser.")
    look.append(f"In the store's folder, `engram results {journal.run} summary` prints the numbers.")
    goes_on = "goes on" if state in ("interrupted", "paused") else "tries them again" if state == "failed" else ""
    if goes_on:
        look.append(f"`engram resume {journal.run}` {goes_on}.")
    if state == "running":
        look.append(f"`engram status {journal.run} --watch` follows it.")
    return [STATES.get(state, ""), " ".join(look)]
