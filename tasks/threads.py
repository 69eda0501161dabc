"""How many threads arithmetic uses in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Inside, torch computes with `count` threads; afterwards with as many as before.

    Models this small train fastest as one process per core with one thread each, and one thread's sums have one order.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
