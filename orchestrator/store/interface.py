"""The store interface and the possible effects of a write."""

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
    """The effect of a write. In each case, the key has an intact result afterwards."""

    NEW = "new"
    SAME = "same"  # the key already had this result
    CONFLICT = "conflict"  # the key had a different result, which is kept; the new one goes to conflicts/


class Store(Protocol):
    """Maps each key to an Arrow table and its record. Keys are lower-case hexadecimal.

    An entry is either complete or absent.
    """

    @property
    def location(self) -> str:
        """The location with which workers open this store."""

    @property
    def mirror(self) -> Mirror | None:
        """Synchronises run folders with a remote store. None if they are in the store itself."""

    def __contains__(self, key: object) -> bool:
        """Whether a result is stored under this key.

        Only the file name counts, so a damaged result counts until it is read.
        """

    def keys(self) -> set[str]:
        """Return the keys of all results, from file names alone."""

    def read(self, key: str) -> pa.Table:
        """Return the table after checking every byte against its digest.

        Raises Absent if there is no result; Damaged once a damaged file has been set aside; Unwritable if it is damaged
        and cannot be set aside; and another StoreError (in a folder, Unreadable) if the state of the result is
        currently unknown.
        """

    def record(self, key: str, check: bool = True) -> Mapping[str, Any]:
        """Return the record stored with the table, with the same checks and errors as `read`.

        With `check=False`, only the end of the file is read. This is fast and suits provenance, but not values.
        """

    def write(self, key: str, table: pa.Table, record: Mapping[str, Any]) -> WriteEffect:
        """Store a result durably. An intact result is never replaced.

        The record is JSON; `key` and `content` (the digest of schema and values) are added to it. Raises Unwritable if
        the store refuses writes, and TypeError if the table or record cannot be stored at all.
        """

    def stamps(self, keys: Iterable[str]) -> Mapping[str, str]:
        """Return stamps that identify the bytes of results without reading them. Results without a stamp are omitted.

        While a result keeps the stamp from its verification, no program has written to it. A result has no stamp if the
        store cannot guarantee this or the result has only just changed.
        """

    def verify(self, keys: Iterable[str]) -> Iterator[tuple[str, StoreError]]:
        """Yield each faulty result's key, in order, with the error that `read` would raise.

        Damaged results are set aside.
        """

    def write_failure(self, key: str, text: str) -> None:
        """Store the traceback of a failed job, replacing an earlier one."""

    def failure(self, key: str) -> str | None:
        """Return the traceback stored for this key. Returns None if there is none."""

    def clear_failure(self, key: str) -> None:
        """Remove the traceback stored for this key if there is one."""

    def state(self, key: str) -> bytes:
        """Return the checkpoint that this key's link of a training left, after checking every byte against its digest.

        Raises Absent, or Damaged once a damaged checkpoint has been removed. The next link then starts from an
        earlier checkpoint.
        """

    def write_state(self, key: str, data: bytes) -> None:
        """Store a checkpoint durably, replacing an earlier one. Raises Unwritable."""

    def remove_state(self, key: str) -> None:
        """Remove a checkpoint if it exists. Raises Unwritable."""

    def states(self) -> set[str]:
        """Return the keys of all stored checkpoints."""

    def read_run_file(self, run: str, name: str) -> bytes | None:
        """Return the bytes that a run keeps under this file name in its folder. Returns None if there are none."""

    def keep_run_file(self, run: str, name: str, data: bytes) -> bytes:
        """Store bytes for a run unless the name is taken. Returns the bytes stored under the name.

        They are durable when this returns and never replaced: the first of several writers wins, and all get its bytes.
        """

    def set_aside_run_file(self, run: str, name: str, data: bytes, reason: str) -> None:
        """Set aside the bytes that a run keeps under a name, provided they are still `data`."""

    def files(self, folder: str) -> dict[str, int]:
        """Return the size in bytes of each file below a folder of the store.

        Keys are names in the store, such as results/ab/KEY.arrow.
        """

    def irregular_files(self, folder: str) -> dict[str, str]:
        """Return the entries below a store folder that are not regular files, by name, each with the reason.

        In a folder, these are links and pipes; in a bucket, objects whose names are not paths.
        """

    def read_file(self, name: str) -> bytes:
        """Return the unchecked bytes of a file in the store. Raises Absent or another StoreError."""

    def create_file(self, name: str, data: bytes) -> bool:
        """Write a file durably unless the name is taken. Returns whether it was written. Raises Unwritable."""

    def replace_file(self, name: str, data: bytes) -> None:
        """Write a file durably, replacing an existing one. Raises Unwritable."""

    def remove(self, name: str) -> None:
        """Remove the file of this name in the store if it exists. Raises Unwritable."""

    def digests(self) -> MutableMapping[str, str]:
        """A cache of digests for files outside the store. It may be empty at any time."""

    def folder(self, *parts: str) -> Path:
        """Return a folder of the store on this machine, creating it if needed.

        `runs` includes files from other machines.
        """
