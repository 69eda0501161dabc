"""Synchronises run folders between this machine and an object store.

A run writes its files to a local folder, which is copied to `runs/RUN/` at intervals and when the run ends. Other
machines fetch missing files: the small files of all runs to list the runs, and all files of a run to drive it. The
copies are only a log. Results are in the object store itself, so losing a copy loses no result.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from orchestrator.errors import StoreError
from orchestrator.store import atomic_write, claims, lease
from orchestrator.store.bucket import Bucket, Object
from orchestrator.store.lease import SHARED_FOLDER
from orchestrator.store.threads import thread_pool

RUNS = "runs"
TABLES = "tables"
JOURNEYS = 16  # concurrent requests to a remote store, each of which waits for the network
FIRST = "run.json"  # put last and fetched first, so its presence means that all required files of the run exist
WRITTEN_ONCE = {FIRST, "plan.json"}  # files that never change
LOG = "events.jsonl"  # file that only grows
STATUS_SUFFIXES = (".json", ".jsonl")  # files with run status
LOCAL_FILES = {lease.LEASE, lease.LOCK, lease.ELSEWHERE}  # files that concern only this machine
# Seconds between copies.
PULL_SECONDS = 10.0
PUSH_SECONDS = 30.0


class Mirror:
    """Local copies, below `home`, of the run folders in one object store."""

    def __init__(self, bucket: Bucket, home: Path) -> None:
        self.home = home
        self._bucket = bucket
        self._pulled: float | None = None
        self._pushed: dict[str, float] = {}  # by run
        self._copied: dict[Path, tuple[int, int]] = {}  # size and time of files that are equal in both locations

    def claim(self, *runs: str) -> claims.Claim:
        """Claim runs against drivers on all machines and update their folders.

        Raises the same errors as `claims.claim`.
        """
        claim = claims.claim(self._bucket, *runs)
        try:
            with thread_pool(JOURNEYS, "list") as pool:
                for objects in pool.map(self._bucket.objects, (f"{RUNS}/{run}" for run in runs)):
                    self._bring(objects)
        except BaseException:
            claim.release()
            raise
        return claim

    def pull(self) -> None:
        """Fetch the status files of all runs and the drivers on other machines, unless done within PULL_SECONDS."""
        now = time.monotonic()
        if self._pulled is not None and now - self._pulled < PULL_SECONDS:
            return
        try:
            objects = self._bucket.objects(RUNS)
            runs = set()
            for stored_object in objects:
                if stored_object.name.endswith(f"/{FIRST}"):
                    runs.add(stored_object.name.split("/")[1])
            status_files = []
            for stored_object in objects:
                if stored_object.name.count("/") == 2 and stored_object.name.endswith(STATUS_SUFFIXES):
                    status_files.append(stored_object)
            self._bring(stored_object for stored_object in status_files if stored_object.name.split("/")[1] in runs)
            self._note_drivers()
        except StoreError:
            if self._pulled is None:  # afterwards, the last copy suffices
                raise
        self._pulled = now

    def push(self, run: str, last: bool = False) -> None:
        """Copy new files from a run folder, unless done within PUSH_SECONDS. Always copies if `last` is set.

        Table files that the run has removed are also deleted from the object store. Raises Unwritable.
        """
        now = time.monotonic()
        if not last and now - self._pushed.get(run, -PUSH_SECONDS) < PUSH_SECONDS:
            return
        self._pushed[run] = now
        folder = self.home / RUNS / run
        states = {path: _state(path) for path in _files(folder)}
        new = []
        for path, state in states.items():
            if state is not None and self._copied.get(path) != state:
                new.append(path)
        with thread_pool(JOURNEYS, "push") as pool:
            list(pool.map(self._put, (path for path in new if path.name != FIRST)))
        if folder / FIRST in new:
            self._put(folder / FIRST)
        if last:
            names = {self._name(path) for path in states}
            tables = self._bucket.objects(f"{RUNS}/{run}/{TABLES}")
            self._bucket.delete(*(table.name for table in tables if table.name not in names))

    def _put(self, path: Path) -> None:
        with suppress(FileNotFoundError):
            state = _state(path)
            self._bucket.put(self._name(path), path.read_bytes())
            if state is not None:
                self._copied[path] = state

    def _bring(self, objects: Iterable[Object]) -> None:
        with thread_pool(JOURNEYS, "pull") as pool:
            list(pool.map(self._bring_one, objects))

    def _bring_one(self, stored_object: Object) -> None:
        path = self.home / stored_object.name
        state = _state(path)
        if state is None or _newer(stored_object, path, state):
            with suppress(FileNotFoundError):  # it has just been removed
                data = memoryview(self._bucket.get(stored_object.name)).tobytes()
                with atomic_write.writing(path):
                    _write(path, data, stored_object.write_time)
                self._copied[path] = _state(path) or (0, 0)
        elif state[0] == stored_object.size:
            self._copied[path] = state

    def _note_drivers(self) -> None:
        """Record drivers on other machines, or in other folders, in the folders of their runs."""
        driven = claims.living(self._bucket)
        for folder in (self.home / RUNS).glob("[!.]*"):
            note = folder / lease.ELSEWHERE
            holder = driven.get(folder.name)
            if holder is None:
                note.unlink(missing_ok=True)
            elif (folder / FIRST).exists():
                with atomic_write.writing(note):
                    _write(note, json.dumps(asdict(holder)).encode())

    def _name(self, path: Path) -> str:
        return path.relative_to(self.home).as_posix()


def _newer(stored_object: Object, path: Path, state: tuple[int, int]) -> bool:
    """Whether the copy in the object store replaces the local one."""
    if path.name in WRITTEN_ONCE or TABLES in path.parts[-3:]:
        return False
    if path.name == LOG:
        return stored_object.size > state[0]
    return stored_object.write_time > datetime.fromtimestamp(state[1] / 1e9, UTC)


def _files(folder: Path) -> list[Path]:
    """Return the files to copy from a run folder, without unfinished files and files that concern only this machine.

    Files that workers keep for the run are also omitted, because workers put them into the object store themselves.
    """
    files = (path for path in folder.rglob("*") if path.is_file() and path.parent != folder / SHARED_FOLDER)
    paths = sorted(path for path in files if path.name not in LOCAL_FILES)
    result = []
    for path in paths:
        if not (path.name[0] == "." or path.suffix == ".tmp" or atomic_write.unfinished(path.name)):
            result.append(path)
    return result


def _state(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def _write(path: Path, data: bytes, write_time: datetime | None = None) -> None:
    """Write a file atomically and give it the time of the object that it copies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write.put_in_place(path) as draft:
        draft.write_bytes(data)
        if write_time is not None:
            os.utime(draft, (write_time.timestamp(),) * 2)
