"""A link of a chain: its result if it may continue from states, and the state that it leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from tasks.worker.checkpoints import Link, use_links
from tasks.worker.compute_context import ComputeContext, StrategyName, use_context

T = TypeVar("T")


def linked(
    compute: Callable[[], T], earlier_states: Iterable[bytes] = (), way: StrategyName = "auto"
) -> tuple[T, bytes, dict[str, Any]]:
    """The result, the last state (b"" if none was left) and the notes of one job of a call."""
    states: list[bytes] = [b""]
    with use_context(ComputeContext(way)) as notes, use_links([Link(lambda: earlier_states, states.append)]):
        result = compute()
    return result, states[-1], dict(notes)
