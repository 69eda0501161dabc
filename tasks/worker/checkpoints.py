"""Checkpoints that the trainings of a call may continue from, and that they store for later links.

A long training is a chain of links, each a job "this training, up to epoch e". The checkpoint of a link does not affect
its result, so it is in no config and no key. The sender of a call provides the checkpoints (`use_links`). The training
task reads, by the job's index in `configs`, the states that it may continue from (`earlier_checkpoints`), and passes
its final state to `leave`. A state is bytes in a format of the task. Outside a run, there are no checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

Leave = Callable[[bytes], None]


@dataclass(frozen=True)
class Link:
    """The checkpoints before one job, the latest first, each read when needed.

    `leave` receives the final state; None if no link continues from it.
    """

    earlier_states: Callable[[], Iterable[bytes]] = tuple
    leave: Leave | None = None


_links: ContextVar[Sequence[Link]] = ContextVar("links", default=())
_NONE = Link()


@contextmanager
def use_links(links: Sequence[Link]) -> Iterator[None]:
    """Provide these links to the jobs of a call inside the block, in the order of its `configs`."""
    token = _links.set(links)
    try:
        yield
    finally:
        _links.reset(token)


def earlier_checkpoints(index: int) -> Iterator[bytes]:
    """Yield the checkpoints that a job may continue from, nearest first; the choice does not affect its result."""
    yield from _link(index).earlier_states()


def is_state_requested(index: int) -> bool:
    """Return whether the final state of a job should be stored."""
    return _link(index).leave is not None


def leave(index: int, state: bytes) -> None:
    """Pass on the final state of a job, before its result; ignored if it is not requested."""
    receiver = _link(index).leave
    if receiver is not None:
        receiver(state)


def _link(index: int) -> Link:
    links = _links.get()
    return links[index] if links else _NONE
