"""The store, which maps each key to an Arrow table and its record. An entry is either complete or absent.

It is the only persistent state.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import SpecError, StoreError
from orchestrator.store.interface import Store, WriteEffect
from orchestrator.store.marker import is_blank
from tasks.contract.extras import OBSTORE, describe_missing, missing

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "DEFAULT_STORE",
    "Store",
    "WriteEffect",
    "given_location",
    "is_there",
    "list_once",
    "local_path",
    "open_store",
    "read_each",
    "store_location",
    "stored_keys",
]

DEFAULT_STORE = "./engram-store"
STORE_VARIABLE = "ENGRAM_STORE"
# `s3:/bucket` is a mistyped URI. Read as a path, it would name a folder.
MISTYPED_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(/|$)|(s3|az|gs|abfs|https?|file):", re.IGNORECASE)
_keys_by_store: ContextVar[dict[str, Set[str]] | None] = ContextVar("listed", default=None)


def store_location(location: str | None) -> str:
    """Return the location of the store: the given one, else ENGRAM_STORE, else the default.

    Raises SpecError if either is set but empty, as happens when a script passes an unset variable. Falling back to the
    default would then use an unintended store.
    """
    return given_location(location) or DEFAULT_STORE


def given_location(location: str | None) -> str | None:
    """Return the given location, else ENGRAM_STORE, else None. Raises the same errors as `store_location`."""
    if location is not None:
        if not location.strip():
            raise SpecError("the store's location is empty; give a folder or bucket, or leave out --store")
        _check_location(location)
        return location
    from_environment = os.environ.get(STORE_VARIABLE)
    if from_environment is not None and not from_environment.strip():
        raise SpecError(f"{STORE_VARIABLE} is set but empty; give a folder or bucket, or unset it")
    if from_environment is not None:
        _check_location(from_environment)
    return from_environment


def open_store(location: str | Path, create: bool = True) -> Store:
    """Open the store at a path, at a `file://` URI or in a bucket. With `create`, create it if it does not exist.

    A bucket is given as `s3://bucket/prefix`, or on Azure as `az://container/prefix`.

    Raises StoreError if the location cannot be a store: it contains other files, a newer format or an unreadable
    marker, the bucket cannot be reached, or the scheme is not supported. Existing files are never overwritten. Several
    processes may create the same store at once.
    """
    path = local_path(location)
    if path is None:
        from orchestrator.store.objects import ObjectStore

        return ObjectStore(str(location), create)
    from orchestrator.store.local import LocalStore  # imports pyarrow, which some commands do not need

    return LocalStore(path, create)


def read_each(store: Store, keys: Iterable[str]) -> Iterator[tuple[str, pa.Table | StoreError | OSError]]:
    """Yield each key, in order, with the table or the error from reading it. A remote store is read concurrently."""

    def read(key: str) -> tuple[str, pa.Table | StoreError | OSError]:
        try:
            return key, store.read(key)
        except (StoreError, OSError) as error:
            return key, error

    if store.mirror is None:
        yield from map(read, keys)
        return
    from orchestrator.store.mirror import JOURNEYS
    from orchestrator.store.threads import thread_pool

    with thread_pool(JOURNEYS, "read") as pool:
        yield from pool.map(read, keys)


@contextmanager
def list_once() -> Iterator[None]:
    """Make `stored_keys` list each store at most once inside the block. Results stored later are not seen.

    Listing a folder reads one subfolder per key prefix; listing a bucket reads one page per thousand results. The pages
    and answers of a sweep need the keys many times per cell.
    """
    if _keys_by_store.get() is not None:
        yield
        return
    token = _keys_by_store.set({})
    try:
        yield
    finally:
        _keys_by_store.reset(token)


def stored_keys(store: Store) -> Set[str]:
    """Return the keys of all results, as `store.keys()` does. Cached inside `list_once`."""
    keys_by_store = _keys_by_store.get()
    if keys_by_store is None:
        return store.keys()
    if store.location not in keys_by_store:
        keys_by_store[store.location] = frozenset(store.keys())
    return keys_by_store[store.location]


def is_there(location: str | Path) -> bool:
    """Whether the location contains a file, a non-empty folder or, in a bucket, a store.

    Raises the same errors as `open_store`.
    """
    path = local_path(location)
    if path is not None:
        try:
            return path.exists() and not is_blank(path)
        except OSError as error:
            raise StoreError(f"cannot open the store {location}: {error.strerror}") from None
    from orchestrator.store import objects
    from orchestrator.store.bucket import Bucket

    return objects.is_there(Bucket(str(location)))


def local_path(location: str | Path) -> Path | None:
    """Return the local path of a store. Returns None for an object store. Raises StoreError for any other location."""
    _check_location(str(location))
    scheme, separator, rest = str(location).partition("://")
    if not separator:
        try:
            return _readable(Path(location).expanduser())
        except RuntimeError:
            raise StoreError(f"cannot open the store {location}: there is no user of that name") from None
    if scheme.lower() == "file":
        from urllib.parse import unquote

        return _readable(Path(unquote(rest)))
    if missing([OBSTORE]):
        raise StoreError(describe_missing([OBSTORE]))
    return None


def _check_location(location: str) -> None:
    """Raise StoreError if the text is neither a path nor a URI."""
    if not location.strip():
        raise StoreError("cannot open the store: its location is empty")
    if "\0" in location:
        raise StoreError(f"cannot open the store {location!r}: a path cannot contain NUL")
    scheme, separator, rest = location.partition("://")
    if separator and not (scheme.lower() in ("s3", "az") or (scheme.lower() == "file" and rest.startswith("/"))):
        raise StoreError(
            f"cannot open the store {location}: give a local path, file:///path, s3://bucket/prefix or "
            "az://container/prefix"
        )
    if separator:
        mistyped = None
    else:
        mistyped = MISTYPED_URI.match(location)
    if mistyped is not None:
        scheme = mistyped[1] or mistyped[3]
        raise StoreError(
            f"cannot open the store {location}: begin a URI with {scheme}://, or a path to such a folder with ./"
        )


def _readable(path: Path) -> Path:
    """Return the path unchanged. Raises StoreError unless it is valid UTF-8, because Arrow opens no other paths."""
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError:
        raise StoreError(f"cannot open the store {path}: its path must be valid UTF-8") from None
    return path
