"""Executors run calls and report what became of them. They decide nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from orchestrator.executors.calls import Call, Finished


class Executor(Protocol):
    """Runs calls somewhere. Every submitted call comes back from `wait` exactly once, unless it was given up."""

    slots: int  # calls that can run at one time
    window: int  # calls worth having submitted at one time, besides those for GPUs
    gpus: int  # that calls can use
    sharers: int  # calls that can share one of them at most
    inside: bool  # whether calls run inside `wait`, in the thread that calls it

    @property
    def pending(self) -> int:
        """Calls that are submitted, have not come back and are not given up."""

    def submit(self, call: Call) -> None: ...

    def wait(self, seconds: float) -> Sequence[Finished]:
        """The calls that have ended; waits up to `seconds` for the first of them."""

    def running(self) -> Sequence[tuple[Call, float]]:
        """Calls that run, as far as can be told, each with the seconds that it has run for at most."""

    def end(self, call: Call, why: str) -> None:
        """End a call that runs, and its worker with it; it comes back as lost to this cause.

        Asked again it makes sure. One that turns out not to have begun yet stays submitted.
        """

    def halt(self) -> None:
        """Begin nothing more. What has not begun is given up, what runs goes on."""

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
