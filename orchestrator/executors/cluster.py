"""A Ray cluster as an executor sees it: its machines, which of its calls run, and why one was lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ray import exceptions
from ray.core.generated.autoscaler_pb2 import GetClusterStatusReply

from orchestrator.executors.calls import Call

LABEL = "ray.io/node-group"  # of machines that Ray's launcher, or KubeRay, has started
ANSWER_SECONDS = 5.0
CAUSES: Mapping[type[Exception], tuple[str, bool]] = {  # why a call was lost, and whether its worker died of it
    exceptions.WorkerCrashedError: ("its worker process died", True),
    exceptions.OutOfMemoryError: ("its worker process was ended because the node ran out of memory", True),
    exceptions.NodeDiedError: ("its node went away", False),
    exceptions.TaskCancelledError: ("it was cancelled from outside", False),
    exceptions.RuntimeEnvSetupError: ("its worker's environment could not be set up", False),
}


@dataclass(frozen=True)
class Machine:
    """A machine of a cluster, with its resources and labels, Ray's id of it, and the name that people know it by."""

    resources: Mapping[str, float]
    labels: Mapping[str, str]
    id: str
    name: str

    @property
    def computes(self) -> bool:
        """Whether calls may run there: a head may have nothing to compute on."""
        return any(self.resources.get(kind, 0) > 0 for kind in ("CPU", "GPU"))


def lack_gpus(gcs_client: Any) -> bool:
    """Whether the autoscaler says that no machine it may start has a GPU, while calls ask for one.

    Ray does not tell which types of machines there are, but which of the calls that wait none of them can run (as
    `ray status` shows it). That is believed only while no machine is being started.
    """
    reply = GetClusterStatusReply()
    try:
        reply.ParseFromString(gcs_client.get_cluster_status(timeout_s=ANSWER_SECONDS))
    except exceptions.RpcError:
        return False
    state = reply.autoscaling_state
    if state.pending_instances or state.pending_instance_requests:
        return False
    infeasible = [dict(request.resources_bundle) for request in state.infeasible_resource_requests]
    return any(bundle.keys() == {"GPU"} and bundle["GPU"] <= 1 for bundle in infeasible)


@dataclass
class Sent:
    """A submitted call that has not come back. Times are seconds of one monotonic clock."""

    call: Call
    since: float | None = None  # when there was a place for it to run in
    asked: float | None = None  # when it was asked whether it has begun
    begun: bool = False  # whether it is known to have begun
    taken: bool = False  # whether it was taken back before it began
    ending: float | None = None  # when it was first asked to end
    why: str = ""  # the reason for ending it


def calls_with_slots(sent: Iterable[Sent], slots: int, gpus: float, now: float) -> list[tuple[Call, float]]:
    """The calls that have a slot, in the order they were sent, each with the seconds since it got the slot.

    On a cluster that others use too, a call may begin later than that.
    """
    calls = []
    for entry in sent:
        if entry.call.gpus and gpus > 1e-9:
            gpus -= entry.call.gpus
        elif not entry.call.gpus and slots:
            slots -= 1
        else:
            continue
        entry.since = now if entry.since is None else entry.since
        calls.append((entry.call, now - entry.since))
    return calls


def reason(error: Exception) -> tuple[str, bool]:
    """The cause of a lost call in one line, and whether its worker process died."""
    for kind, (cause, died) in CAUSES.items():
        if isinstance(error, kind):
            return cause, died
    origin = getattr(error, "cause", None) or error
    first = next((line.strip() for line in str(origin).splitlines() if line.strip()), "")
    return f"{type(origin).__name__}: {first}".rstrip(": "), False
