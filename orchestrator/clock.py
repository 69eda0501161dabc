"""The clock that a driver goes by; a simulation gives it another one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Clock:
    """`now` in seconds since 1970, `monotonic` in seconds since whenever, and `sleep` for so many seconds."""

    now: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


SYSTEM = Clock()
