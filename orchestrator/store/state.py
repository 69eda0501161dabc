"""The state of a training as a file: a digest over its bytes and its key, then the bytes.

A state only saves time, so a corrupt one counts as none.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from orchestrator.errors import Damaged, StoreError

if TYPE_CHECKING:
    from orchestrator.store import Store

SUFFIX = ".state"
MAGIC = b"engram state 1\n"
DIGEST = 32  # bytes


class CorruptError(ValueError):
    """These bytes are not the state that was written under this key."""


def seal(key: str, data: bytes) -> tuple[bytes, bytes]:
    """The file's bytes in two consecutive parts."""
    return MAGIC + _digest(key, data), data


def unseal(key: str, file: memoryview) -> bytes:
    """The state. Raises CorruptError if it is another key's, or if not every byte is as sealed."""
    start = len(MAGIC) + DIGEST
    data = bytes(file[start:])
    if bytes(file[:start]) != MAGIC + _digest(key, data):
        raise CorruptError("its bytes do not match their digest")
    return data


def remove_damaged_state(store: Store, key: str, error: Exception) -> Damaged:
    """Remove a damaged state; return the error, in one line."""
    became = "it is removed"
    try:
        store.remove_state(key)
    except (StoreError, OSError) as refused:
        became = f"it cannot be removed ({refused})"
    return Damaged(f"state {key} was damaged: {error}; {became}")


def _digest(key: str, data: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\n" + data).digest()
