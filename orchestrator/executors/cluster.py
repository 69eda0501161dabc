"""A Ray cluster as an executor sees it: its machines, its running calls, and the causes of lost calls."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ray import exceptions

from orchestrator.executors import private_ray
from orchestrator.executors.calls import RAN_OUT, Call
from orchestrator.quantities import format_resources
from tasks.contract.quantities import ByteCount
from tasks.contract.resources import Resources
from tasks.worker.hardware import MemoryKind

LABEL = "ray.io/node-group"  # on machines started by Ray's launcher or KubeRay
GPU_LABEL = "ray.io/accelerator-type"  # such as A100; set when Ray starts on a machine with a GPU
OTHER = "other"  # type of GPUs without that label
MEMORY_GRAIN = 2**28  # bytes; requests are rounded to a multiple, because Ray reuses workers only for equal requests
ANSWER_SECONDS = 5.0
CAUSES: Mapping[type[Exception], tuple[str, bool]] = {  # cause of a lost call, and whether its worker died
    exceptions.WorkerCrashedError: ("its worker process died", True),
    exceptions.OutOfMemoryError: (f"{RAN_OUT['host']}, so Ray ended its worker process", True),
    exceptions.NodeDiedError: ("its node went away", False),
    exceptions.TaskCancelledError: ("it was cancelled from outside", False),
    exceptions.RuntimeEnvSetupError: ("its worker's environment could not be set up", False),
}


@dataclass(frozen=True)
class Machine:
    """A machine in a cluster: its resources and labels, its Ray id, and a readable name."""

    resources: Mapping[str, float]
    labels: Mapping[str, str]
    id: str
    name: str

    @classmethod
    def from_node(
        cls, resources: Mapping[str, float], labels: Mapping[str, str], id: str, host: str, address: str
    ) -> Machine:
        return cls(resources, labels, id, f"{host} ({address})")

    @property
    def computes(self) -> bool:
        """Whether calls may run there. A head node may have no processors."""
        return any(self.resources.get(kind, 0) > 0 for kind in ("CPU", "GPU"))

    @property
    def capacity(self) -> Resources:
        """The resources of the largest job that may run there."""
        gpus, cpus, memory = (int(self.resources.get(kind, 0)) for kind in ("GPU", "CPU", "memory"))
        return Resources(gpus, cpus, ByteCount(memory))

    @property
    def size(self) -> tuple[int, int, int]:
        """Orders machines: by GPUs, then processors, then memory."""
        return self.capacity.gpus, self.capacity.cpus, self.capacity.memory

    def meets(self, resources: Resources) -> tuple[bool, bool, bool]:
        """Whether the machine has the GPUs, the processors and the memory of a job that needs these resources."""
        capacity = self.capacity
        cpus = resources.cpus or int(not resources.gpus)
        return resources.gpus <= capacity.gpus, cpus <= capacity.cpus, resources.memory <= capacity.memory

    @property
    def gpu_type(self) -> str:
        return self.labels.get(GPU_LABEL, OTHER)


def gpu_types(machines: Iterable[Machine]) -> dict[str, int]:
    """Count the GPUs of each type on these machines."""
    types: dict[str, int] = {}
    for machine in machines:
        if gpus := int(machine.resources.get("GPU", 0)):
            types[machine.gpu_type] = types.get(machine.gpu_type, 0) + gpus
    return types


def gpu_selector(gpu_type: str, types: Iterable[str]) -> dict[str, str]:
    """Return Ray's label selector for machines with one GPU type among several."""
    labelled = ",".join(sorted(name for name in types if name != OTHER))
    return {GPU_LABEL: f"!in({labelled})" if gpu_type == OTHER else gpu_type}


def memory_to_ask(call: Call, machines: Iterable[Machine]) -> int:
    """Return the bytes of memory to request: the call's need, limited to the largest machine that can run it.

    A need that the call states is not limited. Returns 0 if the need is unknown.
    """
    if not call.memory:
        return 0
    kind = "GPU" if call.gpus else "CPU"
    suitable_machines = []
    for machine in machines:
        if machine.resources.get(kind, 0) > 0:
            suitable_machines.append(machine)
    if call.gpu_type:
        suitable_machines = [
            machine for machine in suitable_machines if machine.gpu_type == call.gpu_type
        ] or suitable_machines
    largest = max((machine.resources.get("memory", 0.0) for machine in suitable_machines), default=0.0)
    if call.memory == call.resources.memory:
        return int(call.memory)
    memory = math.ceil(call.memory / MEMORY_GRAIN) * MEMORY_GRAIN if math.isfinite(call.memory) else math.inf
    return int(max(min(memory, largest), call.resources.memory))


def obstacle(resources: Resources, machines: Sequence[Machine], has_gpus: bool) -> str | None:
    """Return the reason why none of these machines can run a job that needs these resources. None if one can.

    Without `has_gpus`, the run uses no GPU.
    """
    if resources.gpus and not has_gpus:
        return "the run uses no GPU (--gpus none)"
    if not machines:
        return "the cluster has no machine"
    best_match = max(machines, key=lambda machine: (sum(machine.meets(resources)), machine.size))
    if all(best_match.meets(resources)):
        return None
    return f"the best match in the cluster has {format_resources(best_match.capacity)}"


def infeasible_requests() -> Sequence[Mapping[str, float]]:
    """Return the resource requests that none of the autoscaler's machine types can satisfy.

    Ray does not report the available machine types, only the waiting calls that none of them can run, as shown by `ray
    status`. This is reliable only while no machine is starting.
    """
    state = private_ray.read_autoscaling_state(ANSWER_SECONDS)
    if state is None or state.pending_instances or state.pending_instance_requests:
        return ()
    requests = []
    for request in state.infeasible_resource_requests:
        requests.append(dict(request.resources_bundle))
    return requests


def lack_gpus(infeasible: Iterable[Mapping[str, float]]) -> bool:
    """Whether calls request a GPU but none of the autoscaler's machine types has one."""
    return any(bundle.keys() == {"GPU"} and bundle["GPU"] <= 1 for bundle in infeasible)


@dataclass
class SentCall:
    """A submitted call that has not returned. All times are seconds of one monotonic clock."""

    call: Call
    memory: int = 0  # requested bytes
    slot_time: float | None = None  # when a slot became free for it
    test_time: float | None = None  # when a test of whether it has started began
    has_begun: bool = False  # whether it is known to have begun
    is_taken_back: bool = False  # whether it was taken back before it began
    end_request_time: float | None = None  # when it was first asked to end
    end_reason: str = ""  # why it was asked to end


def calls_with_slots(
    sent_calls: Iterable[SentCall], slots: int, gpus: float, now: float, memory: float = math.inf
) -> list[tuple[Call, float]]:
    """Return the calls that have room, in the order in which they were sent, each with the seconds since it got it.

    On a shared cluster, a call may begin later than that.
    """
    calls = []
    for entry in sent_calls:
        call = entry.call
        # A call that shares a GPU needs any rest of one. Fractions do not add up exactly.
        lacks_gpu = call.gpus > 0 and (call.resources.gpus or 2e-9) > gpus + 1e-9
        if lacks_gpu or call.cpus > slots or entry.memory > memory:
            continue
        gpus -= call.gpus
        slots -= call.cpus
        memory -= entry.memory
        if entry.slot_time is None:
            entry.slot_time = now
        calls.append((entry.call, now - entry.slot_time))
    return calls


def reason(error: Exception) -> tuple[str, bool, MemoryKind | None]:
    """Return the cause of a lost call as one line, whether its worker process died, and the exhausted memory."""
    for kind, (cause, died) in CAUSES.items():
        if isinstance(error, kind):
            return cause, died, "host" if kind is exceptions.OutOfMemoryError else None
    origin = getattr(error, "cause", None) or error
    first = next((line.strip() for line in str(origin).splitlines() if line.strip()), "")
    return f"{type(origin).__name__}: {first}".rstrip(": "), False, None
