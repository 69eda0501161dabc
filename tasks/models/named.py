"""Models that a config names: one of ours, or one of the user's own, pinned by the digest of its source."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self, TypeVar

from tasks.models import factories
from tasks.models.factories import Factory

T = TypeVar("T", bound="Named")


@dataclass(frozen=True)
class Named:
    """A model by name; one of the user's own is pinned once `digest`, of its source, is set.

    Written by a name of ours, `package.module:factory` or `package.module:factory@digest`.
    """

    name: str
    digest: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        name, _, digest = text.partition("@")
        return cls(name, digest)

    def __str__(self) -> str:
        return f"{self.name}@{self.digest}" if self.digest else self.name

    def identity(self) -> str:
        """What a key sees: of a user's own the function and the source, never the module's name or path."""
        if not is_own(self.name):
            return self.name
        if not self.digest:
            raise ValueError(f"network {self.name!r} has no digest yet; pin it before planning")
        return f"{Factory.parse(self.name).function}@{self.digest}"

    def check(self) -> None:
        """ValueError, in one line, unless there is a model of this name, or it is written as a user's own."""
        raise NotImplementedError


def is_own(name: str) -> bool:
    """Whether the name is that of a user's own model."""
    return ":" in name


def pin(named: T) -> T:
    """The model as it is now: a user's own with the digest of its source.

    ValueError, in one line, where there is no such model or it is not the one pinned.
    """
    if is_own(named.name):
        return replace(named, digest=factories.pinned(Factory.parse(str(named))).digest)
    named.check()
    return named
