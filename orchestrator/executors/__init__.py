"""Executors run calls and report their outcomes; they make no decisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from orchestrator.executors.calls import Call, Finished
from orchestrator.spec.options import GpusName
from orchestrator.store import Store


class Executor(Protocol):
    """Runs calls. `wait` returns every submitted call exactly once, unless it was cancelled."""

    slots: int  # number of simultaneous calls
    window: int  # useful number of submitted calls at a time, without GPU calls
    gpus: int  # number of usable GPUs; one if there is none yet and calls wait for it
    gpu_types: Mapping[str, int]  # number of GPUs by type, if the executor knows types
    growing: bool  # whether an autoscaler adds GPUs for waiting calls
    sharers: int  # maximum number of calls per GPU
    inside: bool  # whether calls run inside `wait`, in the calling thread
    pages: Mapping[str, str]  # pages of Ray's dashboard for "driver" and "nodes"; empty without a dashboard

    @property
    def pending(self) -> int:
        """The number of submitted calls that have neither ended nor been cancelled."""

    def submit(self, call: Call) -> None: ...

    def take_back(self, unwanted: Callable[[Call], bool]) -> Sequence[Call]:
        """Take back the unwanted calls that have not begun; `wait` does not return them."""

    def lacks(self) -> str | None:
        """The resource that submitted calls need and the executor lacks, "GPU" or "processor"; None if none."""

    def wait(self, seconds: float) -> Sequence[Finished]:
        """The calls that have ended, waiting up to `seconds` for the first."""

    def running(self) -> Sequence[tuple[Call, float]]:
        """The calls known to be running, each with an upper bound of its elapsed seconds."""

    def end(self, call: Call, reason: str) -> None:
        """End a running call and its worker; the call is returned as lost, with this cause.

        Calling it again enforces the end. A call that has not begun stays submitted.
        """

    def halt(self) -> None:
        """Begin no more calls: calls that have not begun are cancelled, running calls continue."""

    def cancel(self) -> None:
        """Cancel all submitted calls as soon as possible; none is returned."""

    def close(self) -> None: ...


def open_executor(
    address: str | None,
    store: Store,
    gpus: GpusName = "auto",
    data: Callable[[], Sequence[Any]] = tuple,
    dashboard: bool = False,
) -> Executor:
    """The executor for an address: `none` is this process, anything else Ray (None: a cluster on this machine).

    A cluster that is started here has Ray's `dashboard` if requested.

    Raises ClusterError unless every node of an existing cluster has the same code and versions, the store, and the
    pinned `data`. `data` is called only for an existing cluster.
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
