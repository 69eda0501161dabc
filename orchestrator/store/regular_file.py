"""Reads files from a third-party store. Only regular files are read, and links below a folder are not followed.

Opening a named pipe waits for a writer, and a link can point anywhere. A file is therefore opened without waiting, and
its type is checked before any byte is read.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

# Has no effect on a regular file. Opening a pipe returns at once.
READ_ONLY = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
KINDS = {
    stat.S_IFDIR: "it is a folder",
    stat.S_IFIFO: "it is a named pipe, not a file",
    stat.S_IFSOCK: "it is a socket, not a file",
    stat.S_IFLNK: "it is a link",
}
CHUNK = 2**20  # bytes per read


class IrregularFile(OSError):
    """The path is not a regular file."""


def _open_regular(path: str | Path) -> int:
    """Return a descriptor for the regular file at this path.

    Raises OSError, or IrregularFile if it is anything else.
    """
    return _checked(_open(path, READ_ONLY, None), path)


def regular_opener(path: str, _flags: int) -> int:
    """An `opener` that makes `open` accept regular files only."""
    return _open_regular(path)


def regular_bytes(path: str | Path) -> bytes:
    """Return the bytes of the regular file at this path, following links. Raises the same errors as `_open_regular`."""
    return _read(_open_regular(path))


def regular_text(path: str | Path) -> str:
    """Return the UTF-8 text of the regular file at this path.

    Raises the same errors as `_open_regular`, and UnicodeDecodeError.
    """
    return regular_bytes(path).decode()


def bytes_inside(root: Path, name: str) -> bytes:
    """Return the bytes of a regular file below `root`, without following any link on the way.

    Raises OSError, or IrregularFile for a link, a pipe, or a name that points outside the folder.
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
    """Raise IrregularFile unless this path is a regular file, or OSError if the path does not exist."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        raise IrregularFile(errno.EINVAL, _kind(mode), str(path))


def irregular_kind(path: str | Path) -> str | None:
    """Return the kind of link, pipe, socket or device at this path.

    Returns None for a file, a folder or a free path.
    """
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
                # If a file is in the place of a folder, the file below it counts as missing.
                if stat.S_ISLNK(mode) or stat.S_ISSOCK(mode):
                    raise IrregularFile(error.errno, _kind(mode), str(path)) from None
        raise


def _checked(handle: int, path: str | Path) -> int:
    """Return the descriptor if it refers to a regular file. Otherwise, close it and raise an error."""
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
