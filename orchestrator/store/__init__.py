"""The store: key -> Arrow table with its record, whole or absent. It is the only persistent state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import StoreError
from orchestrator.store.interface import Store, WriteEffect
from orchestrator.store.marker import is_blank

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DEFAULT_STORE", "Store", "WriteEffect", "is_there", "open_store", "read_each"]

DEFAULT_STORE = "./engram-store"


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

    from orchestrator.store.mirror import JOURNEYS

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
