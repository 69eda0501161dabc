"""A lock on a file, which the kernel releases when its holder dies."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Some shared file systems have no locks. The locked code is then protected by its order of steps, less strictly.
LOCKLESS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


@contextmanager
def file_lock(path: Path, wait: bool = True) -> Iterator[None]:
    """Exclude other processes and threads that lock this file; hold it for milliseconds. Raises OSError on failure.

    Raises BlockingIOError if another holds it and `wait` is False.

    The file is created if needed and stays: a lock on a removed file would have no effect.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            if error.errno not in LOCKLESS:
                raise
        yield
    finally:
        os.close(handle)
