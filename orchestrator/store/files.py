"""Reads the files of a store in a folder, and says what is wrong with those that cannot be read."""

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
TICK = SECOND // 10  # at most SECOND / 100 on Linux, where it is no second
MOST = 64 * 1024  # bytes of a file that are read without asking for its size


def read_all(handle: int) -> pa.Buffer:
    """All bytes of an open result, whose size is only asked for where one read may not have returned all of them."""
    start = os.read(handle, MOST)
    if len(start) < MOST and start.endswith(entry.MAGIC):
        return pa.py_buffer(start)
    data = pa.allocate_buffer(max(len(start), os.fstat(handle).st_size))
    view = memoryview(data).cast("B")
    view[: len(start)] = start
    view = view[len(start) :]
    while view:
        got = os.readv(handle, [view])
        if not got:
            raise entry.CorruptError("it became shorter while it was read")
        view = view[got:]
    return data


def quick_read(path: str) -> bytes:
    """The bytes of a file, or fewer where the system returns fewer at a time."""
    handle = os.open(path, READ_ONLY)
    try:
        data = os.read(handle, MOST)
        return data if len(data) < MOST else data + os.read(handle, os.fstat(handle).st_size)
    finally:
        os.close(handle)


def stamps(paths: Iterable[str]) -> Iterator[str]:
    """Of each path the file's number, size and time of change; "" of one that is gone, is none or was changed just now.

    Two changes within a tick of the file system's clock leave the same time; some clocks tick once a second.
    """
    settled = time.time_ns() - TICK
    for path in paths:
        try:
            status = os.stat(path, follow_symlinks=False)
        except OSError:
            yield ""
            continue
        changed = status.st_ctime_ns
        known = S_ISREG(status.st_mode) and changed < settled and changed % SECOND
        yield f"{status.st_ino}.{status.st_size}.{changed}" if known else ""


def target_inode(path: Path) -> int | None:
    """The inode of the file that a link leads to, or of the file itself; None if it leads nowhere."""
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
    """Raise CorruptError if the disk cannot return the file's bytes, Unreadable for any other error of reading."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in atomic_write.LOST:
            raise entry.CorruptError(f"it cannot be read ({error.strerror})") from error
        raise Unreadable(f"cannot read {path}: {error.strerror}") from error
