"""A data set: how it is found, and what it is.

The name says where to look; the digest of the content says what was found, and is all that a key sees. The content does
not depend on where its files lie and how they are packed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, ClassVar, Protocol

from tasks.contract.extras import NIBABEL, Extra
from tasks.contract.pinnable import Unavailable
from tasks.worker.files import regular_bytes

if TYPE_CHECKING:
    from tasks.datasets.images import Images, PictureSet

HEXADECIMAL = re.compile(r"[0-9a-f]+")


class DatasetError(Unavailable):
    """A data set is unknown, absent, damaged, or not the one that was pinned: one line for the user."""


class UnknownDataset(DatasetError):
    """No data set is called that, or it has no such option: the name is wrong, whatever files there are."""


def unreadable(path: Path, error: OSError) -> DatasetError:
    return DatasetError(f"{path} cannot be read: {error.strerror or error}")


def file_bytes(path: Path) -> bytes:
    """The bytes of a regular file; DatasetError where it cannot be read."""
    try:
        return regular_bytes(path)
    except OSError as error:
        raise unreadable(path, error) from None


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal; DatasetError where it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise unreadable(path, error) from None


@dataclass(frozen=True)
class Dataset:
    """A data set by name, pinned once `digest` is set. Written `name` or `name@digest`."""

    noun: ClassVar[str] = "data set"

    name: str
    digest: str = ""

    @classmethod
    def parse(cls, text: str) -> Dataset:
        name, _, digest = text.rpartition("@")
        # A path may hold an @ of its own.
        return cls(name, digest) if name and HEXADECIMAL.fullmatch(digest) else cls(text)

    def __str__(self) -> str:
        return f"{self.name}@{self.digest}" if self.digest else self.name

    def named(self) -> Dataset:
        """The same without the folders that a path of the user's has in its name."""
        kind, colon, path = self.name.partition(":")
        return Dataset(f"{kind}:{PurePath(path).name}", self.digest) if colon else self

    def identity(self) -> str:
        """What a key sees: the content, never the name or path."""
        if not self.digest:
            raise ValueError(f"data set {self.name!r} has no digest yet; pin it before planning")
        return self.digest

    def extras(self) -> tuple[Extra, ...]:
        return (NIBABEL,) if self.name.startswith("acdc-") else ()


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
    files get another digest. `by_rows` is None where the images can only be read all together.
    """

    rule: str
    files: tuple[Path, ...]
    read: Callable[[], Content]
    by_rows: Callable[[], ByRows] | None = None

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
