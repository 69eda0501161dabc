"""References from a config to content outside it: a file, a network, a model, or an audit-specific kind of content.

A key covers the content, not the name. Data sets are pinned by the catalog, because only the catalog knows where they
are stored.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

DIGEST = re.compile(r"[0-9a-f]{64}")


class Unavailable(ValueError):
    """The content does not exist, cannot be read or differs from the pinned content. The message is for the user.

    Any other ValueError raised by `pin` means that the name is invalid.
    """


@runtime_checkable
class Pinnable(Protocol):
    """A frozen dataclass in a config that refers to content outside the config.

    If it can be written as text, `parse(text)` reads it and `str` writes it, including the digest once it is pinned.
    `named()`, if defined, returns the form that other parties see, without folders.
    """

    def identity(self) -> str:
        """Return the part of a key: the content, never the name or path. Raises ValueError if it is not pinned yet."""

    def pin(self, known_digests: MutableMapping[str, str]) -> Self:
        """Return a copy with the digest of its current content and a path that any process on this machine can read.

        `known_digests` caches digests, keyed by the paths, sizes and modification times of files. Raises Unavailable if
        the content does not exist or differs from a given digest, and ValueError if the name is invalid.
        """


@runtime_checkable
class PinnedAs(Protocol):
    """A part of a config that is replaced before pinning, such as one list for two halves."""

    def to_pin(self) -> Any:
        """Return the object that replaces this part before the config is pinned."""


@runtime_checkable
class InFiles(Protocol):
    """A pinnable whose content is stored in files on this machine. Pages show the size and date of these files."""

    noun: ClassVar[str]  # its name on pages, such as "model" or "file"

    def paths(self) -> tuple[Path, ...]:
        """Return the files that the digest covers, in any order.

        Raises Unavailable or ValueError if they do not exist.
        """


@dataclass(frozen=True)
class PinnedName:
    """A name, pinned once the `digest` of its content is set. Written as `name` or `name@digest`."""

    noun: ClassVar[str]
    written_digest: ClassVar[re.Pattern[str]] = DIGEST

    name: str
    digest: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        name, _, digest = text.rpartition("@")
        # A path may contain an @.
        if name and cls.written_digest.fullmatch(digest):
            return cls(name, digest)
        return cls(text)

    def __str__(self) -> str:
        return f"{self.name}@{self.digest}" if self.digest else self.name

    def identity(self) -> str:
        """Return the part of a key: the content, never the name or path."""
        if not self.digest:
            raise ValueError(f"{self.noun} {self.name!r} has no digest yet; pin it before planning")
        return self.digest
