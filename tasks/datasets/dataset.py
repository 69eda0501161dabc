"""A data set is a name and the digest of its content.

The name determines the location. The digest identifies the content and is the only part that enters a key. Neither the
location of the files nor their packaging changes the content.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import ClassVar, Self

from tasks.contract.extras import NIBABEL, Extra
from tasks.contract.pinnable import DIGEST, PinnedName, Unavailable
from tasks.worker.files import regular_bytes

HEXADECIMAL = re.compile(r"[0-9a-f]+")
TABLE = "table:"  # prefix of tables of features
HUB = "hf:"  # prefix of data sets of the Hugging Face hub
ROWS = "rows:"  # prefix of records that are known only by number


class DatasetError(Unavailable):
    """A data set is unknown, missing or damaged, or differs from the pinned one. The message is meant for users."""


class UnknownDataset(DatasetError):
    """The name of a data set or one of its options is invalid, regardless of which files exist."""


def unreadable(path: Path, error: OSError) -> DatasetError:
    return DatasetError(f"{path} cannot be read: {error.strerror or error}")


def file_bytes(path: Path) -> bytes:
    """Return the bytes of a regular file. Raises DatasetError if it cannot be read."""
    try:
        return regular_bytes(path)
    except OSError as error:
        raise unreadable(path, error) from None


def file_sha256(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file. Raises DatasetError if it cannot be read."""
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

    @classmethod
    def parse(cls, text: str) -> Self:
        name, _, digest = text.rpartition("@")
        if text.startswith(HUB) and not (name and DIGEST.fullmatch(digest)):  # what follows the @ is a revision
            return cls(text)
        return super().parse(text)

    def named(self) -> Dataset:
        """Return the data set with only the last component of a user's path."""
        if self.name.startswith(HUB):
            return self
        kind, colon, path = self.name.partition(":")
        if colon:
            return Dataset(f"{kind}:{PurePath(path).name}", self.digest)
        return self

    def extras(self) -> tuple[Extra, ...]:
        return (NIBABEL,) if self.name.startswith("acdc-") else ()


def is_table(dataset: Dataset) -> bool:
    """Return whether the data set is a table of features (`tasks.datasets.feature_table`)."""
    return dataset.name.startswith(TABLE)


def is_numbered(dataset: Dataset) -> bool:
    """Return whether the records are known only by number (`tasks.datasets.numbered`)."""
    return dataset.name.startswith(ROWS)
