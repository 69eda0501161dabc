"""How a call's jobs are to be computed where there is a choice, and what came of it.

None of it bears on a result, so none of it is in a config or a key. Whoever sends a call says how (`under`); the code
that has the choice asks (`asked`), and notes beside each result what it did (`note`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args

from tasks.contract.ranges import AtLeast, Ranged

StrategyName = Literal["auto", "loop", "stack", "graph"]
STRATEGIES: tuple[str, ...] = get_args(StrategyName)

Choice = Mapping[str, Any]  # what JSON can hold
Settle = Callable[[str, Callable[[], Choice]], Choice]


def here() -> Settle:
    """A function that remembers the choices it has made."""
    settled: dict[str, Choice] = {}

    def settle(name: str, choose: Callable[[], Choice]) -> Choice:
        if name not in settled:
            settled[name] = choose()
        return settled[name]

    return settle


@dataclass(frozen=True)
class ComputeContext(Ranged):
    """How to compute.

    `settle(name, choose)` gives the choice already made under that name, or makes it by `choose()` and keeps it: one
    choice per name for a whole run, however many processes compute it and however often it is resumed.
    """

    way: StrategyName = "auto"  # of training models; auto takes the fastest here
    members: Annotated[int, AtLeast(1)] | None = (
        None  # models in one step at most; None: as many as are fastest and fit
    )
    sharers: Annotated[int, AtLeast(1)] = 1  # calls on this device at one time: each takes its part of the memory
    settle: Settle = field(default_factory=here)
    gpus: Annotated[int, AtLeast(1)] = 1  # that this process may use: a model may lie on several of them


@dataclass
class _Call:
    context: ComputeContext
    notes: dict[str, Any]


_call: ContextVar[_Call | None] = ContextVar("call", default=None)
_ALONE = ComputeContext()  # a process of no run


@contextmanager
def use_context(context: ComputeContext) -> Iterator[Mapping[str, Any]]:
    """Compute jobs in this context inside; yields what was noted of the latest result."""
    call = _Call(context, {})
    token = _call.set(call)
    try:
        yield call.notes
    finally:
        _call.reset(token)


def current_context() -> ComputeContext:
    """The current compute context."""
    call = _call.get()
    return _ALONE if call is None else call.context


def note(**facts: Any) -> None:
    """Note how a result was computed, before it is handed over; replaces the notes on the previous one.

    Facts are what JSON can hold. For trainings: `way`, `stack` (models in one step), `steps_per_second` (of one
    model, times the models in the step), `device`, `bytes_per_member`, `device_bytes`, `busy` (the share of wall time
    that the device was computing), `continued_from` (the epoch whose state it went on from; absent: from its start).
    """
    call = _call.get()
    if call is not None:
        call.notes.clear()
        call.notes.update(facts)
