"""Checkpoints that the trainings of a call may continue from, and those that they leave for later links.

A long training is a chain of links, each a job "this training, up to epoch e". Where a link continues from does not
bear on its result, so it is in no config and no key. The sender of a call provides the checkpoints (`under`). The
training task reads, by the job's index in `configs`, the states that it may continue from (`given`), and hands over the
one at its end (`leave`). A state is bytes whose meaning is the task's own. Outside a run none are given and none kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

Leave = Callable[[bytes], None]


@dataclass(frozen=True)
class Link:
    """The checkpoints before one job, the nearest first, each read when needed.

    `leave` takes the state at its end; None where no link continues from there.
    """

    given: Callable[[], Iterable[bytes]] = tuple
    leave: Leave | None = None


_links: ContextVar[Sequence[Link]] = ContextVar("links", default=())
_NONE = Link()


@contextmanager
def use_links(links: Sequence[Link]) -> Iterator[None]:
    """Inside the context, give the jobs of a call these links, in the order of its `configs`."""
    token = _links.set(links)
    try:
        yield
    finally:
        _links.reset(token)


def earlier_checkpoints(index: int) -> Iterator[bytes]:
    """The checkpoints a job may continue from, nearest first. Which one it takes makes no difference to its result."""
    yield from _link(index).given()


def wanted(index: int) -> bool:
    """Whether the state at a job's end is to be stored."""
    return _link(index).leave is not None


def leave(index: int, state: bytes) -> None:
    """Hand over the state at a job's end, before its result; dropped where it is not wanted."""
    taken = _link(index).leave
    if taken is not None:
        taken(state)


def _link(index: int) -> Link:
    links = _links.get()
    return links[index] if links else _NONE
