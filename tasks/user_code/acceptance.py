"""Accepted changes to users' code: keys contain the digest of the earlier code instead of the current one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

_stand_ins: ContextVar[Mapping[str, str]] = ContextVar("stand_ins", default=MappingProxyType({}))


def digest_in_keys(digest: str) -> str:
    """Return the digest that keys use for code with this digest: the earlier one if the change was accepted."""
    return _stand_ins.get().get(digest, digest)


def current_stand_ins() -> Mapping[str, str]:
    """Return the accepted changes (current digest -> earlier digest), for a process that this one starts."""
    return _stand_ins.get()


@contextmanager
def use_stand_ins(stand_ins: Mapping[str, str]) -> Iterator[None]:
    """Inside the block, use these digests (current -> earlier) in keys."""
    token = _stand_ins.set(stand_ins)
    try:
        yield
    finally:
        _stand_ins.reset(token)
