"""The clock of a driver, which a simulation replaces."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Clock:
    """`now` in seconds since 1970, `monotonic` in seconds since any fixed time, and `sleep` for so many seconds."""

    now: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


SYSTEM = Clock()
