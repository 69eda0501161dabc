"""The texts shown for a run in MLflow: its name, and a note with its answer and the next commands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from orchestrator import rounding
from orchestrator.headlines import format_headline
from orchestrator.inspection import answers, pages, results, search_results
from orchestrator.inspection.disclosure import typed_config
from orchestrator.inspection.search_results import SearchResults, is_search
from orchestrator.quantities import format_count
from orchestrator.run_folder.code_changes import describe_accepted
from orchestrator.run_folder.journal import Journal
from orchestrator.spec import audits, resolve
from orchestrator.spec.fields import text
from orchestrator.store import Store

Comparison = Callable[[Sequence[str]], str]  # returns the link that compares these runs
LONGEST_NAME = 250  # maximum characters that MLflow accepts
MAX_SETTINGS = 3  # maximum number of settings in a name
DIGEST = re.compile(r"@[0-9a-f]{64}")
WITHHELD = re.compile(r"^<.*>$")  # matches withheld words and secrets
LONGEST_NOTE = 7900  # characters; MLflow accepts 8,000
LONGEST_TAG = 5000  # maximum characters that MLflow accepts
MAX_CELLS = 30  # maximum number of cells in the list
MAX_COMPARED = 90  # maximum number of cells in the link, which is part of the note
FRONT = 20  # maximum number of trials in the list
STATES = {
    "running": "The run is in progress.",
    "finished": "All jobs are done.",
    "decided": "The run was decided early; the remaining jobs are not needed.",
    "failed": "Some jobs failed.",
    "interrupted": "The run was interrupted.",
    "paused": "The run has paused.",
}


def run_name(journal: Journal) -> str:
    """Return the name of a run, sweep or search, such as `letter A, quickstart, seed=1`, with any varied fields."""
    about = journal.about()
    settings = results.cells(journal)
    subjects = {_subject(journal.sibling(cell).about()) for cell in settings} or {_subject(about)}
    if len(subjects) == 1:
        subject = subjects.pop()
    else:
        subject = about["audit"]
    if settings:
        first = journal.sibling(next(iter(settings))).about()
    else:
        first = about
    parts = [subject, first.get("preset"), *_set(about)]
    varied = resolve.distinguishing_fields(list(settings.values()))
    if is_search(about):
        parts.append(f"search over {', '.join(about['search']['over'])}")
    elif settings:
        parts.append(f"sweep of {', '.join(varied)}" if varied else f"{len(settings)} cells")
    return ", ".join(part for part in parts if part)[:LONGEST_NAME]


def cell_names(sweep: Journal, search: SearchResults | None) -> dict[str, str]:
    """Return the names of a sweep's cells by run.

    A name lists the distinguishing fields, such as `learning_rate=0.001`. If there are none, it is the name of the run.
    If `search` is given, each trial is named by all of its choices.
    """
    if search is not None:
        names = {}
        for row in search.trials:
            if row["run"]:
                names[row["run"]] = search_results.trial_name(row)[:LONGEST_NAME]
        return names
    settings = results.cells(sweep)
    fields = resolve.distinguishing_fields(list(settings.values()))
    names = {}
    for run, setting in settings.items():
        names[run] = resolve.label(setting, fields)[:LONGEST_NAME] or run
    return names


def _subject(about: Mapping[str, Any]) -> str:
    """Describe in a few words what the run audits. Returns the audit's name if it declares no subject."""
    name: str = about["audit"]
    config = typed_config(about)
    registered = audits.find_installed(name)
    if registered is None:
        subject = None
    else:
        subject = registered.audit.wording.subject
    if subject is None or config is None:
        return name
    return subject(config)


def _set(about: Mapping[str, Any]) -> list[str]:
    """Return the fields set in addition to the preset, as entered, including those varied by a cell's sweep.

    If there are many, only the first few are returned. Fields that name a file come first because these distinguish
    runs. Digests are removed.
    """
    if is_search(about):
        specification = about["search"]
    else:
        specification = about.get("asked", {})
    settings = {**specification.get("set", {}), **(about.get("setting") or {})}
    texts = {name: text(value) for name, value in settings.items()}
    texts = {name: value for name, value in texts.items() if not WITHHELD.match(value)}
    if len(texts) <= MAX_SETTINGS:
        names = list(texts)
        hidden_count = 0
    else:
        names = sorted(texts, key=lambda name: DIGEST.search(texts[name]) is None)[:MAX_SETTINGS]
        hidden_count = len(texts) - MAX_SETTINGS
    return [f"{name}={DIGEST.sub('', texts[name])}" for name in names] + (
        [f"{hidden_count} more"] if hidden_count else []
    )


def run_note(
    journal: Journal,
    store: Store,
    state: str,
    search: SearchResults | None = None,
    comparison: Comparison | None = None,
) -> str:
    """Return the note of a run or sweep in this state, or of `search` if given, with the numbers stored so far.

    `comparison` returns the link that compares these cells in MLflow, or an empty string if there is none.
    """
    changes = []
    for line in _accepted_changes(journal):
        changes.append(f"Code changed within this run. {line}.")
    if search is not None:
        return "\n\n".join([*_search(search), *changes, *_ways(journal, state, search_results.TRIALS)])[:LONGEST_NOTE]
    about = journal.about()
    if "cells" in about:
        body = _cells(journal, store, comparison)
    else:
        body = _answer(journal, store)
    registered = audits.find_installed(about["audit"])
    if registered is None:
        question = []
    else:
        question = [f"*{registered.question}*"]
    text = "\n\n".join([*question, *body, *changes, *_ways(journal, state, "summary")])
    if len(text) <= LONGEST_NOTE:
        return text
    return text[:LONGEST_NOTE] + " ..."


def _accepted_changes(journal: Journal) -> list[str]:
    """Return one line per code change that the user accepted in a run or in any cell of a sweep."""
    lines: dict[str, None] = {}
    for part in journal.parts():
        lines |= dict.fromkeys(describe_accepted(part.about()))
    return list(lines)


def tags_of_accepted_code(journal: Journal) -> dict[str, str]:
    """Return the tag that lists the accepted code changes. Returns an empty dict if there are none."""
    changes = _accepted_changes(journal)
    if changes:
        return {"engram.accepted_code": "; ".join(changes)[:LONGEST_TAG]}
    return {}


def _answer(journal: Journal, store: Store) -> list[str]:
    rows = results.summary(journal, store).table.to_pylist()
    verdict = results.answer(journal, store)
    if verdict is None:
        return [_table(rows[:10])] if rows else []
    supporting_rows = answers.supporting_rows(verdict, rows)
    table = []
    if supporting_rows:
        table = [_table(supporting_rows)]
    first, *others = verdict.paragraphs
    return [*_effect(journal, store), f"**{first}**", *others, *table, verdict.limits_in_full]


def _effect(journal: Journal, store: Store) -> list[str]:
    """Return the number that compares runs and the definition of the `effect` metric."""
    headline = results.headline(journal, store)
    if headline is None:
        return []
    unit = f" (unit: {headline.unit})" if headline.unit else ""
    return [
        f"**{format_headline(headline)}**",
        f"The metric `effect` is {answers.row_name(headline.row)}{unit}.",
    ]


def _cells(journal: Journal, store: Store, comparison: Comparison | None) -> list[str]:
    """Return a link to all cells in MLflow, and a table with the distinguishing setting, effect and answer of each.

    If there are many cells, those with the strongest results are listed.
    """
    lines = ["| varied | effect | answer | run |", "|---" * 4 + "|"]
    cells = answers.cell_answers(journal, store)
    audit = journal.about()["audit"]
    listed = answers.strongest_cells(cells, audit, MAX_CELLS)
    names: dict[str, None] = {}
    for cell in listed:
        if cell.headline is not None:
            names |= dict.fromkeys([answers.row_name(cell.headline.row)])
        answer = cell.verdict.answer if cell.verdict else ""
        lines.append(f"| {_cell(cell.label)} | {_cell(cell.effect)} | {answer} | {cell.run} |")
    link = ""
    if comparison is not None:
        link = comparison([cell.run for cell in answers.strongest_cells(cells, audit, MAX_COMPARED)])
    paragraphs = [f"[Compare the cells]({link}) in MLflow."] if link else []
    paragraphs.append("\n".join(lines))
    if len(cells) > len(listed):
        paragraphs.append(f"{format_count(len(cells) - len(listed), 'more cell')} with weaker results.")
    if names:
        paragraphs.append(
            f"The metric `effect` is {'; '.join(names)}. Its steps are the cells, in the order of the sweep."
        )
    return paragraphs


def _search(search: SearchResults) -> list[str]:
    """Return the question and recommendation of a search, and its front with the fresh audits."""
    recommendation = answers.search_answer(search)
    if recommendation is None:
        recommendation_lines = []
    else:
        recommendation_lines = [f"**{recommendation.sentence}**"]
    lines = ["| trial | choices | memorization | utility | run |", "|---" * 5 + "|"]
    trials = [row for row in search.trials if row["front"] or row["part"] == search_results.FRESH]
    for row in trials[:FRONT]:
        numbers = (search_results.value(row, name) for name in ("memorization", "utility"))
        texts = (
            f"{rounding.format_row_value(objective, 'estimate')} "
            f"{rounding.format_interval(objective['low'], objective['high'])}"
            if objective
            else ""
            for objective in numbers
        )
        lines.append(
            f"| {' | '.join(map(_cell, (row['trial'], search_results.trial_name(row), *texts, row['run'])))} |"
        )
    over = ", ".join(f"{name} from {domain}" for name, domain in search.settings["over"].items())
    question = f"*{search_results.QUESTION} {format_count(search.planned, 'trial')} over {over}.*"
    return [
        question,
        *recommendation_lines,
        "\n".join(lines),
        *([] if recommendation is None else [recommendation.limits]),
    ]


def _table(rows: Iterable[Mapping[str, Any]]) -> str:
    lines = [f"| {' | '.join(answers.HEAD)} |", "|---" * len(answers.HEAD) + "|"]
    for row in rows:
        lines.append(f"| {' | '.join(map(_cell, answers.row_cells(row)))} |")
    return "\n".join(lines)


def _cell(value: Any) -> str:
    """Format text as a cell of a Markdown table."""
    if value is None:
        return ""
    return str(value).replace("|", "\\|").replace("\n", " ")


def _ways(journal: Journal, state: str, table: str) -> list[str]:
    """Describe the state, where to find the results (`table` is an example), and how to continue the run."""
    look = []
    if pages.page(journal.folder) is not None:
        # MLflow shows the page in a frame without an origin, where Chromium follows no links, not even to sections.
        look.append(
            f"The full report is `{pages.PAGE}` under *Artifacts*. Download it and open it in a browser to use the "
            "links to its sections."
        )
    look.append(f"To print the numbers, run `engram results {journal.run} {table}` in the folder of the store.")
    effect = ""
    if state in ("interrupted", "paused"):
        effect = "continues the run"
    elif state == "failed":
        effect = "repeats the failed jobs"
    if effect:
        look.append(f"`engram resume {journal.run}` {effect}.")
    if state == "running":
        look.append(
            f"To follow the run, use `engram runs status {journal.run} --watch` or the live page of `engram ui`."
        )
    return [_state(journal, state), " ".join(look)]


def _state(journal: Journal, state: str) -> str:
    """Return the state of a run as a sentence. For a run that was decided early, it includes the number of pairs."""
    for event in journal.last_start(("decided",)) if state == "decided" else ():
        return f"{event['note'][0].upper()}{event['note'][1:]}."
    return STATES.get(state, "")
