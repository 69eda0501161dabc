"""The names under which MLflow lists runs: what was asked, in a few words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from orchestrator.errors import EngramError
from orchestrator.inspection import labels, results, search_results
from orchestrator.inspection.disclosure import typed_config
from orchestrator.inspection.search_results import SearchResults, is_search
from orchestrator.run_folder.journal import Journal
from orchestrator.spec import audits
from orchestrator.spec.fields import text

LONGEST = 250  # characters that MLflow takes
MOST = 3  # settings that a name tells
DIGEST = re.compile(r"@[0-9a-f]{64}")
WITHHELD = re.compile(r"^<.*>$")  # as words and secrets are told


def run_name(journal: Journal) -> str:
    """The name of a run, sweep or search: `letter A, quickstart, seed=1`; with the fields that vary in it."""
    about = journal.about()
    settings = results.cells(journal)
    subjects = {_subject(journal.sibling(cell).about()) for cell in settings} or {_subject(about)}
    subject = subjects.pop() if len(subjects) == 1 else about["audit"]
    first = journal.sibling(next(iter(settings))).about() if settings else about
    parts = [subject, first.get("preset"), *_set(about)]
    varied = labels.distinguishing_fields(list(settings.values()))
    if is_search(about):
        parts.append(f"search over {', '.join(about['search']['over'])}")
    elif settings:
        parts.append(f"sweep of {', '.join(varied)}" if varied else f"{len(settings)} cells")
    return ", ".join(part for part in parts if part)[:LONGEST]


def cell_names(sweep: Journal, search: SearchResults | None) -> dict[str, str]:
    """The names of a sweep's cells by run: what tells each apart, `learning_rate=0.001`; its run if nothing does.

    A trial of a search, which is given, is named by all of its choices.
    """
    if search is not None:
        return {row["run"]: search_results.trial_name(row)[:LONGEST] for row in search.trials if row["run"]}
    settings = results.cells(sweep)
    telling = labels.distinguishing_fields(list(settings.values()))
    return {run: labels.label(setting, telling)[:LONGEST] or run for run, setting in settings.items()}


def _subject(about: Mapping[str, Any]) -> str:
    """What the run's audit is asked about, in a few words; the audit's name where it does not say."""
    name: str = about["audit"]
    config = typed_config(about)
    try:
        subject = audits.find(name).audit.wording.subject
    except EngramError:
        return name
    return name if subject is None or config is None else subject(config)


def _set(about: Mapping[str, Any]) -> list[str]:
    """The fields that were set beside the preset, of a cell with those that its sweep varies, as they were written.

    Of many the first few, those before all that name a file, which tell one run from another; without digests.
    """
    asked = about["search"] if is_search(about) else about.get("asked", {})
    given = {**asked.get("set", {}), **(about.get("setting") or {})}
    told = {name: text(value) for name, value in given.items()}
    told = {name: value for name, value in told.items() if not WITHHELD.match(value)}
    if len(told) <= MOST:
        shown, more = list(told), 0
    else:
        shown = sorted(told, key=lambda name: DIGEST.search(told[name]) is None)[:MOST]
        more = len(told) - MOST
    return [f"{name}={DIGEST.sub('', told[name])}" for name in shown] + ([f"{more} more"] if more else [])
