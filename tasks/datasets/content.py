"""What a data set's files hold, apart from where they lie and how they are packed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tasks.datasets.images import Images
from tasks.datasets.picture_rows import PictureSet


class Content(Protocol):
    """A data set's bytes, read once: what they are, and the images in them."""

    def digest(self) -> str: ...

    def images(self) -> Images: ...


class ByRows(Protocol):
    """The same content, whose pictures are decoded whenever they are asked for. Its digest takes reading all files."""

    def size(self) -> int:
        """The bytes of all pixels, without a look into any file."""

    def digest(self) -> str: ...

    def opened(self) -> PictureSet:
        """The pictures, each of which is checked to be what the digest says whenever it is decoded."""


@dataclass(frozen=True)
class Source:
    """Files that hold a data set, and how to read them.

    `rule` names the format and the way images are made of it; whoever changes that way changes the rule, so that the
    same files then have another digest. `by_rows` is None where the pictures can only be read all together.
    """

    rule: str
    files: tuple[Path, ...]
    read: Callable[[], Content]
    by_rows: Callable[[], ByRows] | None = None

    def stamp(self) -> str:
        """What a digest can be remembered by: the rule and each file's path, size and time of change (ns), hashed."""
        states = [(str(path), path.stat()) for path in self.files]
        told = json.dumps([self.rule, *([path, state.st_size, state.st_mtime_ns] for path, state in states)])
        return hashlib.sha256(told.encode()).hexdigest()  # a folder may hold many thousands


def digest_of(rule: str, parts: Iterable[bytes | memoryview]) -> str:
    """SHA-256 over the rule and the parts, each with its length in front, so that no two lists look alike."""
    sha = hashlib.sha256()
    for part in (rule.encode(), *parts):
        view = memoryview(part)
        sha.update(view.nbytes.to_bytes(8, "little"))
        sha.update(view)
    return sha.hexdigest()
