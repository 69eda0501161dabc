"""Executors run calls and report what became of them. They decide nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from orchestrator.calls import Call, Finished


class Executor(Protocol):
    """Runs calls somewhere. Every submitted call comes back from `wait` exactly once, whatever happens to it."""

    slots: int  # calls that can run at one time
    window: int  # calls worth having submitted at one time, besides those for GPUs
    gpus: int  # that calls can use
    sharers: int  # calls that can share one of them at most

    def submit(self, call: Call) -> None: ...

    def wait(self, seconds: float) -> Sequence[Finished]:
        """The calls that have ended; waits up to `seconds` for the first of them."""

    def cancel(self) -> None:
        """Give up what is submitted, as soon as can be; nothing of it comes back."""

    def close(self) -> None: ...


def open_executor(address: str | None, store: str) -> Executor:
    """The executor for an address: `none` is this process, anything else Ray (None: a cluster on this machine)."""
    if address == "none":
        from orchestrator.executors.local import LocalExecutor

        return LocalExecutor(store)
    from orchestrator.executors.ray import RayExecutor

    return RayExecutor(store, address=address or "local")
