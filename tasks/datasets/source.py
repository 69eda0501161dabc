"""The files of a data set: reading them, by rows or all at once, and computing the digest of their content."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tasks.datasets.images import Images, PictureRows

Hashes = NDArray[np.uint8]  # (n, 32): one SHA-256 per image
MANY_FILES = 10_000  # files whose sizes and modification times are read at every start
SAMPLED = 1000  # of more files


class EncodedRows(PictureRows, Protocol):
    """Images that are decoded from their files on demand."""

    @property
    def hashes(self) -> Hashes:
        """The SHA-256 of each encoded image, (n, 32)."""


@dataclass(frozen=True, eq=False)
class EncodedSplits:
    """Splits of images that are decoded from their files on demand.

    `train_groups`, `train_origins` and `notes` have the same meaning as in `tasks.datasets.images.Images`.
    """

    train: EncodedRows
    test: EncodedRows
    classes: int
    names: tuple[str, ...] = ()
    train_groups: NDArray[np.int64] | None = None
    train_origins: Hashes | None = None
    notes: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.train.shape


class Content(Protocol):
    """The content of a data set, read once: its digest and images."""

    def digest(self) -> str: ...

    def images(self) -> Images: ...


@dataclass(frozen=True)
class Extent:
    """The number of images in both splits, and their height, width and channels."""

    count: int
    shape: tuple[int, int, int]

    @property
    def size(self) -> int:
        """The number of pixel bytes."""
        return self.count * math.prod(self.shape)


@dataclass(frozen=True)
class Renewed:
    """The digest of a data set after reading all files, and the images that differ from the index."""

    digest: str
    changed: tuple[str, ...] = ()


class ByRows(Protocol):
    """The content of a data set whose images are decoded on demand."""

    def extent(self) -> Extent:
        """Return the number and shape of the images, from the headers of a few files."""

    def digest(self) -> str:
        """Return the digest. All files are read unless their hashes are indexed in the cache folder."""

    def renew(self) -> Renewed:
        """Read all files, even if they are indexed, and index them again."""

    def open_rows(self) -> EncodedSplits:
        """Open the images. Each image is checked against the digest when it is decoded."""


@dataclass(frozen=True)
class Source:
    """The files of a data set and how to read them.

    `rule` names the format and the conversion to images. If the conversion changes, the rule must change too, so that
    the same files get a new digest. `by_rows` is None if the images can only be read all at once. `notes` are one-line
    warnings about the files, for example about files that are not read (`tasks.datasets.notes`). The first `tables` of
    the files are not images but tables or folders.
    """

    rule: str
    files: tuple[Path, ...]
    read: Callable[[], Content]
    by_rows: Callable[[], ByRows] | None = None
    notes: tuple[str, ...] = ()
    tables: int = 0

    def folders(self, location: Path) -> list[str]:
        """Return the tables, the folders of all files, and their parents within the location."""
        names = {str(location), *(str(path) for path in self.files[: self.tables])}
        for folder in {os.path.dirname(str(path)) for path in self.files}:
            while folder not in names:
                names.add(folder)
                if str(location) not in folder:
                    break
                folder = os.path.dirname(folder)
        return sorted(names)

    def stamp(self) -> str:
        """Return the cache key of a digest: a hash of the rule and of the state of the files.

        The state consists of the path, size and modification time of each file. If there are more than MANY_FILES, it
        consists of all paths, the modification times of all folders, and the sizes and modification times of all tables
        and of a sample of the files. Adding, removing, renaming or replacing a file changes its folder. Overwriting a
        few of many files in place leaves the state unchanged; jobs that read such a file fail, and a full check of the
        data finds it.
        """
        if len(self.files) <= MANY_FILES:
            states = [(str(path), path.stat()) for path in self.files]
            text = json.dumps([self.rule, *([path, state.st_size, state.st_mtime_ns] for path, state in states)])
            return hashlib.sha256(text.encode()).hexdigest()  # hashed because a folder may contain many thousands
        paths = [str(path) for path in self.files]
        folders = sorted(set(map(os.path.dirname, paths)))
        sample = [*paths[: self.tables], *paths[self.tables :: len(paths) // SAMPLED], paths[-1]]
        state = [[folder, os.stat(folder).st_mtime_ns] for folder in folders]
        for path in sample:
            path_state = os.stat(path)
            state.append([path, path_state.st_size, path_state.st_mtime_ns])
        sha = hashlib.sha256(json.dumps([self.rule, len(paths), state]).encode())
        sha.update("\0".join(paths).encode(errors="surrogateescape"))
        return sha.hexdigest()


def digest_of(rule: str, parts: Iterable[bytes | memoryview]) -> str:
    """Compute SHA-256 over the rule and the parts, each preceded by its length so that the encoding is unambiguous."""
    sha = begin_digest(rule)
    for part in parts:
        view = memoryview(part)
        begin_part(sha, view.nbytes)
        sha.update(view)
    return sha.hexdigest()


def begin_digest(rule: str) -> hashlib._Hash:
    """Return the state of `digest_of` before the first part, for parts that are not in memory at once."""
    sha = hashlib.sha256()
    begin_part(sha, len(rule.encode()))
    sha.update(rule.encode())
    return sha


def begin_part(sha: hashlib._Hash, size: int) -> None:
    """Begin a part of this many bytes, which the caller adds to the hash."""
    sha.update(size.to_bytes(8, "little"))
