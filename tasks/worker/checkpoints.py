"""Checkpoints from which the trainings of a call may continue, and which they store for later links.

A long training is a chain of links, each a job "this training, up to epoch e". A link's checkpoint does not affect its
result, so it is in no config or key. The sender of a call provides the checkpoints (`use_links`). The training task
uses the job's index in `configs` to read the states that it may continue from (`earlier_checkpoints`), and passes its
final state to `leave`. A state is bytes in a format that the task defines. Outside a run, there are no checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

Leave = Callable[[bytes], None]


@dataclass(frozen=True)
class Link:
    """The checkpoints before a job, latest first, each read only when needed.

    `leave` receives the final state. It is None if no link continues from that state.
    """

    earlier_states: Callable[[], Iterable[bytes]] = tuple
    leave: Leave | None = None


_links: ContextVar[Sequence[Link]] = ContextVar("links", default=())
_NONE = Link()


@contextmanager
def use_links(links: Sequence[Link]) -> Iterator[None]:
    """Inside the block, provide these links to the jobs of a call, in the order of its `configs`."""
    token = _links.set(links)
    try:
        yield
    finally:
        _links.reset(token)


def earlier_checkpoints(index: int) -> Iterator[bytes]:
    """Yield the checkpoints that a job may continue from, nearest first.

    Which one it chooses does not affect its result.
    """
    yield from _link(index).earlier_states()


def is_state_requested(index: int) -> bool:
    """Return whether the final state of a job should be stored."""
    return _link(index).leave is not None


def leave(index: int, state: bytes) -> None:
    """Pass on the final state of a job, before its result. Ignored if the state is not requested."""
    receiver = _link(index).leave
    if receiver is not None:
        receiver(state)


def _link(index: int) -> Link:
    links = _links.get()
    return links[index] if links else _NONE
