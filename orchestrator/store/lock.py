"""A lock on a file, which the kernel opens again when its holder dies."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Some shared file systems have no locks. What is locked here is also safe by its order of steps, only less strictly.
LOCKLESS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


@contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[None]:
    """Alone among the processes and threads that lock this file; hold it for milliseconds. OSError where it cannot be.

    BlockingIOError where somebody else holds it and that is not to be waited for.

    The file is made if need be and stays: a lock on a removed file would exclude nobody.
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
