"""Reads the files of a store from a third party: regular files only, and no links below a folder.

Opening a named pipe waits for a writer, and a link can point anywhere. Therefore a file is opened without waiting, and
its type is checked before a byte of it is read.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

# Without effect on a regular file; the open of a pipe returns at once.
READ_ONLY = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
KINDS = {
    stat.S_IFDIR: "it is a folder",
    stat.S_IFIFO: "it is a named pipe, not a file",
    stat.S_IFSOCK: "it is a socket, not a file",
    stat.S_IFLNK: "it is a link",
}
CHUNK = 2**20  # bytes of one read


class IrregularFile(OSError):
    """The path is not a regular file."""


def _open_regular(path: str | Path) -> int:
    """A descriptor of the regular file at this path. Raises OSError; IrregularFile for anything else."""
    return _checked(_open(path, READ_ONLY, None), path)


def regular_opener(path: str, _flags: int) -> int:
    """The `opener` with which `open` reads only regular files."""
    return _open_regular(path)


def regular_bytes(path: str | Path) -> bytes:
    """The bytes of the regular file at this path, following links. Raises as `_open_regular`."""
    return _read(_open_regular(path))


def regular_text(path: str | Path) -> str:
    """The text (UTF-8) of the regular file at this path. Raises as `_open_regular`, and UnicodeDecodeError."""
    return regular_bytes(path).decode()


def bytes_inside(root: Path, name: str) -> bytes:
    """The bytes of the regular file of this name below the folder, without following a link on the way.

    Raises OSError; IrregularFile for a link, a pipe, or a name that points outside the folder.
    """
    *folders, last = name.split("/")
    if any(part in ("", ".", "..") for part in (*folders, last)):
        raise IrregularFile(errno.EINVAL, "its name points outside the store", name)
    parent_handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            child_handle = _open(folder, READ_ONLY | os.O_NOFOLLOW | os.O_DIRECTORY, parent_handle)
            os.close(parent_handle)
            parent_handle = child_handle
        handle = _open(last, READ_ONLY | os.O_NOFOLLOW, parent_handle)
    finally:
        os.close(parent_handle)
    return _read(_checked(handle, name))


def check_regular(path: str | Path) -> None:
    """Raise IrregularFile, or OSError if nothing exists, unless this path is a regular file."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        raise IrregularFile(errno.EINVAL, _kind(mode), str(path))


def irregular_kind(path: str | Path) -> str | None:
    """The kind of a link, pipe, socket or device at this path; None for a file, a folder, or if the path is free."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return None
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return None
    return _kind(mode)


def _open(path: str | Path, flags: int, folder: int | None) -> int:
    try:
        return os.open(path, flags, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
            with suppress(OSError):
                mode = os.lstat(path, dir_fd=folder).st_mode
                # A file in place of a folder counts as a missing file below it.
                if stat.S_ISLNK(mode) or stat.S_ISSOCK(mode):
                    raise IrregularFile(error.errno, _kind(mode), str(path)) from None
        raise


def _checked(handle: int, path: str | Path) -> int:
    """The descriptor, if it is of a regular file; otherwise it is closed."""
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return handle
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise IrregularFile(errno.EINVAL, _kind(mode), str(path))


def _read(handle: int) -> bytes:
    try:
        size = os.fstat(handle).st_size
        parts = []
        while part := os.read(handle, max(size, CHUNK)):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(handle)


def _kind(mode: int) -> str:
    return KINDS.get(stat.S_IFMT(mode), "it is a device, not a file")
