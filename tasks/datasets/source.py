"""The files of a data set: reading them, by rows or all at once, and computing the digest of their content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tasks.datasets.images import Images, Splits


class Content(Protocol):
    """The content of a data set, read once: its digest and images."""

    def digest(self) -> str: ...

    def images(self) -> Images: ...


class ByRows(Protocol):
    """The content of a data set whose images are decoded on demand. Computing the digest reads all files."""

    def size(self) -> int:
        """Return the total number of pixel bytes, without reading any file."""

    def digest(self) -> str: ...

    def open_rows(self) -> Splits:
        """Open the images. Each image is checked against the digest when it is decoded."""


@dataclass(frozen=True)
class Source:
    """The files of a data set and how to read them.

    `rule` names the format and the conversion to images. If the conversion changes, the rule must change too, so that
    the same files get a new digest. `by_rows` is None if the images can only be read all at once. `notes` are one-line
    warnings about the files, for example about files that are not read (`tasks.datasets.notes`).
    """

    rule: str
    files: tuple[Path, ...]
    read: Callable[[], Content]
    by_rows: Callable[[], ByRows] | None = None
    notes: tuple[str, ...] = ()

    def stamp(self) -> str:
        """Return the cache key of a digest: a hash of the rule and of each file's path, size and modification time."""
        states = [(str(path), path.stat()) for path in self.files]
        text = json.dumps([self.rule, *([path, state.st_size, state.st_mtime_ns] for path, state in states)])
        return hashlib.sha256(text.encode()).hexdigest()  # hashed because a folder may contain many thousands of files


def digest_of(rule: str, parts: Iterable[bytes | memoryview]) -> str:
    """Compute SHA-256 over the rule and the parts, each preceded by its length so that the encoding is unambiguous."""
    sha = hashlib.sha256()
    for part in (rule.encode(), *parts):
        view = memoryview(part)
        sha.update(view.nbytes.to_bytes(8, "little"))
        sha.update(view)
    return sha.hexdigest()
