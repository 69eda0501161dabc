"""A data set: how it is found, and what it is.

The name says where to look; the digest of the content says what was found, and is all that a key sees.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import ClassVar

from tasks.extras import NIBABEL, Extra
from tasks.pinnable import Unavailable

HEXADECIMAL = re.compile(r"[0-9a-f]+")


class DatasetError(Unavailable):
    """A data set is unknown, absent, damaged, or not the one that was pinned: one line for the user."""


class UnknownDataset(DatasetError):
    """No data set is called that, or it has no such option: the name is wrong, whatever files there are."""


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
