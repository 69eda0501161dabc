"""A run's tables: the results behind each root, one after another, and the same as Parquet parts for other readers."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from orchestrator.errors import Absent, Unwritable
from orchestrator.store import Store, read_each

KEYS = b"engram.keys"  # in a part's metadata: whose results it holds
PART = 64  # results in a part at most


def read(store: Store, keys: Iterable[str]) -> pa.Table | None:
    """The rows of these results, one after another; what is not there yet is left out. None if nothing is."""
    parts = []
    for _, table in read_each(store, keys):
        if isinstance(table, Absent):
            continue
        if isinstance(table, Exception):
            raise table
        parts.append(table)
    return pa.concat_tables(parts) if parts else None


class Publisher:
    """Keeps a folder of Parquet parts for one table: each result behind the root is in exactly one of them."""

    def __init__(self, folder: Path, store: Store, keys: Sequence[str]) -> None:
        self.folder = folder
        self.store = store
        self.keys = keys
        self.published: set[str] = set()
        wanted = set(keys)
        for part in sorted(folder.glob("*.parquet")):
            held = _held(part)
            if held and self.published.isdisjoint(held) and held <= wanted:
                self.published |= held
            else:  # torn, of other inputs, or twice
                part.unlink()

    def publish(self, stored: Iterable[str]) -> None:
        """Write the parts of those of the table's results that are stored and in none yet."""
        there = set(stored)
        fresh = [key for key in self.keys if key in there and key not in self.published]
        for start in range(0, len(fresh), PART):
            self._write(fresh[start : start + PART])

    def _write(self, keys: list[str]) -> None:
        rows = read(self.store, keys)
        if rows is None:
            return
        table = rows.replace_schema_metadata({KEYS: ",".join(keys).encode()})
        path = self.folder / f"{hashlib.sha256(','.join(keys).encode()).hexdigest()[:16]}.parquet"
        aside = path.with_suffix(f".{os.getpid()}.tmp")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            pq.write_table(table, aside)
            os.replace(aside, path)
        except OSError as error:
            aside.unlink(missing_ok=True)
            raise Unwritable(f"cannot write {path}: {error.strerror or error}") from None
        self.published.update(keys)


def _held(part: Path) -> set[str]:
    try:
        metadata = pq.read_schema(part).metadata or {}
    except (OSError, pa.ArrowException):
        return set()
    return set(metadata.get(KEYS, b"").decode().split(",")) - {""}
