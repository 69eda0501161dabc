"""The store: key -> Arrow table with its record, whole or absent. It is the only persistent state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import StoreError
from orchestrator.store.interface import Store, WriteEffect
from orchestrator.store.marker import is_blank
from tasks.contract.extras import OBSTORE, describe_missing, missing

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DEFAULT_STORE", "Store", "WriteEffect", "is_there", "list_once", "open_store", "read_each", "stored_keys"]

DEFAULT_STORE = "./engram-store"
_listed: ContextVar[dict[str, Set[str]] | None] = ContextVar("listed", default=None)


def open_store(location: str | Path, create: bool = True) -> Store:
    """Open the store at a path, `file://` URI or in a bucket; with `create`, make it if there is none.

    A bucket is `s3://bucket/prefix`, or Azure's `az://container/prefix`.

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

    from orchestrator.store.mirror import JOURNEYS

    pool = ThreadPoolExecutor(JOURNEYS, "read")
    try:
        yield from pool.map(read, keys)
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def list_once() -> Iterator[None]:
    """Let `stored_keys` list each store at most once inside; what is stored meanwhile is not seen.

    A listing reads a folder per first two characters of the keys, or a page of a bucket per thousand results. The pages
    and answers of a sweep look at the keys many times for each cell.
    """
    if _listed.get() is not None:
        yield
        return
    token = _listed.set({})
    try:
        yield
    finally:
        _listed.reset(token)


def stored_keys(store: Store) -> Set[str]:
    """The keys of all results, by `store.keys()`; inside `list_once` from its first call there."""
    listed = _listed.get()
    if listed is None:
        return store.keys()
    if store.location not in listed:
        listed[store.location] = frozenset(store.keys())
    return listed[store.location]


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
    if scheme.lower() in ("s3", "az"):
        if missing([OBSTORE]):
            raise StoreError(describe_missing([OBSTORE]))
        return None
    raise StoreError(
        f"cannot open the store {location}: give a local path, file:///path, s3://bucket/prefix or az://container/prefix"
    )


def _readable(path: Path) -> Path:
    """This path. Raises StoreError unless it is valid UTF-8, since Arrow opens no other path."""
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError:
        raise StoreError(f"cannot open the store {path}: its path must be valid UTF-8") from None
    return path
