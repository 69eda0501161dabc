"""The names under which MLflow lists runs: what was asked, in a few words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.errors import EngramError
from orchestrator.inspection import labels, results
from orchestrator.inspection.disclosure import typed
from orchestrator.run_folder.journal import Journal
from orchestrator.spec import audits
from orchestrator.spec.fields import text

LONGEST = 250  # characters that MLflow takes


def of(journal: Journal) -> str:
    """The name of a run or sweep: `letter A, quickstart, seed=1`; of a sweep with the fields that it varies."""
    about = journal.about()
    settings = results.cells(journal)
    subjects = {_subject(journal.beside(cell).about()) for cell in settings} or {_subject(about)}
    subject = subjects.pop() if len(subjects) == 1 else about["audit"]
    first = journal.beside(next(iter(settings))).about() if settings else about
    parts = [subject, first.get("preset"), *_set(about)]
    varied = labels.telling(list(settings.values()))
    if settings:
        parts.append(f"sweep of {', '.join(varied)}" if varied else f"{len(settings)} cells")
    return ", ".join(part for part in parts if part)[:LONGEST]


def of_cell(sweep: Journal, run: str) -> str:
    """The name of a sweep's cell, by what tells it apart from the others: `learning_rate=0.001`; its run if nothing."""
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
    given = {**about.get("asked", {}).get("set", {}), **(about.get("setting") or {})}
    return [f"{name}={text(value)}" for name, value in given.items()]
