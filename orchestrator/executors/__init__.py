"""Executors run calls and report their outcomes. They decide nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from orchestrator.executors.calls import Call, Finished
from orchestrator.spec.options import GpusName
from orchestrator.store import Store


class Executor(Protocol):
    """Runs calls somewhere. Every submitted call comes back from `wait` exactly once, unless it was cancelled."""

    slots: int  # calls that can run at one time
    window: int  # calls worth having submitted at one time, besides those for GPUs
    gpus: int  # that calls can use; one if there is none yet, and calls wait for it
    gpu_types: Mapping[str, int]  # these by type, as far as the executor knows types
    growing: bool  # whether an autoscaler brings more GPUs for calls that wait
    sharers: int  # calls that can share one of them at most
    inside: bool  # whether calls run inside `wait`, in the thread that calls it
    pages: Mapping[str, str]  # of Ray's dashboard on the "driver" and on the "nodes"; empty where there is none

    @property
    def pending(self) -> int:
        """The number of calls that are submitted and neither ended nor cancelled."""

    def submit(self, call: Call) -> None: ...

    def take_back(self, unwanted: Callable[[Call], bool]) -> Sequence[Call]:
        """Take back the unwanted calls that have not begun; they do not come back from `wait`."""

    def lacks(self) -> str | None:
        """What submitted calls ask for and the executor has none of, "GPU" or "processor"; None if nothing."""

    def wait(self, seconds: float) -> Sequence[Finished]:
        """The calls that have ended, waiting up to `seconds` for the first."""

    def running(self) -> Sequence[tuple[Call, float]]:
        """The calls known to be running, each with an upper bound of its seconds so far."""

    def end(self, call: Call, why: str) -> None:
        """End a running call and its worker; it comes back as lost, with this cause.

        Calling it again makes sure of the end. A call that turns out not to have begun stays submitted.
        """

    def halt(self) -> None:
        """Begin no more calls: those not begun are cancelled, running ones go on."""

    def cancel(self) -> None:
        """Cancel all submitted calls as soon as possible; none of them comes back."""

    def close(self) -> None: ...


def open_executor(
    address: str | None,
    store: Store,
    gpus: GpusName = "auto",
    data: Callable[[], Sequence[Any]] = tuple,
    dashboard: bool = False,
) -> Executor:
    """The executor for an address: `none` is this process, anything else Ray (None: a cluster on this machine).

    A cluster that is started here has Ray's `dashboard` if asked for.

    Raises ClusterError unless every node of a cluster that was there before has the same code and versions, the store,
    and the pinned `data`, which are asked for with such a cluster alone.
    """
    if address == "none":
        from orchestrator.executors.local import LocalExecutor

        return LocalExecutor(store.location, gpus)
    from orchestrator.executors.ray import RayExecutor

    executor = RayExecutor(store.location, address=address or "local", gpus=gpus, dashboard=dashboard)
    try:
        executor.check_nodes(store, data)
    except BaseException:
        executor.close()
        raise
    return executor
