"""Reads the files of a folder store and translates read errors."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISREG

import pyarrow as pa

from orchestrator.errors import Unreadable
from orchestrator.store import atomic_write, entry
from orchestrator.store.regular_file import READ_ONLY

SECOND = 10**9  # nanoseconds
TICK = SECOND // 10  # the file system clock ticks at least this often, unless it ticks once a second
FIRST_READ = 64 * 1024  # bytes read before requesting the file size


def read_all(handle: int) -> pa.Buffer:
    """Return all bytes of an open result. Its size is requested only if the first read may be incomplete."""
    start = os.read(handle, FIRST_READ)
    if len(start) < FIRST_READ and start.endswith(entry.MAGIC):
        return pa.py_buffer(start)
    data = pa.allocate_buffer(max(len(start), os.fstat(handle).st_size))
    view = memoryview(data).cast("B")
    view[: len(start)] = start
    view = view[len(start) :]
    while view:
        count = os.readv(handle, [view])
        if not count:
            raise entry.CorruptError("it became shorter while it was read")
        view = view[count:]
    return data


def quick_read(path: str) -> bytes:
    """Return the bytes of a file. There may be fewer if the system returns a file in pieces."""
    handle = os.open(path, READ_ONLY)
    try:
        data = os.read(handle, FIRST_READ)
        if len(data) < FIRST_READ:
            return data
        return data + os.read(handle, os.fstat(handle).st_size)
    finally:
        os.close(handle)


def stamps(paths: Iterable[str]) -> Iterator[str]:
    """Yield inode, size and change time for each path, or "" if the file is missing, irregular or has just changed.

    Two changes within one tick of the file system clock have the same time. Some clocks tick once a second.
    """
    latest_time = time.time_ns() - TICK
    for path in paths:
        try:
            status = os.stat(path, follow_symlinks=False)
        except OSError:
            yield ""
            continue
        change_time = status.st_ctime_ns
        is_identified = S_ISREG(status.st_mode) and change_time < latest_time and change_time % SECOND
        yield f"{status.st_ino}.{status.st_size}.{change_time}" if is_identified else ""


def target_inode(path: Path) -> int | None:
    """Return the inode of a file or of the target of a link. Returns None if the target does not exist."""
    with suppress(OSError):
        return os.stat(path).st_ino
    return None


def names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise Unreadable(f"cannot read {folder}: {error.strerror}") from error


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raise CorruptError if the disk cannot return the file's bytes, and Unreadable for any other read error."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in atomic_write.UNREADABLE_ERRORS:
            raise entry.CorruptError(f"it cannot be read ({error.strerror})") from error
        raise Unreadable(f"cannot read {path}: {error.strerror}") from error
