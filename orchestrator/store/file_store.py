"""A store built on the few file operations that a folder (`local.py`) or a bucket (`objects.py`) provides.

This module contains the common rules: which of two results for a key is kept, which errors readers see, and how
tracebacks, checkpoints and run files are stored.

Three rules are specific to each kind of store because they depend on the guarantees of its files. First, a damaged
result in a folder is renamed under a lock if it still has the inode that was read. A bucket supports neither locks nor
renaming, so the bytes are compared, copied to quarantine, and only then deleted. Second, keys in a folder are listed by
their first two characters, whereas a bucket listing must distinguish an empty store from a deleted bucket. Third,
results in a folder are verified without parsing, using threads only if the disk is slow; in a bucket, each result waits
for the network.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any, ClassVar

import pyarrow as pa

from orchestrator.errors import Absent, Damaged, StoreError, Unreadable, Unwritable
from orchestrator.store import entry
from orchestrator.store.entry import FAILURES, STATES, content
from orchestrator.store.interface import WriteEffect
from orchestrator.store.lease import SHARED_FOLDER

ATTEMPTS = 8  # a damaged file or another writer may block a name for a while


class FileStore(ABC):
    """Base class of stores in folders and buckets. `Store` documents the public methods.

    File names are relative to the store, as in `results/ab/KEY.arrow`. Reading raises FileNotFoundError if the file
    does not exist, CorruptError if the disk cannot return its bytes, and another StoreError if its state is unknown.
    Writing raises Unwritable.
    """

    location: str
    obstacle: ClassVar[str]  # reason why a key could not be written in ATTEMPTS tries

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file if it exists."""

    @abstractmethod
    def _create(self, name: str, *parts: bytes | memoryview, verifies_itself: bool = False) -> bool:
        """Write a file durably unless the name is taken. Returns whether it was written."""

    @abstractmethod
    def _put(self, name: str, *parts: bytes | memoryview) -> None:
        """Write a file durably, replacing an existing one."""

    @abstractmethod
    def _get(self, name: str) -> memoryview:
        """Return the bytes of a file."""

    @abstractmethod
    def _names(self, folder: str) -> Iterable[str]:
        """Return the names of the files in a folder, without the folder."""

    @abstractmethod
    def _checked_bytes(self, key: str) -> AbstractContextManager[pa.Buffer]:
        """Yield all bytes of a result, checked against their digest. A corrupt result is set aside."""

    @abstractmethod
    def _unchecked_record(self, key: str) -> Mapping[str, Any]:
        """Return the record of a result, reading only the end of its file."""

    @abstractmethod
    def _content_before_write(self, key: str) -> str | None:
        """Like `_content`, but a read error is raised as Unwritable because the key cannot be written."""

    @abstractmethod
    def _make_durable(self, name: str) -> None:
        """Make an existing result durable, because its writer may have died before doing so."""

    def read(self, key: str) -> pa.Table:
        with self._checked_bytes(key) as data:
            return entry.unseal(data, key)

    def record(self, key: str, check: bool = True) -> Mapping[str, Any]:
        if not check:
            return self._unchecked_record(key)
        with self._checked_bytes(key) as data:
            return entry.record_of(data, key)

    def write(self, key: str, table: pa.Table, record: Mapping[str, Any]) -> WriteEffect:
        name = entry.result_name(key)
        digest = content(table)
        parts = entry.seal(table, {**record, "key": key, "content": digest})
        for _ in range(ATTEMPTS):
            if self._create(name, *parts, verifies_itself=True):
                return WriteEffect.NEW
            stored_digest = self._content_before_write(key)
            if stored_digest == digest:
                self._make_durable(name)
                return WriteEffect.SAME
            if stored_digest is not None:
                self._create(entry.conflict_name(key, digest), *parts, verifies_itself=True)
                return WriteEffect.CONFLICT
        raise Unwritable(f"cannot write {self.location}/{name}: {self.obstacle}")

    def _content(self, key: str) -> str | None:
        """Return the content digest of the intact result for this key. Returns None if there is none.

        A damaged result is set aside.
        """
        try:
            return str(self.record(key)["content"])
        except (Absent, Damaged):
            return None

    def write_failure(self, key: str, text: str) -> None:
        self._put(entry.failure_name(key), text.encode(errors="replace"))
        self._failed.add(key)

    def failure(self, key: str) -> str | None:
        name = entry.failure_name(key)
        try:
            return self._get(name).tobytes().decode(errors="replace")
        except FileNotFoundError:
            return None
        except entry.CorruptError as error:
            raise Unreadable(f"cannot read {self.location}/{name}: {error}") from None

    def clear_failure(self, key: str) -> None:
        if key in self._failed:
            self.remove(entry.failure_name(key))
            self._failed.discard(key)

    @cached_property
    def _failed(self) -> set[str]:
        """Keys with a traceback, cached on first access: few jobs have one, and each lookup takes time."""
        return entry.keys_of(self._names(FAILURES), entry.FAILURE_SUFFIX)

    def state(self, key: str) -> bytes:
        try:
            return entry.unseal_state(key, self._get(entry.state_name(key)))
        except FileNotFoundError:
            raise Absent(f"no state {key} in {self.location}") from None
        except (entry.CorruptState, entry.CorruptError) as error:
            raise entry.remove_damaged_state(self, key, error) from None

    def write_state(self, key: str, data: bytes) -> None:
        self._put(entry.state_name(key), *entry.seal_state(key, data))

    def remove_state(self, key: str) -> None:
        self.remove(entry.state_name(key))

    def states(self) -> set[str]:
        return entry.keys_of(self._names(STATES), entry.STATE_SUFFIX)

    def read_run_file(self, run: str, name: str) -> bytes | None:
        try:
            return self._get(run_file_name(run, name)).tobytes()
        except FileNotFoundError:
            return None
        except entry.CorruptError:
            return b""  # differs from any stored bytes

    def keep_run_file(self, run: str, name: str, data: bytes) -> bytes:
        path = run_file_name(run, name)
        for _ in range(ATTEMPTS):
            if self._create(path, data):
                return data
            existing_data = self.read_run_file(run, name)
            if existing_data is not None:  # otherwise it has just been set aside
                return existing_data
        raise StoreError(f"the file {self.location}/{path} repeatedly appears and disappears")


def run_file_name(run: str, name: str) -> str:
    """Return the name in the store of a file kept by a run."""
    return f"runs/{run}/{SHARED_FOLDER}/{name}"
