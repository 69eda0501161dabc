"""What a store can do, wherever it is, and the effect of a write."""

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
    """The effect of a write. In each case the key has a sound result afterwards."""

    NEW = "new"
    SAME = "same"  # the key had the same result already
    CONFLICT = "conflict"  # the key had a different result, which stays; the new one is stored in conflicts/


class Store(Protocol):
    """Key -> Arrow table with its record, whole or absent. Keys are lower-case hexadecimal."""

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
        another StoreError (Unreadable in a folder) if it is unknown for now whether the result is sound.
        """

    def record(self, key: str, check: bool = True) -> Mapping[str, Any]:
        """The record stored with the table; checked like `read`, with the same errors.

        With `check=False` only the end of the file is read, which is fast: for provenance, not for values.
        """

    def write(self, key: str, table: pa.Table, record: Mapping[str, Any]) -> WriteEffect:
        """Store a result; it is durable when this returns. A sound result is never replaced.

        The record is JSON; `key` and `content` (the digest of schema and values) are added to it. Raises Unwritable
        if the store refuses writes, TypeError if the table or the record cannot be stored at all.
        """

    def stamps(self, keys: Iterable[str]) -> Mapping[str, str]:
        """What tells a file from one with other bytes, without reading it; of the results that have such a stamp.

        While a result has the same stamp as when it was verified, no program has written to it. It has none where the
        store cannot tell that, or could not tell it from a change just now.
        """

    def verify(self, keys: Iterable[str]) -> Iterator[tuple[str, StoreError]]:
        """Yield (key, the error that `read` would raise) for unsound results, in order; set damaged ones aside."""

    def write_failure(self, key: str, text: str) -> None:
        """Store the traceback of a failed job, replacing an earlier one."""

    def failure(self, key: str) -> str | None:
        """The traceback stored for this key; None if there is none."""

    def clear_failure(self, key: str) -> None:
        """Remove the traceback stored for this key, if there is one."""

    def state(self, key: str) -> bytes:
        """The state of a training at the end of this key's link, after every byte was checked against its digest.

        Raises Absent, or Damaged once it is removed: without it the next link only starts from an earlier state.
        """

    def write_state(self, key: str, data: bytes) -> None:
        """Store a state durably, replacing an earlier one. Raises Unwritable."""

    def remove_state(self, key: str) -> None:
        """Remove a state, if it exists. Raises Unwritable."""

    def states(self) -> set[str]:
        """The keys of all stored checkpoints."""

    def read_run_file(self, run: str, name: str) -> bytes | None:
        """The bytes that a run keeps under a file name in its folder; None if there are none."""

    def keep_run_file(self, run: str, name: str, data: bytes) -> bytes:
        """Keep these bytes for a run unless the name is taken; return the bytes kept under it.

        Durable when this returns, and never replaced: of several writers the first wins, and all get its bytes.
        """

    def set_aside_run_file(self, run: str, name: str, data: bytes, why: str) -> None:
        """Set aside the bytes that a run keeps under a name, if they are still `data`."""

    def files(self, folder: str) -> dict[str, int]:
        """The bytes of each file below one of the store's folders, by its name in the store: results/ab/KEY.arrow."""

    def irregular_files(self, folder: str) -> dict[str, str]:
        """What lies below one of the store's folders and is no file of it, by name, with the reason.

        Links and pipes in a folder; objects whose names are no paths in a bucket.
        """

    def read_file(self, name: str) -> bytes:
        """The bytes of the file of this name in the store, unchecked. Raises Absent, or another StoreError."""

    def create_file(self, name: str, data: bytes) -> bool:
        """Write a file durably unless there is one of this name; whether it was written. Raises Unwritable."""

    def replace_file(self, name: str, data: bytes) -> None:
        """Write a file durably, replacing an existing one. Raises Unwritable."""

    def remove(self, name: str) -> None:
        """Remove the file of this name in the store, if it exists. Raises Unwritable."""

    def digests(self) -> MutableMapping[str, str]:
        """A cache of digests of files outside the store; it may be empty at any time."""

    def folder(self, *parts: str) -> Path:
        """A folder of the store on this machine, created if needed; `runs` includes what other machines wrote."""
