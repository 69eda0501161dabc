"""Choices about how a call's jobs are computed, and facts about the computation.

Neither affects results, so neither is in a config or key. The sender of a call sets the choices (`use_context`). The
computing code reads them (`current_context`) and notes facts about each result (`note`).
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

Choice = Mapping[str, Any]  # JSON values
Settle = Callable[[str, Callable[[], Choice]], Choice]
Advance = Callable[[float], None]


def here() -> Settle:
    """Return a function that remembers the choices it has made."""
    settled: dict[str, Choice] = {}

    def settle(name: str, choose: Callable[[], Choice]) -> Choice:
        if name not in settled:
            settled[name] = choose()
        return settled[name]

    return settle


def ignore(_networks: float) -> None:
    """Report to nobody how far a call's trainings are."""


@dataclass(frozen=True)
class ComputeContext(Ranged):
    """The choices for a computation.

    `settle(name, choose)` returns the earlier choice with this name, or makes it with `choose()` and stores it. A whole
    run therefore has one choice per name, however many processes and resumptions it has. `advance` receives how far the
    trainings in progress are, as a number of networks.
    """

    way: StrategyName = "auto"  # how models are trained; auto is the fastest way here
    members: Annotated[int, AtLeast(1)] | None = (
        None  # maximum number of models in one step; None: the fastest number that fits
    )
    sharers: Annotated[int, AtLeast(1)] = 1  # concurrent calls on this device, which share its memory
    settle: Settle = field(default_factory=here)
    gpus: Annotated[int, AtLeast(1)] = 1  # that this process may use; a model may be spread over several GPUs
    advance: Advance = ignore
    processes: Annotated[int, AtLeast(1)] = 1  # that compute each job together, if its task supports this


@dataclass
class _Call:
    context: ComputeContext
    notes: dict[str, Any]


_call: ContextVar[_Call | None] = ContextVar("call", default=None)
_ALONE = ComputeContext()  # for a process outside a run


@contextmanager
def use_context(context: ComputeContext) -> Iterator[Mapping[str, Any]]:
    """Compute jobs in this context inside the block. Yields the notes on the latest result."""
    call = _Call(context, {})
    token = _call.set(call)
    try:
        yield call.notes
    finally:
        _call.reset(token)


def current_context() -> ComputeContext:
    """Return the current compute context."""
    call = _call.get()
    return _ALONE if call is None else call.context


def advance(networks: float) -> None:
    """Report how far the trainings in progress are: two that are half done count as one network.

    Jobs whose results were returned do not count. Called often, such as after every step, so it must be fast.
    """
    current_context().advance(networks)


def note(**facts: Any) -> None:
    """Note facts about a result before it is returned. They replace the notes on the previous result.

    Facts are JSON values. For trainings: `way`, `stack` (models in one step), `steps_per_second` (of one model, times
    the models in the step), `device`, `bytes_per_member`, `device_bytes`, `busy` (the fraction of wall time in which
    the device was computing), `continued_from` (the epoch of the state it continued from; absent if it started from
    scratch), `parts` (the parts in which a step was computed; absent if the planned number fitted into memory),
    `processes` (that trained the model together; absent for one).
    """
    call = _call.get()
    if call is not None:
        call.notes.clear()
        call.notes.update(facts)


def note_further(**facts: Any) -> None:
    """Add facts to the notes on a result before it is returned.

    For density models: `log_p` (how a GPU decoded codes: triton or torch).
    """
    call = _call.get()
    if call is not None:
        call.notes.update(facts)
