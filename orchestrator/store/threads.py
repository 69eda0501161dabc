"""Pools of threads for reads and writes, for which an interrupt does not wait."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def thread_pool(count: int, name: str) -> Iterator[ThreadPoolExecutor]:
    """A pool of threads. The block waits for them when it finishes, but not on an error or interrupt.

    A thread may be in a read that does not return, for example of a disconnected disk.
    """
    pool = ThreadPoolExecutor(count, name)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
