"""The keys of a store, listed once for all that look at them together.

A listing reads a folder per first two characters of the keys, or a page of a bucket per thousand results. The pages and
answers of a sweep look at the keys many times for each cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from contextlib import contextmanager
from contextvars import ContextVar

from orchestrator.store import Store

_listed: ContextVar[dict[str, Set[str]] | None] = ContextVar("listed", default=None)


@contextmanager
def list_once() -> Iterator[None]:
    """Let `stored_keys` list each store at most once inside; what is stored meanwhile is not seen."""
    if _listed.get() is not None:
        yield
        return
    token = _listed.set({})
    try:
        yield
    finally:
        _listed.reset(token)


def stored_keys(store: Store) -> Set[str]:
    """The keys of all results, by `store.keys()`; inside `listed_once` from its first call there."""
    listed = _listed.get()
    if listed is None:
        return store.keys()
    if store.location not in listed:
        listed[store.location] = frozenset(store.keys())
    return listed[store.location]
