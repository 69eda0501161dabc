"""A job that is a link of a chain: what it computes where it may go on from states, and the state that it leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from tasks.worker.checkpoints import Link, use_links
from tasks.worker.compute_context import ComputeContext, StrategyName, use_context

T = TypeVar("T")


def linked(
    compute: Callable[[], T], given: Iterable[bytes] = (), way: StrategyName = "auto"
) -> tuple[T, bytes, dict[str, Any]]:
    """The result, the last state that was left (b"" where none was), and what was noted, of one job of a call."""
    left: list[bytes] = [b""]
    with use_context(ComputeContext(way)) as notes, use_links([Link(lambda: given, left.append)]):
        found = compute()
    return found, left[-1], dict(notes)
