"""Freed memory: kept by this process for what it computes next.

The activations of a minibatch are megabytes that come and go with every step. glibc gives such blocks back to the
system at once and has them filled with zeros, page by page, when they are asked for again, which is a third of a
convolutional network's step on a CPU.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # the names that malloc.h gives these numbers: M_...
LARGEST = 32 * 2**20  # bytes: blocks beyond this are given back all the same, by glibc's own limit


@cache
def keep() -> bool:
    """Keep what is freed from now on, in this process; whether its C library can."""
    if not sys.platform.startswith("linux"):
        return False
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    return set_option is not None and bool(
        set_option(MMAP_THRESHOLD, LARGEST) and set_option(TRIM_THRESHOLD, 2**31 - 1)
    )
