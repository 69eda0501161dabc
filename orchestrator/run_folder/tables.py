"""A run's tables: the results behind each root, concatenated, and as Parquet parts for other readers.

The parts have the columns of `orchestrator.run_folder.exports` beside those of the results.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Container, Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from orchestrator.errors import Absent, StoreError
from orchestrator.run_folder import exports
from orchestrator.store import Store, atomic_write, read_each
from orchestrator.store.lock import file_lock

# In a part's metadata: the keys of its results, and their run, which those of earlier versions do not tell.
KEYS, RUN = b"engram.keys", b"engram.run"
PART = 64  # results in a part at most
LOCK = ".lock"  # ignored by readers of the folder
STALE = 3600.0  # seconds after which no process can still be writing a part


def read(store: Store, keys: Iterable[str]) -> pa.Table | None:
    """The rows of these results, concatenated, without those not stored yet; None if none is stored."""
    parts = []
    for _, table in read_each(store, keys):
        if isinstance(table, Absent):
            continue
        if isinstance(table, Exception):
            raise table
        parts.append(table)
    return pa.concat_tables(parts) if parts else None


class Publisher:
    """Keeps a folder of Parquet parts for one table: each result behind the root is in exactly one of them.

    This holds even if another driver of the same run writes there, such as the one from which the run was taken over:
    parts are written and removed under a lock, after reading which parts exist.
    """

    def __init__(self, folder: Path, run: str, store: Store, keys: Sequence[str]) -> None:
        self.folder = folder
        self.run = run
        self.store = store
        self.keys = keys
        self.published: set[str] = set()
        self.read: set[str] = set()  # results that this publisher has read whole, and whose digest was right
        self._parts: dict[str, frozenset[str]] | None = None  # keys of each part, by name; None before the first read

    def publish(self, stored: Container[str], look: bool = False) -> None:
        """Write parts for the table's results that are stored and in no part yet.

        Existing parts are read if there are results to write, at the first call, or if `look`. Raises Unwritable, or
        the error of reading a result once all others are published.
        """
        fresh = [key for key in self.keys if key in stored and key not in self.published]
        if not (fresh or (self.folder.is_dir() and (look or self._parts is None))):
            return
        with atomic_write.writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            with file_lock(self.folder / LOCK):
                self._look()
                fresh = [key for key in self.keys if key in stored and key not in self.published]
                problems = [self._write(fresh[start : start + PART]) for start in range(0, len(fresh), PART)]
        for problem in problems:
            if problem is not None:
                raise problem

    def _look(self) -> None:
        """Read which results the parts hold; remove parts that are damaged, stale or duplicates."""
        atomic_write.sweep(self.folder, STALE)
        known = self._parts or {}
        there = {part.name: known.get(part.name) or self._part_keys(part) for part in self.folder.glob("*.parquet")}
        wanted = set(self.keys)
        self.published = set()
        self._parts = {}
        for name, held in sorted(there.items(), key=lambda part: (-len(part[1]), part[0])):
            if held and held <= wanted and self.published.isdisjoint(held):
                self.published |= held
                self._parts[name] = held
            else:
                (self.folder / name).unlink(missing_ok=True)

    def _write(self, keys: list[str]) -> StoreError | OSError | None:
        """Write the readable ones of these results as a part; return the first error of the others, if any."""
        readable: dict[str, pa.Table] = {}
        problem: StoreError | OSError | None = None
        for key, table in read_each(self.store, keys):
            if isinstance(table, StoreError | OSError):
                problem = problem or table
            else:
                readable[key] = table
        self.read.update(readable)
        if not readable:
            return problem
        text = ",".join(readable).encode()
        rows = exports.flatten_table(pa.concat_tables(readable.values()), self.run)
        rows = rows.replace_schema_metadata({KEYS: text, RUN: self.run.encode()})
        name = f"{hashlib.sha256(text).hexdigest()[:16]}.parquet"  # determined by its keys
        draft = self.folder / f".{name}.{os.getpid()}{atomic_write.SUFFIX}"
        with atomic_write.writing(self.folder / name):
            try:
                pq.write_table(rows, draft)
                os.replace(draft, self.folder / name)
            except OSError:
                draft.unlink(missing_ok=True)
                raise
        self.published.update(readable)
        if self._parts is not None:
            self._parts[name] = frozenset(readable)
        return problem

    def _part_keys(self, part: Path) -> frozenset[str]:
        """The keys of the results in a part; empty if it cannot be read, or was not written for this run."""
        try:
            metadata = pq.read_schema(part).metadata or {}
        except (OSError, pa.ArrowException):
            return frozenset()
        if metadata.get(RUN) != self.run.encode():
            return frozenset()
        return frozenset(metadata.get(KEYS, b"").decode().split(",")) - {""}
