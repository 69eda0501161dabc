"""Store files that no run needs: results that no run plans, their checkpoints, and files that were set aside."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath

from orchestrator.errors import EngramError, StoreError
from orchestrator.inspection import status
from orchestrator.model_audit import NAME_DIGITS, RECORDINGS
from orchestrator.run_folder.journal import REPLAN_EVENTS, Journal
from orchestrator.store import Store, local_path
from orchestrator.store.entry import CONFLICTS, FAILURES, OUTPUTS, QUARANTINE, RESULTS, STATES
from orchestrator.store.job_files import job_states, remove_empty_folders

# Needed if a run plans their key.
KEYED = {RESULTS: "results", STATES: "checkpoints", FAILURES: "tracebacks", OUTPUTS: "outputs of jobs"}
JOB_STATES_KIND = "states of jobs"
NEVER_READ = {QUARANTINE: "damaged files set aside", CONFLICTS: "different results of stored keys"}  # no run reads them

PINNED = re.compile(r"@([0-9a-f]{64})\b")  # the digest of a file in a configuration
RECENT = 3600  # seconds


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
    states = job_states(store)
    recordings = _settled_recordings(store)
    needed_keys = set()
    keys_with_state = set()
    needed_recordings: set[str] = set()
    for journal in status.journals(store).values():
        needed_recordings.update(_needed_recordings(journal))
        keys = set(_needed_keys(journal))
        needed_keys |= keys
        if states.keys() & keys and not status.status(journal, store).finished:
            keys_with_state |= keys
    garbage = []
    for folder in KEYED:
        for name, size in sorted(files[folder].items()):
            if _key_of(folder, name) not in needed_keys:
                garbage.append(GarbageFile(KEYED[folder], name, size))
    for key in sorted(states.keys() - keys_with_state | {key for key in states if key in store}):
        for name, size in sorted(states[key].items()):
            garbage.append(GarbageFile(JOB_STATES_KIND, name, size))
    for name, size in sorted(recordings.items()):
        if PurePosixPath(name).stem not in needed_recordings:
            garbage.append(GarbageFile("recordings of models in memory", name, size))
    garbage += [
        GarbageFile(NEVER_READ[folder], name, size)
        for folder in NEVER_READ
        for name, size in sorted(files[folder].items())
    ]
    return [file for file in garbage if file.kind == JOB_STATES_KIND or not file.name.endswith("/lock")]


def remove_garbage(store: Store, garbage: Sequence[GarbageFile]) -> None:
    """Remove these files, and the folders of jobs that are empty then. Raises Unwritable."""
    for file in garbage:
        store.remove(file.name)
    remove_empty_folders(store, (file.name for file in garbage))


def _key_of(folder: str, name: str) -> str:
    """Return the key in the name of a file. Outputs have one folder per key, all other files are named after it."""
    if folder == OUTPUTS:
        return name.split("/")[1]
    return name.rpartition("/")[2].partition(".")[0]


def _settled_recordings(store: Store) -> dict[str, int]:
    """Return the size of each recording of `engram.audit`, by name, except recent ones, whose run may yet be created.

    Only local stores have recordings.
    """
    root = local_path(store.location)
    sizes = {}
    for name, size in store.files(RECORDINGS).items():
        with suppress(FileNotFoundError):
            if root is not None and time.time() - (root / name).stat().st_mtime > RECENT:
                sizes[name] = size
    return sizes


def _needed_recordings(journal: Journal) -> Iterator[str]:
    """Yield the names, without suffix, of the recordings that a run may read: the starts of the digests of its files.

    Raises EngramError if the run cannot be read.
    """
    try:
        config = json.dumps(journal.about().get("config", {}))
    except StoreError as error:
        raise _unknown_needs(journal, error) from None
    for digest in PINNED.findall(config):
        yield digest[:NAME_DIGITS]


def _unknown_needs(journal: Journal, error: StoreError) -> EngramError:
    return EngramError(f"run {journal.run} cannot be read, so the files it needs are unknown: {error}")


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
        raise _unknown_needs(journal, error) from None
