"""Executors run calls and report their outcomes. They make no decisions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from orchestrator.executors.calls import Call, Finished
from orchestrator.spec.options import GpusName
from orchestrator.store import Store
from tasks.contract.resources import Resources


class Executor(Protocol):
    """Runs calls. `wait` returns every submitted call exactly once, unless the call was cancelled."""

    slots: int  # number of concurrent calls
    window: int  # number of calls worth submitting at a time, not counting GPU calls
    gpus: int  # number of usable GPUs; 1 if there is none yet and calls wait for one
    gpu_types: Mapping[str, int]  # number of GPUs by type, if the executor knows types
    growing: bool  # whether an autoscaler adds GPUs for waiting calls
    sharers: int  # maximum number of calls per GPU
    inside: bool  # whether calls run inside `wait`, in the calling thread
    pages: Mapping[str, str]  # Ray dashboard URLs for "driver" and "nodes"; empty without a dashboard

    @property
    def pending(self) -> int:
        """Number of submitted calls that have neither ended nor been cancelled."""

    def submit(self, call: Call) -> None: ...

    def take_back(self, unwanted: Callable[[Call], bool]) -> Sequence[Call]:
        """Take back the unwanted calls that have not begun. `wait` does not return them."""

    def obstacle(self, resources: Resources) -> str | None:
        """The reason why a job that needs these resources can never begin. None if it can, or may once a machine
        joins.
        """

    def lacks(self) -> str | None:
        """What submitted calls need but the executor lacks: "GPU", "processor", "machine with 64 GPUs" or None."""

    def wait(self, seconds: float) -> Sequence[Finished]:
        """Return the calls that have ended. Waits up to `seconds` for the first one."""

    def running(self) -> Sequence[tuple[Call, float]]:
        """Return the calls known to be running, each with an upper bound on its elapsed seconds."""

    def end(self, call: Call, reason: str) -> None:
        """End a running call and its worker. The call is returned as lost, with `reason` as the cause.

        Calling this again forces the end. A call that has not begun stays submitted.
        """

    def halt(self) -> None:
        """Begin no more calls. Calls that have not begun are cancelled; running calls continue."""

    def cancel(self) -> None:
        """Cancel all submitted calls as soon as possible. No cancelled call is returned."""

    def close(self) -> None: ...


def open_executor(
    address: str | None,
    store: Store,
    gpus: GpusName = "auto",
    data: Callable[[], Sequence[Any]] = tuple,
    dashboard: bool = False,
    modules: Collection[str] = (),
) -> Executor:
    """Open the executor for an address: `none` is this process, `pool` are processes forked on this machine.

    Any other address is Ray (None: a cluster on this machine). A cluster started here runs Ray's dashboard if
    `dashboard` is set. A pool imports `modules` once for all workers.

    Raises ClusterError unless every node of an existing cluster has the same code and versions, the store, and the
    pinned `data`. `data` is called only for an existing cluster.
    """
    if address == "none":
        from orchestrator.executors.local import LocalExecutor

        return LocalExecutor(store.location, gpus)
    if address == "pool":
        from orchestrator.executors.pool import PoolExecutor

        return PoolExecutor(store.location, modules)
    from orchestrator.executors.ray import RayExecutor

    executor = RayExecutor(store.location, address=address or "local", gpus=gpus, dashboard=dashboard)
    try:
        executor.check_nodes(store, data)
    except BaseException:
        executor.close()
        raise
    return executor
