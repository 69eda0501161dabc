"""One limit for every wait of the tests: it ends a test that hangs, and is far beyond what a busy machine takes."""

from __future__ import annotations

import time
from collections.abc import Callable

HANGING = 600.0  # seconds
PAUSE = 0.05  # seconds between two looks


def wait_until(condition: Callable[[], object]) -> None:
    """Return once this holds. Raises AssertionError after HANGING seconds."""
    deadline = time.monotonic() + HANGING
    while not condition():
        assert time.monotonic() < deadline, f"nothing for {HANGING:g} s"
        time.sleep(PAUSE)
