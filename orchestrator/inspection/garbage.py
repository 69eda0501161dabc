"""Store files that no run needs: results that no run plans, their checkpoints, and files that were set aside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.errors import EngramError, StoreError
from orchestrator.inspection import status
from orchestrator.run_folder.journal import REPLAN_EVENTS, Journal
from orchestrator.store import Store
from orchestrator.store.entry import CONFLICTS, FAILURES, QUARANTINE, RESULTS, STATES

KEYED = {RESULTS: "results", STATES: "checkpoints", FAILURES: "tracebacks"}  # needed if a run plans their key
NEVER_READ = {QUARANTINE: "damaged files set aside", CONFLICTS: "different results of stored keys"}  # no run reads them


@dataclass(frozen=True)
class GarbageFile:
    """A store file that no run needs: its kind, its name in the store, and its size in bytes."""

    kind: str
    name: str
    size: int


def find_garbage(store: Store) -> list[GarbageFile]:
    """List the files that no run in the store needs, by kind and name.

    Files are listed before runs. A run creates its folder before it stores anything, so results that a driver stores
    during the search are not listed. A run that starts later may reuse a listed result and then lose it, in which case
    its driver computes the result again. Raises EngramError if a run cannot be read, because its needs are then
    unknown.
    """
    files = {folder: store.files(folder) for folder in (*KEYED, *NEVER_READ)}
    needed_keys = set()
    for journal in status.journals(store).values():
        for key in _needed_keys(journal):
            needed_keys.add(key)
    garbage = []
    for folder in KEYED:
        for name, size in sorted(files[folder].items()):
            if name.rpartition("/")[2].partition(".")[0] not in needed_keys:
                garbage.append(GarbageFile(KEYED[folder], name, size))
    garbage += [
        GarbageFile(NEVER_READ[folder], name, size)
        for folder in NEVER_READ
        for name, size in sorted(files[folder].items())
    ]
    return [file for file in garbage if not file.name.endswith("/lock")]


def _needed_keys(journal: Journal) -> Iterator[str]:
    """Yield the keys that a run plans, and the keys of tables that it computed without failed or unneeded jobs."""
    try:
        if "cells" in journal.about():
            return
        yield from journal.tasks()
        for event in journal.events():
            if event["event"] in REPLAN_EVENTS:
                yield from event["instead"]
    except StoreError as error:
        raise EngramError(f"run {journal.run} cannot be read, so the files it needs are unknown: {error}") from None
