"""The store: key -> Arrow table with its record, whole or absent. It is the only persistent state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from orchestrator.errors import StoreError
from orchestrator.store.marker import is_blank

if TYPE_CHECKING:
    import pyarrow as pa

    from orchestrator.store.mirror import Mirror


DEFAULT_STORE = "./engram-store"
KEPT = "ways"  # the folder in a run's folder for the files that the run keeps
JOURNEYS = 16  # concurrent requests to a remote store: each waits for the network


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

    def digests(self) -> MutableMapping[str, str]:
        """A cache of digests of files outside the store; it may be empty at any time."""

    def folder(self, *parts: str) -> Path:
        """A folder of the store on this machine, created if needed; `runs` includes what other machines wrote."""


def open_store(location: str | Path, create: bool = True) -> Store:
    """Open the store at a path, `file://` URI or `s3://bucket/prefix`; with `create`, make it if there is none.

    Raises StoreError, in one line, if the location cannot be a store: other files there, a newer format, an unreadable
    marker, a bucket that cannot be reached, a scheme that is not supported. Existing files are never overwritten. Any
    number of processes may create it at once.
    """
    path = _path(location)
    if path is None:
        from orchestrator.store.objects import ObjectStore

        return ObjectStore(str(location), create)
    from orchestrator.store.local import LocalStore  # imports pyarrow, which some commands do not need

    return LocalStore(path, create)


def read_each(store: Store, keys: Iterable[str]) -> Iterator[tuple[str, pa.Table | StoreError | OSError]]:
    """Each key with its table, or the error that reading it raised, in order; concurrently from a remote store."""

    def read(key: str) -> tuple[str, pa.Table | StoreError | OSError]:
        try:
            return key, store.read(key)
        except (StoreError, OSError) as error:
            return key, error

    if store.mirror is None:
        yield from map(read, keys)
        return
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(JOURNEYS, "read")
    try:
        yield from pool.map(read, keys)
    finally:
        pool.shutdown(cancel_futures=True)


def is_there(location: str | Path) -> bool:
    """Whether a file or a folder that is not empty, or in a bucket a store, is there. Raises as `open_store` does."""
    path = _path(location)
    if path is not None:
        try:
            return path.exists() and not is_blank(path)
        except OSError as error:
            raise StoreError(f"cannot open the store {location}: {error.strerror}") from None
    from orchestrator.store import objects
    from orchestrator.store.bucket import Bucket

    return objects.is_there(Bucket(str(location)))


def _path(location: str | Path) -> Path | None:
    """The local path of a store; None for one in an object store."""
    if "\0" in str(location):
        raise StoreError(f"cannot open the store {str(location)!r}: no path holds a NUL")
    scheme, separator, rest = str(location).partition("://")
    if not separator:
        try:
            return _readable(Path(location).expanduser())
        except RuntimeError:
            raise StoreError(f"cannot open the store {location}: there is no home of that name") from None
    if scheme.lower() == "file" and rest.startswith("/"):
        from urllib.parse import unquote

        return _readable(Path(unquote(rest)))
    if scheme.lower() == "s3":
        return None
    raise StoreError(f"cannot open the store {location}: give a local path, file:///path or s3://bucket/prefix")


def _readable(path: Path) -> Path:
    """This path. Raises StoreError unless it is valid UTF-8, since Arrow opens no other path."""
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError:
        raise StoreError(f"cannot open the store {path}: its path must be valid UTF-8") from None
    return path
