"""The SHA-256 of every encoded image of a large data set, and the shape of its images, kept in the cache folder.

With the index, processes open a data set without reading its images. Each image is checked against its hash when it is
decoded. The file is named after a key that the reader derives from the state of its files, and may be deleted at any
time. It consists of one line of JSON and the hashes.
"""

from __future__ import annotations

import hashlib
import json
import os
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tasks.datasets.cache_folder import cache_folder
from tasks.datasets.source import Renewed

RULE = "index 1"


@dataclass(frozen=True, eq=False)
class PictureIndex:
    """The hash of each encoded image, (n, 32), the height, width and channels of all, and the digest of the data."""

    hashes: NDArray[np.uint8]
    shape: tuple[int, int, int]
    digest: str


def index_path(key: str) -> Path:
    return cache_folder() / f"{key}.index"


def load_index(key: str, count: int) -> PictureIndex | None:
    """Return the index of `count` images, or None if it is missing or damaged."""
    try:
        line, _, content = index_path(key).read_bytes().partition(b"\n")
        about = json.loads(line)
        height, width, channels = map(int, about["shape"])
        index = PictureIndex(
            np.frombuffer(content, np.uint8).reshape(count, 32), (height, width, channels), str(about["digest"])
        )
    except (OSError, KeyError, TypeError, ValueError):
        return None
    return index if about.get("sum") == _sum_of(index, key) else None


def write_index(index: PictureIndex, key: str) -> None:
    """Write the index atomically. Does nothing if the cache folder cannot be written, since the index is optional."""
    path = index_path(key)
    about = {"shape": index.shape, "digest": index.digest, "sum": _sum_of(index, key)}
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            aside.write_bytes(json.dumps(about).encode() + b"\n" + index.hashes.tobytes())
            os.replace(aside, path)
        finally:
            aside.unlink(missing_ok=True)


class Indexed(ABC):
    """Files of encoded images with an index, which is kept in the cache folder as long as their state is the same."""

    @cached_property
    def index(self) -> PictureIndex:
        """The hashes of all encoded images in order, and the shape to which they are converted."""
        key = self._index_key()
        index = load_index(key, self._index_size())
        if index is None:
            index = self._read_index()
            write_index(index, key)
        return index

    def digest(self) -> str:
        """Return the digest of the data, which is the same if the images are read all at once."""
        return self.index.digest

    def renew(self) -> Renewed:
        """Read all files again and replace the index."""
        key = self._index_key()
        indexed = load_index(key, self._index_size())
        index = self._read_index()
        write_index(index, key)
        if indexed is None:
            return Renewed(index.digest)
        return Renewed(index.digest, self._names(np.flatnonzero((index.hashes != indexed.hashes).any(axis=1))))

    @abstractmethod
    def _index_key(self) -> str:
        """Return a key that changes with the state of the files."""

    @abstractmethod
    def _index_size(self) -> int:
        """Return the number of hashes in the index."""

    @abstractmethod
    def _read_index(self) -> PictureIndex:
        """Read all files."""

    def _names(self, rows: NDArray[np.int64]) -> tuple[str, ...]:  # noqa: ARG002
        """Return the names of these rows of the index for messages. Empty if they have none."""
        return ()


def remembered_digest(stamp: str) -> str | None:
    """Return the digest of the data set whose files have this state, or None if it is not known."""
    try:
        digest, checksum = _digest_path(stamp).read_text().split()
    except (OSError, ValueError):
        return None
    return digest if checksum == _checksum(stamp, digest) else None


def remember_digest(stamp: str, digest: str) -> None:
    """Keep a digest in the cache folder, if that can be written, for commands without a store."""
    path = _digest_path(stamp)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            aside.write_text(f"{digest} {_checksum(stamp, digest)}\n")
            os.replace(aside, path)
        finally:
            aside.unlink(missing_ok=True)


def _digest_path(stamp: str) -> Path:
    return cache_folder() / f"{stamp}.digest"


def _checksum(stamp: str, digest: str) -> str:
    return hashlib.sha256(f"{stamp} {digest}".encode()).hexdigest()


def _sum_of(index: PictureIndex, key: str) -> str:
    """Return a hash of the index, by which damage is detected."""
    sha = hashlib.sha256(json.dumps([RULE, key, index.shape, index.digest]).encode())
    sha.update(index.hashes.tobytes())
    return sha.hexdigest()
