"""A data set: how it is found, and what it is.

The name says where to look; the digest of the content says what was found, and is all that a key sees. The content does
not depend on where its files lie and how they are packed.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import ClassVar

from tasks.contract.extras import NIBABEL, Extra
from tasks.contract.pinnable import PinnedName, Unavailable
from tasks.worker.files import regular_bytes

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
class Dataset(PinnedName):
    """A data set by name, pinned once `digest` is set. Written `name` or `name@digest`."""

    noun: ClassVar[str] = "data set"
    written_digest: ClassVar[re.Pattern[str]] = HEXADECIMAL

    def named(self) -> Dataset:
        """The same without the folders that a path of the user's has in its name."""
        kind, colon, path = self.name.partition(":")
        return Dataset(f"{kind}:{PurePath(path).name}", self.digest) if colon else self

    def extras(self) -> tuple[Extra, ...]:
        return (NIBABEL,) if self.name.startswith("acdc-") else ()
