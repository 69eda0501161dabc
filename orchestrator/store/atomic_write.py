"""Atomic file writes and inter-process locks.

A file is written under a temporary name, synced, and then moved to its path.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from orchestrator.errors import StoreError, Unwritable
from orchestrator.store.durability import Names, sync

SUFFIX = ".unfinished"

# The process or machine is temporarily short of a resource. Any other error is permanent until a user frees space,
# mounts the disk or repairs the folder.
TEMPORARY_ERRORS = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR}
# The disk fails to return the bytes, or the path is not a regular file.
UNREADABLE_ERRORS = {errno.EIO, errno.EISDIR, errno.ELOOP, errno.EBADMSG, errno.EUCLEAN}
# The disk, or the network connection to it, fails for any operation.
DISK_ERRORS = {
    *(errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ESTALE, errno.ETIMEDOUT),
    *(errno.ENODEV, errno.ENXIO, errno.ENOTCONN, errno.EHOSTDOWN, errno.EREMOTEIO),
}
# Some shared file systems have no locks. The locked code is then protected less strictly, by the order of its steps.
NO_LOCK_ERRORS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}

_numbers = itertools.count()  # numbers the drafts of this process
_process = ""  # identifies this process in draft names


def link(tmp: Path, path: Path, *parts: bytes | memoryview, names: Names = Names.FOLDER) -> bool:
    """Create a file durably unless it already exists. Returns whether it was created.

    The file is linked, not renamed: the first of two writers wins, and its file is never replaced.

    If syncing the file also makes its name durable (see `names`), the file is linked first, so that one sync makes both
    durable. A power failure in between may leave an incomplete file under this name. Use this only for files that
    verify themselves.
    """
    with _draft(tmp, parts) as (draft, handle):
        if names is not Names.FILE:
            os.fsync(handle)
        created = True
        try:
            os.link(draft, path)
        except FileExistsError:
            created = False
        if created and names is Names.FILE:
            _sync_linked(handle, path)
    with suppress(OSError):
        os.unlink(draft)
    if created and names is Names.FOLDER:
        sync(path.parent)
    return created


def _sync_linked(handle: int, path: Path) -> None:
    """Sync a file that already has its name. If this fails, remove the name."""
    try:
        os.fsync(handle)
    except OSError:
        with suppress(OSError):
            os.unlink(path)
        raise


def replace(tmp: Path, path: Path, *parts: bytes | memoryview) -> None:
    """Write a file durably, replacing an existing one."""
    with _draft(tmp, parts) as (draft, handle):
        os.fsync(handle)
        os.replace(draft, path)
    sync(path.parent)


@contextmanager
def put_in_place(path: Path) -> Iterator[Path]:
    """Yield a path next to this one. The file written there then replaces the file at this path, without syncing.

    The new file is removed if writing fails.
    """
    draft = path.with_name(f".{os.getpid()}.{os.urandom(8).hex()}{SUFFIX}")
    try:
        yield draft
        os.replace(draft, path)
    finally:
        with suppress(OSError):
            draft.unlink()


@contextmanager
def _draft(tmp: Path, parts: tuple[bytes | memoryview, ...]) -> Iterator[tuple[str, int]]:
    """Create a file in `tmp` with these bytes. Yields the path and an open handle, which is closed afterwards.

    The file is removed on failure.
    """
    draft = os.path.join(tmp, _draft_name())
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        try:
            write_all(handle, *parts)
            yield draft, handle
        finally:
            os.close(handle)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft)
        raise


def write_all(handle: int, *parts: bytes | memoryview) -> None:
    """Write all bytes to an open file, with a single system call if possible."""
    remaining_parts = [memoryview(part) for part in parts if len(part)]
    while remaining_parts:
        count = os.writev(handle, remaining_parts)
        while remaining_parts and count >= len(remaining_parts[0]):
            count -= len(remaining_parts.pop(0))
        if remaining_parts:
            remaining_parts[0] = remaining_parts[0][count:]


def _draft_name() -> str:
    """Return a name that is unique across machines. Only the first name in a process needs system calls."""
    global _process
    _process = _process or f"{os.getpid()}.{os.urandom(8).hex()}"
    return f"{_process}.{next(_numbers)}{SUFFIX}"


def _forget_process() -> None:
    global _process
    _process = ""


os.register_at_fork(after_in_child=_forget_process)


def make_folder(root: Path, *parts: str) -> Path:
    """Return the folder with this path below `root`, creating it if needed. Raises StoreError for an invalid name."""
    if not parts or any(part in ("", ".", "..") or "/" in part or "\0" in part for part in parts):
        raise StoreError(f"{'/'.join(parts)!r} is not a valid name of a folder in the store")
    path = root.joinpath(*parts)
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
    return path


def unfinished(name: str) -> bool:
    """Whether this is the name of a file that its writer has not completed."""
    return name.endswith(SUFFIX)


def sweep(tmp: Path, older: float) -> None:
    """Remove unfinished files in `tmp` older than `older` seconds, which were left by writers that died."""
    with suppress(OSError):
        now = time.time()
        for file in os.scandir(tmp):
            with suppress(OSError):
                if unfinished(file.name) and now - file.stat().st_mtime > older:
                    os.unlink(file.path)


@contextmanager
def writing(path: Path, required_bytes: int = 0) -> Iterator[None]:
    """Turn a permanent OSError into Unwritable, which gives the path and the reason.

    With `required_bytes`, the message also gives the free space. Temporary errors, such as too many open files, are
    raised unchanged.
    """
    try:
        yield
    except OSError as error:
        if error.errno in TEMPORARY_ERRORS:
            raise
        line = f"cannot write {path}: {_describe_error(error)}"
        if (broken_link := _broken_link(path)) is not None:
            line = f"cannot write {path}: {broken_link} is a link to {os.readlink(broken_link)}, which does not exist"
        elif required_bytes:
            line += f"; {required_bytes:,} bytes needed, {_free(path)} free"
        raise Unwritable(line) from error


def _describe_error(error: OSError) -> str:
    name = errno.errorcode.get(error.errno or 0)
    if name:
        return f"{error.strerror} ({name})"
    return str(error)


def _broken_link(path: Path) -> Path | None:
    """Return the first broken symbolic link on a path. Returns None if there is none."""
    with suppress(OSError):
        return next((folder for folder in (path, *path.parents) if folder.is_symlink() and not folder.exists()), None)
    return None


def _free(path: Path) -> str:
    with suppress(OSError, StopIteration):
        return f"{shutil.disk_usage(next(folder for folder in path.parents if folder.exists())).free:,}"
    return "unknown"


@contextmanager
def file_lock(path: Path, wait: bool = True) -> Iterator[None]:
    """Hold an exclusive lock on this file against other processes and threads. Hold it only for milliseconds.

    Raises BlockingIOError if another holds the lock and `wait` is False, and OSError on failure.

    The file is created if needed and is never removed, because a lock on a removed file would have no effect.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            if error.errno not in NO_LOCK_ERRORS:
                raise
        yield
    finally:
        os.close(handle)
