"""The names under which MLflow lists runs: what was asked, in a few words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.errors import EngramError
from orchestrator.inspection import labels, results, search_results
from orchestrator.inspection.disclosure import typed
from orchestrator.inspection.search_results import is_search
from orchestrator.run_folder.journal import Journal
from orchestrator.spec import audits
from orchestrator.spec.fields import text

LONGEST = 250  # characters that MLflow takes


def of(journal: Journal) -> str:
    """The name of a run, sweep or search: `letter A, quickstart, seed=1`; with the fields that vary in it."""
    about = journal.about()
    settings = results.cells(journal)
    subjects = {_subject(journal.beside(cell).about()) for cell in settings} or {_subject(about)}
    subject = subjects.pop() if len(subjects) == 1 else about["audit"]
    first = journal.beside(next(iter(settings))).about() if settings else about
    parts = [subject, first.get("preset"), *_set(about)]
    varied = labels.telling(list(settings.values()))
    if is_search(about):
        parts.append(f"search over {', '.join(about['search']['over'])}")
    elif settings:
        parts.append(f"sweep of {', '.join(varied)}" if varied else f"{len(settings)} cells")
    return ", ".join(part for part in parts if part)[:LONGEST]


def of_cell(sweep: Journal, run: str) -> str:
    """The name of a sweep's cell, by what tells it apart from the others: `learning_rate=0.001`; its run if nothing.

    A trial of a search is named by all of its choices.
    """
    if is_search(sweep.about()):
        named = {row["run"]: search_results.named(row) for row in search_results.of(sweep).trials}
        return named.get(run, run)[:LONGEST]
    settings = results.cells(sweep)
    return labels.label(settings.get(run, {}), labels.telling(list(settings.values())))[:LONGEST] or run


def _subject(about: Mapping[str, Any]) -> str:
    """What the run's audit is asked about, in a few words; the audit's name where it does not say."""
    name: str = about["audit"]
    config = typed(about)
    try:
        subject = audits.find(name).audit.subject
    except EngramError:
        return name
    return name if subject is None or config is None else subject(config)


def _set(about: Mapping[str, Any]) -> list[str]:
    """The fields that were set beside the preset, of a cell with those that its sweep varies, as they were written."""
    asked = about["search"] if is_search(about) else about.get("asked", {})
    given = {**asked.get("set", {}), **(about.get("setting") or {})}
    return [f"{name}={text(value)}" for name, value in given.items()]
