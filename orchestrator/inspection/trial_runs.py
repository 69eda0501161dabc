"""The searches that a run is a trial of."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import StoreError
from orchestrator.inspection import search_results
from orchestrator.inspection.search_results import FRESH, START, is_search
from orchestrator.run_folder.journal import Journal


@dataclass(frozen=True)
class TrialOf:
    """The trials of a search that are one run, as (number, part); none as long as its trial has not ended."""

    search: str
    trials: tuple[tuple[int, str], ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The same as JSON."""
        return {"search": self.search, "trials": [{"trial": number, "part": part} for number, part in self.trials]}

    @property
    def words(self) -> str:
        """Which trials: `the start and trial 3, fresh seeds`."""
        named = [
            f"{'the start' if number == START else f'trial {number}'}{', fresh seeds' if part == FRESH else ''}"
            for number, part in self.trials
        ]
        return " and ".join(named) or "a trial that has not ended"


def parent_searches(run: Journal) -> tuple[TrialOf, ...]:
    """The searches in the same store that the run is a trial of. Those whose folder cannot be read are left out."""
    found = []
    for folder in sorted(run.folder.parent.glob("*-search-*")):
        with suppress(StoreError):
            found.append(_trial_of(Journal(folder), run))
    return tuple(each for each in found if each is not None)


def _trial_of(search: Journal, run: Journal) -> TrialOf | None:
    about = search.about()
    if not is_search(about):
        return None
    rows = search_results.read_search(search).trials if run.run in about["cells"] else ()
    trials = tuple((row["trial"], row["part"]) for row in rows if row["run"] == run.run)
    begun = any(event.get("search") == search.run for event in run.last_start()[:1])
    return TrialOf(search.run, trials) if trials or begun else None
