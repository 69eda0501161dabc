"""A store over the few file operations of a folder (`local.py`) or a bucket (`objects.py`).

This module has the common rules: which of two results of a key is kept, the errors of readers, and the storage of
tracebacks, checkpoints and files of a run.

Three rules belong to each kind of store, because they depend on the guarantees of its files. A damaged result in a
folder is renamed under a lock if it still has the inode that was read; a bucket has neither locks nor renaming, so the
bytes are compared, copied to quarantine, and only then deleted. The keys in a folder are listed by the first two
characters; a listing of a bucket must distinguish an empty store from a deleted bucket. Results in a folder are
verified without parsing, with threads only if the disk is slow; each result in a bucket waits for the network.
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
    """The common part of stores in folders and buckets; `Store` documents the public methods.

    Names of files are relative to the store, as in `results/ab/KEY.arrow`. Reading raises FileNotFoundError for a file
    that does not exist, CorruptError if the disk cannot return its bytes, and another StoreError if its state is
    unknown. Writing raises Unwritable.
    """

    location: str
    obstacle: ClassVar[str]  # why a key cannot be written after ATTEMPTS

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""

    @abstractmethod
    def _create(self, name: str, *parts: bytes | memoryview, verifies_itself: bool = False) -> bool:
        """Write a file durably unless one of this name exists; return whether it was written."""

    @abstractmethod
    def _put(self, name: str, *parts: bytes | memoryview) -> None:
        """Write a file durably, replacing an existing one."""

    @abstractmethod
    def _get(self, name: str) -> memoryview:
        """The bytes of a file."""

    @abstractmethod
    def _names(self, folder: str) -> Iterable[str]:
        """The names of the files in a folder, without the folder."""

    @abstractmethod
    def _checked_bytes(self, key: str) -> AbstractContextManager[pa.Buffer]:
        """All bytes of a result, checked against their digest. A corrupt result is set aside."""

    @abstractmethod
    def _unchecked_record(self, key: str) -> Mapping[str, Any]:
        """The record of a result, from the end of its file only."""

    @abstractmethod
    def _content_before_write(self, key: str) -> str | None:
        """As `_content`, but an error of reading is raised as Unwritable, since the key cannot be written."""

    @abstractmethod
    def _make_durable(self, name: str) -> None:
        """Make an existing result durable, since its writer may have died before it did so."""

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
        """The content digest of the intact result of this key; None if there is none. A damaged one is set aside."""
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
        """Keys with a traceback, cached at the first access: few jobs have one, and each look-up takes time."""
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
    """The name in the store of a file that a run keeps."""
    return f"runs/{run}/{SHARED_FOLDER}/{name}"
