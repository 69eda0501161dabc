"""The store: key -> Arrow table with its record, whole or absent. It is the only state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from orchestrator.errors import StoreError

if TYPE_CHECKING:
    import pyarrow as pa


class Written(Enum):
    """What became of a result that was handed to the store. In each case the key now has a sound one."""

    NEW = "new"
    SAME = "same"  # the key had it already
    CONFLICT = "conflict"  # the key has another one, which stays; this one lies in conflicts/


class Store(Protocol):
    """Key -> Arrow table with its record, whole or absent. Keys are lower-case hexadecimal."""

    @property
    def location(self) -> str:
        """What workers open this store by."""

    def __contains__(self, key: object) -> bool:
        """Whether a result lies under this key; a matter of names, so a damaged one counts until it is read."""

    def keys(self) -> set[str]:
        """All keys under which a result lies."""

    def read(self, key: str) -> pa.Table:
        """The table, after a digest over every byte; raises Absent, or Damaged once the file is set aside."""

    def record(self, key: str, check: bool = True) -> Mapping[str, Any]:
        """What was recorded with the table; checked and raising like `read`.

        Unchecked only the file's end is read, which is quick: for telling how results came about, not what they are.
        """

    def write(self, key: str, table: pa.Table, record: Mapping[str, Any]) -> Written:
        """Store a result, durably before this returns. A sound result is never replaced.

        The record is JSON; `key` and `content` (the digest of schema and values) are added to it. Raises Unwritable
        where the store refuses writes, TypeError where table or record cannot be stored at all.
        """

    def verify(self, keys: Iterable[str]) -> Iterator[tuple[str, str]]:
        """(key, what is wrong) of those that are absent or damaged, in order; the damaged ones are set aside."""

    def write_failure(self, key: str, text: str) -> None:
        """Keep the traceback of a failed job, over an earlier one."""

    def failure(self, key: str) -> str | None:
        """The traceback kept for this key."""

    def clear_failure(self, key: str) -> None:
        """Forget it, if there is one."""

    def digests(self) -> MutableMapping[str, str]:
        """Known digests of files elsewhere, by whatever names them; a cache that may be empty at any time."""

    def folder(self, *parts: str) -> Path:
        """A folder inside the store, made if need be; StoreError for a store that is not on a local path."""


def open_store(location: str | Path, create: bool = True) -> Store:
    """The store at a path or `file://` URI, made if need be and allowed.

    StoreError says in one line why a place cannot be one: not a store, a newer format, an unreadable marker, a scheme
    that is not supported. Nothing is written over what is there. Any number of processes may make it at once.
    """
    scheme, separator, rest = str(location).partition("://")
    if not separator:
        return _local(Path(location), create)
    if scheme.lower() == "file" and rest.startswith("/"):
        from urllib.parse import unquote

        return _local(Path(unquote(rest)), create)
    raise StoreError(f"cannot open the store {location}: only local paths and file:///path are supported today")


def _local(location: Path, create: bool) -> Store:
    from orchestrator.store.local import LocalStore  # with pyarrow, which a command may do without

    return LocalStore(location, create)
