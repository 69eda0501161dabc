"""The interface of a store, and the effect of a write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from orchestrator.errors import StoreError

if TYPE_CHECKING:
    import pyarrow as pa

    from orchestrator.store.mirror import Mirror


class WriteEffect(Enum):
    """The effect of a write. In each case the key has an intact result afterwards."""

    NEW = "new"
    SAME = "same"  # the key already had the same result
    CONFLICT = "conflict"  # the key had a different result, which is kept; the new one is stored in conflicts/


class Store(Protocol):
    """Key -> Arrow table with its record, complete or absent. Keys are lower-case hexadecimal."""

    @property
    def location(self) -> str:
        """The location with which workers open this store."""

    @property
    def mirror(self) -> Mirror | None:
        """Synchronises the runs' folders with a remote store; None if they are in the store itself."""

    def __contains__(self, key: object) -> bool:
        """Whether a result is stored under this key, by file name alone: a damaged one counts until it is read."""

    def keys(self) -> set[str]:
        """The keys of all results, by file name alone."""

    def read(self, key: str) -> pa.Table:
        """The table, after every byte was checked against its digest.

        Raises Absent; Damaged once the file is set aside; Unwritable if it is damaged and cannot be set aside;
        another StoreError (Unreadable in a folder) if the state of the result is unknown at present.
        """

    def record(self, key: str, check: bool = True) -> Mapping[str, Any]:
        """The record stored with the table; checked as in `read`, with the same errors.

        With `check=False` only the end of the file is read, which is fast: for provenance, not for values.
        """

    def write(self, key: str, table: pa.Table, record: Mapping[str, Any]) -> WriteEffect:
        """Store a result; it is durable when this returns. An intact result is never replaced.

        The record is JSON; `key` and `content` (the digest of schema and values) are added to it. Raises Unwritable
        if the store refuses writes, TypeError if the table or the record cannot be stored at all.
        """

    def stamps(self, keys: Iterable[str]) -> Mapping[str, str]:
        """Stamps that identify the bytes of results without reading them; results without a stamp are omitted.

        While a result has the stamp from its verification, no program has written to it. A result has no stamp if the
        store cannot guarantee this, or if it was changed just now.
        """

    def verify(self, keys: Iterable[str]) -> Iterator[tuple[str, StoreError]]:
        """Yield (key, the error that `read` would raise) for faulty results, in order; set damaged ones aside."""

    def write_failure(self, key: str, text: str) -> None:
        """Store the traceback of a failed job, replacing an earlier one."""

    def failure(self, key: str) -> str | None:
        """The traceback stored for this key; None if there is none."""

    def clear_failure(self, key: str) -> None:
        """Remove the traceback stored for this key, if there is one."""

    def state(self, key: str) -> bytes:
        """The checkpoint at the end of this key's link, after every byte was checked against its digest.

        Raises Absent, or Damaged once it is removed: the next link then starts from an earlier checkpoint.
        """

    def write_state(self, key: str, data: bytes) -> None:
        """Store a checkpoint durably, replacing an earlier one. Raises Unwritable."""

    def remove_state(self, key: str) -> None:
        """Remove a checkpoint if it exists. Raises Unwritable."""

    def states(self) -> set[str]:
        """The keys of all stored checkpoints."""

    def read_run_file(self, run: str, name: str) -> bytes | None:
        """The bytes that a run keeps under a file name in its folder; None if there are none."""

    def keep_run_file(self, run: str, name: str, data: bytes) -> bytes:
        """Store these bytes for a run unless the name is taken; return the bytes stored under the name.

        Durable when this returns, and never replaced: the first of several writers wins, and all get its bytes.
        """

    def set_aside_run_file(self, run: str, name: str, data: bytes, reason: str) -> None:
        """Set aside the bytes that a run keeps under a name, if they are still `data`."""

    def files(self, folder: str) -> dict[str, int]:
        """The bytes of each file below one of the store's folders, by its name in the store: results/ab/KEY.arrow."""

    def irregular_files(self, folder: str) -> dict[str, str]:
        """Entries below one of the store's folders that are not regular files, by name, with the reason.

        In a folder these are links and pipes; in a bucket, objects whose names are not paths.
        """

    def read_file(self, name: str) -> bytes:
        """The bytes of the file of this name in the store, unchecked. Raises Absent, or another StoreError."""

    def create_file(self, name: str, data: bytes) -> bool:
        """Write a file durably unless one of this name exists; return whether it was written. Raises Unwritable."""

    def replace_file(self, name: str, data: bytes) -> None:
        """Write a file durably, replacing an existing one. Raises Unwritable."""

    def remove(self, name: str) -> None:
        """Remove the file of this name in the store if it exists. Raises Unwritable."""

    def digests(self) -> MutableMapping[str, str]:
        """A cache of digests of files outside the store; it may be empty at any time."""

    def folder(self, *parts: str) -> Path:
        """A folder of the store on this machine, created if needed; `runs` includes files from other machines."""
