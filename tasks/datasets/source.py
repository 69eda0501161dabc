"""Files that hold a data set: how they are read, by rows or all together, and the digest of their content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tasks.datasets.images import Images, PictureSet


class Content(Protocol):
    """A data set's bytes, read once: their digest and the images in them."""

    def digest(self) -> str: ...

    def images(self) -> Images: ...


class ByRows(Protocol):
    """The same content with images that are decoded on demand. Computing its digest reads all files."""

    def size(self) -> int:
        """The bytes of all pixels, without reading any file."""

    def digest(self) -> str: ...

    def open_rows(self) -> PictureSet:
        """The images, each of which is checked against the digest whenever it is decoded."""


@dataclass(frozen=True)
class Source:
    """Files that hold a data set, and how to read them.

    `rule` names the format and how images are made from it; a change to that must change the rule, so that the same
    files get another digest. `by_rows` is None where the images can only be read all together. `notes` are one-line
    warnings about the files, such as that some are not read (`tasks.datasets.notes`).
    """

    rule: str
    files: tuple[Path, ...]
    read: Callable[[], Content]
    by_rows: Callable[[], ByRows] | None = None
    notes: tuple[str, ...] = ()

    def stamp(self) -> str:
        """The key of a remembered digest: the hash of the rule and each file's path, size and time of change (ns)."""
        states = [(str(path), path.stat()) for path in self.files]
        text = json.dumps([self.rule, *([path, state.st_size, state.st_mtime_ns] for path, state in states)])
        return hashlib.sha256(text.encode()).hexdigest()  # a folder may hold many thousands


def digest_of(rule: str, parts: Iterable[bytes | memoryview]) -> str:
    """SHA-256 over the rule and the parts, each preceded by its length, so that no two lists are hashed alike."""
    sha = hashlib.sha256()
    for part in (rule.encode(), *parts):
        view = memoryview(part)
        sha.update(view.nbytes.to_bytes(8, "little"))
        sha.update(view)
    return sha.hexdigest()
