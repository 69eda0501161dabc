"""Thread pools for reads and writes that do not delay an interrupt."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def thread_pool(count: int, name: str) -> Iterator[ThreadPoolExecutor]:
    """Create a thread pool. The block waits for its threads when it finishes, but not after an error or interrupt.

    A thread may be stuck in a read that never returns, for example from a disconnected disk.
    """
    pool = ThreadPoolExecutor(count, name)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
