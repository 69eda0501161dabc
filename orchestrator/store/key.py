"""The form of a key."""

from __future__ import annotations

import re

from orchestrator.errors import StoreError

KEY = re.compile(r"[0-9a-f]{8,128}")


def valid(key: str) -> str:
    """The key. Raises StoreError if it is not a valid one."""
    if not KEY.fullmatch(key):
        raise StoreError(f"{key!r} is not a key: keys are 8 or more hexadecimal digits")
    return key
