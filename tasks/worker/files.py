"""A user's file, located by its path and identified by its digest.

Only the digest, which is the SHA-256 of the file's bytes, is part of a key.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import ClassVar

from tasks.contract.pinnable import DIGEST, Unavailable

# Metadata key of config fields that contain secret text. The value is a function that returns the text shown to others.
WITHHELD = "withheld"


class FileError(Unavailable):
    """A file is absent, unreadable, or different from the pinned one."""


@dataclass(frozen=True)
class File:
    """A file by its path, pinned once `digest` (the SHA-256 of its bytes) is set. Written `path` or `path@digest`."""

    noun: ClassVar[str] = "file"

    path: str
    digest: str = ""

    def __post_init__(self) -> None:
        if not self.path:
            raise ValueError("the path of a file is empty")
        if self.digest and not DIGEST.fullmatch(self.digest):
            raise ValueError(f"the digest of {self.path} is {self.digest!r}; it must be 64 hexadecimal digits")

    @classmethod
    def parse(cls, text: str) -> File:
        path, _, digest = text.rpartition("@")
        # A path may contain an @.
        if path and DIGEST.fullmatch(digest):
            return cls(path, digest)
        return cls(text)

    def __str__(self) -> str:
        return f"{self.path}@{self.digest}" if self.digest else self.path

    def named(self) -> File:
        """Return the file with only the last component of its path."""
        return File(PurePath(self.path).name, self.digest)

    def identity(self) -> str:
        """Return what identifies the file in a key: its content, never its path."""
        if not self.digest:
            raise ValueError(f"file {self.path!r} has no digest yet; pin it before planning")
        return self.digest

    def pin(self, known_digests: MutableMapping[str, str]) -> File:
        """Return the file with the digest of its bytes. Raises FileError if it does not exist or differs."""
        return pin(self, known_digests)

    def paths(self) -> tuple[Path, ...]:
        return (expand_home(self.path),)


def pin(file: File, known_digests: MutableMapping[str, str] | None = None) -> File:
    """Return the file with its absolute path and the digest of its bytes.

    `known_digests` caches digests by path, size and modification time. The caller keeps it between runs. Raises
    FileError if the file does not exist, or differs from a given digest.
    """
    path = expand_home(file.path).absolute()
    known_digests = {} if known_digests is None else known_digests
    try:
        state = check_regular(path)
        stamp = json.dumps(["file", str(path), state.st_size, state.st_mtime_ns])
        if stamp not in known_digests:
            with path.open("rb") as opened:
                known_digests[stamp] = hashlib.file_digest(opened, "sha256").hexdigest()
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    check(file, known_digests[stamp])
    return File(str(path), known_digests[stamp])


def read(file: File) -> bytes:
    """Return the file's bytes. Raises FileError if it does not exist or differs from the pinned file."""
    path = expand_home(file.path)
    try:
        check_regular(path)
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    if file.digest:
        check(file, hashlib.sha256(content).hexdigest())
    return content


def expand_home(path: str) -> Path:
    """Expand `~` in a path. Raises FileError for the home folder of an unknown user."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise FileError(f"{path}: there is no user of that name") from None


def check_regular(path: Path) -> os.stat_result:
    """Return the state of a regular file.

    Raises OSError, or FileError for files that might never end, such as pipes.
    """
    state = path.stat()
    if not stat.S_ISREG(state.st_mode):
        raise FileError(f"{path} cannot be read: {_kind(state)}")
    return state


def regular_bytes(path: Path) -> bytes:
    """Return the bytes of a regular file.

    Raises OSError, including for files that might never end, such as pipes.
    """
    state = path.stat()
    if not stat.S_ISREG(state.st_mode):
        raise OSError(errno.EINVAL, _kind(state), str(path))
    return path.read_bytes()


def _kind(state: os.stat_result) -> str:
    if stat.S_ISDIR(state.st_mode):
        return "Is a directory"
    return "it is a device, a pipe or a socket, not a file"


def unreadable(path: Path, error: Exception) -> FileError:
    if isinstance(error, FileError):
        return error
    if isinstance(error, FileNotFoundError):
        return FileError(f"there is no file {path}")
    return FileError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}")


def check(file: File, digest: str) -> None:
    if file.digest and file.digest != digest:
        raise FileError(
            f"file {file.path!r} is not the one that was pinned: its content has digest {digest}, not {file.digest}"
        )


def shorten_names(names: Sequence[str]) -> list[str]:
    """Return display names for files: without suffixes, or in full if two names would otherwise be equal."""
    stems = []
    for name in names:
        stems.append(PurePath(name).stem if re.match(r"\.[A-Za-z]", PurePath(name).suffix) else name)
    result = []
    for name, stem in zip(names, stems, strict=True):
        result.append(name if stems.count(stem) > 1 else stem)
    return result
