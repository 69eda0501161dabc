"""One time limit for all waits of the tests, far longer than any wait on a busy machine. It ends tests that hang."""

from __future__ import annotations

import time
from collections.abc import Callable

HANGING = 600.0  # seconds
PAUSE = 0.05  # seconds between two checks


def wait_until(condition: Callable[[], object]) -> None:
    """Return once a condition is true. Raises AssertionError after HANGING seconds."""
    deadline = time.monotonic() + HANGING
    while not condition():
        assert time.monotonic() < deadline, f"nothing for {HANGING:g} s"
        time.sleep(PAUSE)
