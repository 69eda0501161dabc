"""The files of a data set: reading them, by rows or all together, and the digest of their content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tasks.datasets.images import Images, PictureSet


class Content(Protocol):
    """The content of a data set, read once: its digest and images."""

    def digest(self) -> str: ...

    def images(self) -> Images: ...


class ByRows(Protocol):
    """The content of a data set with images that are decoded on demand. Computing the digest reads all files."""

    def size(self) -> int:
        """Return the number of bytes of all pixels, without reading any file."""

    def digest(self) -> str: ...

    def open_rows(self) -> PictureSet:
        """Open the images, each of which is checked against the digest when it is decoded."""


@dataclass(frozen=True)
class Source:
    """The files of a data set, and their reader.

    `rule` names the format and the conversion to images; a change to the conversion must change the rule, so that the
    same files get another digest. `by_rows` is None if the images can only be read all together. `notes` are one-line
    warnings about the files, for example about files that are not read (`tasks.datasets.notes`).
    """

    rule: str
    files: tuple[Path, ...]
    read: Callable[[], Content]
    by_rows: Callable[[], ByRows] | None = None
    notes: tuple[str, ...] = ()

    def stamp(self) -> str:
        """Return the key of a cached digest: a hash of the rule and of each file's path, size and modification time."""
        states = [(str(path), path.stat()) for path in self.files]
        text = json.dumps([self.rule, *([path, state.st_size, state.st_mtime_ns] for path, state in states)])
        return hashlib.sha256(text.encode()).hexdigest()  # a folder may contain many thousands of files


def digest_of(rule: str, parts: Iterable[bytes | memoryview]) -> str:
    """Compute SHA-256 over the rule and the parts, each preceded by its length, so that the encoding is unique."""
    sha = hashlib.sha256()
    for part in (rule.encode(), *parts):
        view = memoryview(part)
        sha.update(view.nbytes.to_bytes(8, "little"))
        sha.update(view)
    return sha.hexdigest()
