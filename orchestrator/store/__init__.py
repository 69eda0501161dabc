"""The store: key -> Arrow table with its record, whole or absent. It is the only state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from orchestrator.errors import StoreError

if TYPE_CHECKING:
    import pyarrow as pa

    from orchestrator.store.mirror import Mirror


DEFAULT_STORE = "./engram-store"  # where nothing else is said
KEPT = "ways"  # the folder of a run's folder that holds what it keeps
JOURNEYS = 16  # requests at one time to a store elsewhere: each waits for the network


class Written(Enum):
    """What a write did. In each case the key has a sound result afterwards."""

    NEW = "new"
    SAME = "same"  # the key had it already
    CONFLICT = "conflict"  # the key has another one, which stays; this one lies in conflicts/


class Store(Protocol):
    """Key -> Arrow table with its record, whole or absent. Keys are lower-case hexadecimal."""

    @property
    def location(self) -> str:
        """The location by which workers open this store."""

    @property
    def mirror(self) -> Mirror | None:
        """What keeps the folders of runs in step with a store elsewhere; None where they lie in the store itself."""

    def __contains__(self, key: object) -> bool:
        """Whether a result is stored under this key, by its name alone: a damaged one counts until it is read."""

    def keys(self) -> set[str]:
        """The keys of all results, by their names alone."""

    def read(self, key: str) -> pa.Table:
        """The table, after a digest over every byte.

        Raises Absent; Damaged once the file is set aside; Unwritable where it is damaged and cannot be; another
        StoreError (Unreadable in a folder) where nobody can say for now whether it is sound.
        """

    def record(self, key: str, check: bool = True) -> Mapping[str, Any]:
        """The record stored with the table; checked, and raises, like `read`.

        Unchecked only the file's end is read, which is quick: for telling how results came about, not what they are.
        """

    def write(self, key: str, table: pa.Table, record: Mapping[str, Any]) -> Written:
        """Store a result, durably before this returns. A sound result is never replaced.

        The record is JSON; `key` and `content` (the digest of schema and values) are added to it. Raises Unwritable
        where the store refuses writes, TypeError where table or record cannot be stored at all.
        """

    def verify(self, keys: Iterable[str]) -> Iterator[tuple[str, StoreError]]:
        """Yield (key, error that `read` would raise) of unsound results, in order; damaged ones are set aside."""

    def write_failure(self, key: str, text: str) -> None:
        """Store the traceback of a failed job, replacing an earlier one."""

    def failure(self, key: str) -> str | None:
        """The traceback stored for this key; None where there is none."""

    def clear_failure(self, key: str) -> None:
        """Forget it, if there is one."""

    def state(self, key: str) -> bytes:
        """The state of a training at the end of this key's link, after a digest over every byte.

        Raises Absent, or Damaged once it is removed: without it the next link starts further back, no more.
        """

    def write_state(self, key: str, data: bytes) -> None:
        """Store a state durably, replacing an earlier one. Raises Unwritable."""

    def remove_state(self, key: str) -> None:
        """Remove it, if it is there. Raises Unwritable."""

    def states(self) -> set[str]:
        """The keys of all stored checkpoints."""

    def kept(self, run: str, name: str) -> bytes | None:
        """The bytes that a run keeps under a file's name in its folder; None where there are none."""

    def keep(self, run: str, name: str, data: bytes) -> bytes:
        """Keep these bytes for a run unless there are some under that name; return those that are kept.

        Durable before it returns, and never replaced: of several writers the first wins, and all are given its bytes.
        """

    def unkeep(self, run: str, name: str, data: bytes, why: str) -> None:
        """Set aside what a run keeps under a name, if it still is `data`."""

    def digests(self) -> MutableMapping[str, str]:
        """A cache of digests of files elsewhere, which may be empty at any time."""

    def folder(self, *parts: str) -> Path:
        """A folder of the store on this machine, made if need be; `runs` includes what other machines wrote."""


def open_store(location: str | Path, create: bool = True) -> Store:
    """The store at a path, `file://` URI or `s3://bucket/prefix`, made if need be and allowed.

    StoreError says in one line why a place cannot be one: not a store, a newer format, an unreadable marker, a bucket
    that cannot be reached, a scheme that is not supported. Nothing is written over what is there. Any number of
    processes may make it at once.
    """
    path = _path(location)
    if path is None:
        from orchestrator.store.objects import ObjectStore

        return ObjectStore(str(location), create)
    from orchestrator.store.local import LocalStore  # with pyarrow, which a command may do without

    return LocalStore(path, create)


def read_each(store: Store, keys: Iterable[str]) -> Iterator[tuple[str, pa.Table | StoreError | OSError]]:
    """Each key with its table, or the error that reading it raised, in order; concurrently from a store elsewhere."""

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
    """Whether something is at a store's location: a file or folder, or in a bucket a store. StoreError as above."""
    path = _path(location)
    if path is not None:
        try:
            return path.exists()
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
            return Path(location).expanduser()
        except RuntimeError:
            raise StoreError(f"cannot open the store {location}: there is no home of that name") from None
    if scheme.lower() == "file" and rest.startswith("/"):
        from urllib.parse import unquote

        return Path(unquote(rest))
    if scheme.lower() == "s3":
        return None
    raise StoreError(f"cannot open the store {location}: give a local path, file:///path or s3://bucket/prefix")
