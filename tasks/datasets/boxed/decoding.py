"""Picture files read and decoded by several threads, a few at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

THREADS = 16  # at most; decoding pictures of hundreds of pixels a side leaves the interpreter for milliseconds each
TOGETHER = 1024  # given to the threads at a time, so that no more results wait in memory

S = TypeVar("S")
T = TypeVar("T")


def map_in_threads(function: Callable[[S], T], items: Sequence[S]) -> Iterator[T]:
    """The function's result for each item, in order; what it raises is raised here."""
    with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool:
        for first in range(0, len(items), TOGETHER):
            yield from pool.map(function, items[first : first + TOGETHER])
