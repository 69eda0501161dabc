"""What lies in a store and no run needs: results that none plans any more, checkpoints, and what was set aside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.errors import EngramError, StoreError
from orchestrator.inspection import status
from orchestrator.run_folder.journal import REPLANNED, Journal
from orchestrator.store import Store
from orchestrator.store.entry import CONFLICTS, FAILURES, QUARANTINE, RESULTS, STATES

KEYED = {RESULTS: "results", STATES: "checkpoints", FAILURES: "tracebacks"}  # needed where a run plans their key
ASIDE = {QUARANTINE: "damaged files set aside", CONFLICTS: "other results of keys that have one"}  # nothing reads them


@dataclass(frozen=True)
class GarbageFile:
    """A file of the store that no run needs: its kind in words, its name in the store, and its size in bytes."""

    kind: str
    name: str
    size: int


def find_garbage(store: Store) -> list[GarbageFile]:
    """The files that no run of the store needs, by kind and name.

    Files are listed before the runs are: a run has its folder before it stores anything, so what a driver stores
    meanwhile is not among them. A run that begins later may find one of them stored and lose it again; its driver then
    computes it anew. Raises EngramError where a run cannot be read, since what it needs is not known.
    """
    there = {folder: store.files(folder) for folder in (*KEYED, *ASIDE)}
    needed = {key for journal in status.journals(store).values() for key in _needed_keys(journal)}
    found = [
        GarbageFile(KEYED[folder], name, size)
        for folder in KEYED
        for name, size in sorted(there[folder].items())
        if name.rpartition("/")[2].partition(".")[0] not in needed
    ]
    found += [
        GarbageFile(ASIDE[folder], name, size) for folder in ASIDE for name, size in sorted(there[folder].items())
    ]
    return [file for file in found if not file.name.endswith("/lock")]


def _needed_keys(journal: Journal) -> Iterator[str]:
    """The keys that a run plans, and those of tables that it made without failed or unneeded jobs."""
    try:
        if "cells" in journal.about():
            return
        yield from journal.tasks()
        for event in journal.events():
            if event["event"] in REPLANNED:
                yield from event["instead"]
    except StoreError as error:
        raise EngramError(f"what {journal.run} needs is not known, so nothing is garbage for now: {error}") from None
