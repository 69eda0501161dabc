"""The file that marks a folder as a store. It is created atomically."""

from __future__ import annotations

import json
import os
from pathlib import Path

from orchestrator.errors import StoreError
from orchestrator.store import atomic_write
from orchestrator.store.durability import sync
from orchestrator.store.regular_file import regular_bytes

FORMAT = 1
MARKER = "engram-store.json"


def open_folder(root: Path, create: bool) -> None:
    """Check that this folder is a store, or make it one. Raises StoreError if it cannot be a store."""
    try:
        _open(root, create)
    except OSError as error:
        raise StoreError(f"cannot open the store {root}: {error.strerror}") from error


def _open(root: Path, create: bool) -> None:
    marker = root / MARKER
    if root.exists() and not root.is_dir():
        raise StoreError(f"{root} is not a folder, so it cannot be the store")
    if not marker.exists():
        if not create:
            raise StoreError(f"there is no store at {root}; run an audit to create one, or give another with --store")
        _create(root, marker)
    _check_format(marker)


def _create(root: Path, marker: Path) -> None:
    with atomic_write.writing(root):
        missing_parents = [path for path in root.parents if not path.exists()]
        root.mkdir(parents=True, exist_ok=True)
        for path in (root, *missing_parents):  # first, because a marked store must be in durable folders
            sync(path.parent)
        foreign = _others(root)
    if marker.exists():
        return  # another process was faster
    if foreign:
        raise StoreError(f"{root} is not a store and not empty (it has {sorted(foreign)[0]}); give another folder")
    with atomic_write.writing(marker, len(text())):
        atomic_write.link(root, marker, text())


def is_blank(root: Path) -> bool:
    """Whether this is an empty folder, which may become a store. Raises OSError."""
    return root.is_dir() and not _others(root)


def _others(root: Path) -> list[str]:
    """Return the names in a folder, except unfinished markers left by dead processes and names of the file system."""
    others = []
    for name in os.listdir(root):
        if not atomic_write.unfinished(name) and name != "lost+found":
            others.append(name)
    return others


def _check_format(marker: Path) -> None:
    try:
        data = regular_bytes(marker)
    except OSError as error:
        raise _unreadable(str(marker), error) from error
    check(data, str(marker))


def text() -> bytes:
    """Return the content of a marker."""
    return (json.dumps({"format": FORMAT}) + "\n").encode()


def check(data: bytes, path: str) -> None:
    """Raise StoreError unless the marker read from `path` has a supported format."""
    try:
        number = json.loads(data)["format"]
        if type(number) is not int or number < 1:
            raise TypeError(f"its format is {number!r}")
    except (ValueError, KeyError, TypeError) as error:
        raise _unreadable(path, error) from error
    if number > FORMAT:
        raise StoreError(f"{path} has format {number}, but this Engram reads up to {FORMAT}: update Engram")


def _unreadable(path: str, error: Exception) -> StoreError:
    return StoreError(
        f"{path} cannot be read ({type(error).__name__}: {error}), so nothing is written here; "
        f'if the results next to it are intact, write {{"format": {FORMAT}}} to it'
    )
