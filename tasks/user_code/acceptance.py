"""Changes of the user's code that the user has accepted: the code as it is now stands in keys for the code before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

_stand_ins: ContextVar[Mapping[str, str]] = ContextVar("stand_ins", default=MappingProxyType({}))


def digest_in_keys(digest: str) -> str:
    """The digest that stands in keys for code of this digest: its own, or that of before an accepted change."""
    return _stand_ins.get().get(digest, digest)


@contextmanager
def use_stand_ins(stand_ins: Mapping[str, str]) -> Iterator[None]:
    """Make keys inside the block with these digests (present -> earlier)."""
    token = _stand_ins.set(stand_ins)
    try:
        yield
    finally:
        _stand_ins.reset(token)
