"""The store: key -> Arrow table with its record, whole or absent. It is the only persistent state."""

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
# `s3:/bucket` is a mistyped URI, and as a path it would be a folder of that name.
MISTYPED_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(/|$)|(s3|az|gs|abfs|https?|file):", re.IGNORECASE)
_listed: ContextVar[dict[str, Set[str]] | None] = ContextVar("listed", default=None)


def store_location(given: str | None) -> str:
    """The location of the store: the one that is given, else that of ENGRAM_STORE, else the default.

    Raises SpecError if either is set and empty, as it is when a script's variable has no value: the default would be a
    store that nobody has named.
    """
    return given_location(given) or DEFAULT_STORE


def given_location(given: str | None) -> str | None:
    """The location that is given, else that of ENGRAM_STORE; None if there is neither. Raises as `store_location`."""
    if given is not None:
        if not given.strip():
            raise SpecError("the store's location is empty; name a folder or bucket, or leave out --store")
        _check_location(given)
        return given
    from_environment = os.environ.get(STORE_VARIABLE)
    if from_environment is not None and not from_environment.strip():
        raise SpecError(f"{STORE_VARIABLE} is set and empty; name a folder or bucket, or unset it")
    if from_environment is not None:
        _check_location(from_environment)
    return from_environment


def open_store(location: str | Path, create: bool = True) -> Store:
    """Open the store at a path, `file://` URI or in a bucket; with `create`, make it if there is none.

    A bucket is `s3://bucket/prefix`, or Azure's `az://container/prefix`.

    Raises StoreError, in one line, if the location cannot be a store: other files there, a newer format, an unreadable
    marker, a bucket that cannot be reached, a scheme that is not supported. Existing files are never overwritten. Any
    number of processes may create it at once.
    """
    path = local_path(location)
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
    from orchestrator.store.mirror import JOURNEYS
    from orchestrator.store.threads import thread_pool

    with thread_pool(JOURNEYS, "read") as pool:
        yield from pool.map(read, keys)


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
    """The local path of a store; None for one in an object store. Raises StoreError for what is neither."""
    _check_location(str(location))
    scheme, separator, rest = str(location).partition("://")
    if not separator:
        try:
            return _readable(Path(location).expanduser())
        except RuntimeError:
            raise StoreError(f"cannot open the store {location}: there is no home of that name") from None
    if scheme.lower() == "file":
        from urllib.parse import unquote

        return _readable(Path(unquote(rest)))
    if missing([OBSTORE]):
        raise StoreError(describe_missing([OBSTORE]))
    return None


def _check_location(location: str) -> None:
    """Raise StoreError for a text that is neither a path nor a URI."""
    if not location.strip():
        raise StoreError("cannot open the store: its location is empty")
    if "\0" in location:
        raise StoreError(f"cannot open the store {location!r}: no path holds a NUL")
    scheme, separator, rest = location.partition("://")
    if separator and not (scheme.lower() in ("s3", "az") or (scheme.lower() == "file" and rest.startswith("/"))):
        raise StoreError(
            f"cannot open the store {location}: give a local path, file:///path, s3://bucket/prefix or "
            "az://container/prefix"
        )
    mistyped = None if separator else MISTYPED_URI.match(location)
    if mistyped is not None:
        scheme = mistyped[1] or mistyped[3]
        raise StoreError(
            f"cannot open the store {location}: a URI begins with {scheme}://, and a path to such a folder with ./"
        )


def _readable(path: Path) -> Path:
    """This path. Raises StoreError unless it is valid UTF-8, since Arrow opens no other path."""
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError:
        raise StoreError(f"cannot open the store {path}: its path must be valid UTF-8") from None
    return path
