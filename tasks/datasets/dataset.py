"""A data set: how it is found, and what it is.

The name says where to look; the digest of the content says what was found, and is all that a key sees.
"""

from __future__ import annotations

from dataclasses import dataclass


class DatasetError(ValueError):
    """A data set is unknown, absent, damaged, or not the one that was pinned: one line for the user."""


@dataclass(frozen=True)
class Dataset:
    """A data set by name, pinned once `digest` is set. Written `name` or `name@digest`."""

    name: str
    digest: str = ""

    @classmethod
    def parse(cls, text: str) -> Dataset:
        name, _, digest = text.partition("@")
        return cls(name, digest)

    def __str__(self) -> str:
        return f"{self.name}@{self.digest}" if self.digest else self.name

    def identity(self) -> str:
        """What a key sees: the content, never the name or path."""
        if not self.digest:
            raise ValueError(f"data set {self.name!r} has no digest yet; pin it before planning")
        return self.digest
