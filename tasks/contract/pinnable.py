"""What a config names and a key sees by its content: a file, a network, a model, or an audit's own kind.

A data set is one of them in all but its `pin`, which is the catalog's: it alone knows where data sets are.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

DIGEST = re.compile(r"[0-9a-f]{64}")


class Unavailable(ValueError):
    """What was named is not there, cannot be read, or is not what was pinned: one line for the user.

    Any other ValueError of `pin` says that the name itself is wrong.
    """


@runtime_checkable
class Pinnable(Protocol):
    """A frozen dataclass of a config that stands for content outside of it.

    Where it is written as text, `parse(text)` reads it and `str` writes it, with the digest once it is pinned. What
    has a `named()` is told to others by that: without the folders it lies in.
    """

    def identity(self) -> str:
        """What a key sees: the content, never the name or path. ValueError before it is pinned."""

    def pin(self, known: MutableMapping[str, str]) -> Self:
        """The same with the digest of its content as it is now, found by any process of this machine.

        `known` remembers digests by files' paths, sizes and times of change. Unavailable where the content is not
        there or not what a digest given already says; ValueError, in one line, where the name is wrong.
        """


@runtime_checkable
class PinnedAs(Protocol):
    """A part of a config that stands for another one, with all that is to be pinned: one list for its two halves."""

    def to_pin(self) -> Any:
        """The part that takes its place before the config is pinned."""


@runtime_checkable
class InFiles(Protocol):
    """A pinnable whose content lies in files of this machine; pages then tell their size and date, too."""

    noun: ClassVar[str]  # what it is called on pages: model, file

    def paths(self) -> tuple[Path, ...]:
        """The files that are read for the digest, in any order; Unavailable or ValueError where they are not there."""


@dataclass(frozen=True)
class PinnedName:
    """What is known by a name, and pinned once the `digest` of its content is set. Written `name` or `name@digest`."""

    noun: ClassVar[str]
    written_digest: ClassVar[re.Pattern[str]] = DIGEST

    name: str
    digest: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        name, _, digest = text.rpartition("@")
        # A path may hold an @ of its own.
        return cls(name, digest) if name and cls.written_digest.fullmatch(digest) else cls(text)

    def __str__(self) -> str:
        return f"{self.name}@{self.digest}" if self.digest else self.name

    def identity(self) -> str:
        """What a key sees: the content, never the name or path."""
        if not self.digest:
            raise ValueError(f"{self.noun} {self.name!r} has no digest yet; pin it before planning")
        return self.digest
