"""Runs calls on a Ray cluster: a private one on this machine, or an existing one.

(What we call a call is a "task" in Ray, and a program is a "job".) Ray transports calls and outcomes, never tables. Ray
does not retry calls, and a window limits the queue. Its own messages go to its session folder, not to the terminal.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray import cloudpickle, exceptions
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from orchestrator.errors import ClusterError
from orchestrator.executors import cluster, nodes, private_ray, worker
from orchestrator.executors.calls import Call, Finished, Lost
from orchestrator.executors.cluster import Machine, SentCall, calls_with_slots
from orchestrator.executors.connection import connect, reachable
from orchestrator.executors.environment import ONE_THREAD
from orchestrator.executors.gpu_packing import SHARERS
from orchestrator.quantities import format_resources
from orchestrator.spec.options import GpusName
from orchestrator.store import Store
from orchestrator.store.provenance import identity
from tasks.contract.resources import NO_RESOURCES, NO_TIME, Resources
from tasks.worker.hardware import MemoryKind

ROOT = str(Path(__file__).resolve().parents[2])
LOOK_SECONDS = 2.0  # between checks of the cluster's size and health
ANSWER_SECONDS = 5.0  # time limit for the head to list the machines, which takes milliseconds
HEAD_SECONDS = 20.0  # how long a head may be unreachable or silent, since it can be restarted
CANCEL_SECONDS = 0.3  # time limit for Ray to report the calls that had not begun, which takes a few milliseconds
BEGUN_SECONDS = 10.0  # after which a call that was not removed from the queue is known to be running
END_SECONDS = 10.0  # time for a worker to end itself; after three times as long, its call is given up
# Enough for no-op calls at full rate. A longer queue in Ray gains nothing.
CALLS_PER_SLOT = 16
MAX_CALLS = 512


class RayExecutor:
    """Runs calls as Ray tasks. Raises ClusterError if the cluster is unreachable or unusable.

    `address` is "local", "auto", HOST:PORT or ray://HOST:PORT. "local" starts a private cluster with `cpus` CPUs and
    optionally Ray's `dashboard`. It is ended by `close` or, if this process is killed, by a guard. If the program
    already uses Ray, its connection is used and left open. Signal handlers stay unchanged, because Ray's own SIGTERM
    handler is removed.

    With `gpus` "auto", calls may request a GPU if the cluster has one, has had one since this start, or has an
    autoscaler that may still provide one. With "wait" they always may, with "none" never.

    A machine that Ray is draining, for example after a spot termination notice, is no longer counted: Ray starts no
    calls there, but running ones may end. Calls request the memory that they are known to need, limited to the memory
    of the machines, so that no call waits forever. A call whose jobs state their resources requests exactly those.
    """

    inside = False

    def __init__(
        self,
        store: str,
        address: str = "local",
        *,
        cpus: int | None = None,
        gpus: GpusName = "auto",
        dashboard: bool = False,
    ) -> None:
        self.slots = self.window = 1
        self.gpus = 0
        self.gpu_types: Mapping[str, int] = {}
        self.growing = False
        self._gpu_setting = gpus
        self._cpu_count = self._gpu_count = 0
        self._memory = 0.0
        self._machines: Sequence[Machine] = ()
        self._had_gpus = self._cannot_gain_gpus = False  # whether there was a GPU, and whether no GPU can join
        self._is_memory_unknown = (
            False  # whether the autoscaler knows no machine's memory, so that calls may not request any
        )
        self.sharers = SHARERS
        self._has_process_per_call = False  # whether each GPU call has its own process
        self._pending: dict[Any, SentCall] = {}
        self._halted = False
        self._remotes: dict[tuple[str, float, int, bool, int, str], Any] = {}
        self._has_worker_answered = False  # whether a worker has answered
        self._last_look = self._head_seen = time.monotonic()
        self._close = contextlib.ExitStack()
        self._joined = not ray.is_initialized()
        try:
            self._address, self._head, self._guard = self._close.enter_context(connect(address, cpus, dashboard))
            self._is_private = self._guard is not None
            machines = self._nodes()
            if machines is None:
                raise ClusterError(f"the head of the Ray cluster at {self._address} does not answer")
            self._measure(machines)
            self.pages = self._dashboard_pages()
        except BaseException:
            self._close.close()
            raise
        cloudpickle.register_pickle_by_value(worker)
        environment = {}
        for name, value in os.environ.items():
            if name.startswith("ENGRAM_"):
                environment[name] = value
        environment |= ONE_THREAD
        self._environment = environment
        if self._is_private:
            driver_identity = None
        else:
            driver_identity = identity()
        # Ray shows all GPUs to calls that request none (as observed), and torch would use the first.
        self._on_cpu = ray.remote(
            worker.entry(ROOT, environment | {"CUDA_VISIBLE_DEVICES": ""}, store, driver_identity)
        )
        self._on_gpu = worker.entry(ROOT, environment, store, driver_identity)

    def check_nodes(self, store: Store, data: Callable[[], Sequence[Any]]) -> None:
        """Raise ClusterError unless every node of an existing cluster can work for the run.

        On nodes that join later, each worker checks code and versions itself.
        """
        if self._is_private or not self._joined:
            return
        names = {node.id: node.name for node in self._nodes() or () if node.computes}
        nodes.check_nodes(names, store, data(), lambda question: self._ask_nodes(question, list(names)))

    def _ask_nodes(self, question: bytes, ids: Sequence[str]) -> dict[str, str]:
        """Return the answers of these nodes.

        A node that has left the cluster counts as fine; a silent one is omitted.
        """
        remote = ray.remote(worker.asking(ROOT, self._environment))
        nodes_by_reference = {}
        for node in ids:
            scheduling = NodeAffinitySchedulingStrategy(node, soft=False)
            options = {"name": "check node", "num_cpus": 0, "max_retries": 0, "scheduling_strategy": scheduling}
            nodes_by_reference[remote.options(**options).remote(question, node)] = node
        ready, _ = ray.wait(list(nodes_by_reference), num_returns=len(nodes_by_reference), timeout=nodes.ANSWER_SECONDS)
        answers = {}
        for reference in ready:
            answers[nodes_by_reference[reference]] = self._answer(reference)
        living_nodes = {node.id for node in self._nodes() or ()}
        for node, answer in answers.items():
            if isinstance(answer, Exception):
                if node not in living_nodes:
                    answers[node] = nodes.NODE_GONE
                else:
                    answers[node] = f"cannot work: {cluster.reason(answer)[0]}"
        return {node: str(answer) for node, answer in answers.items()}

    def submit(self, call: Call) -> None:
        self._check_gpus(call)
        if self.gpus or call.resources.gpus:
            gpus, cpus = call.gpus, call.cpus
        else:
            gpus, cpus = 0.0, call.cpus_without_gpu
        memory = self._memory_to_ask(call)
        if len(self.gpu_types) > 1 and call.gpu_type in self.gpu_types:
            gpu_type = call.gpu_type
        else:
            gpu_type = ""
        kind = call.task, gpus, cpus, self._has_process_per_call, memory, gpu_type
        remote = self._remotes.get(kind)
        if remote is None:
            remote = self._remotes[kind] = self._remote(call.task, gpus, cpus, memory, gpu_type)
        self._pending[remote.remote(pickle.dumps(call))] = SentCall(call, memory)

    def _check_gpus(self, call: Call) -> None:
        """Raise ClusterError if a call needs more GPUs than any machine has, because it would wait forever."""
        if call.gpus <= 1 or call.resources.gpus or self._may_grow:
            return
        largest_count = max((machine.resources.get("GPU", 0) for machine in self._machines), default=0)
        if call.gpus > largest_count:
            raise ClusterError(
                f"gpus_per_job is {call.gpus:g}; it must be at most {largest_count:g}, the largest number of GPUs of a "
                f"machine of the cluster at {self._address}"
            )

    def _memory_to_ask(self, call: Call) -> int:
        if self._is_memory_unknown:
            return int(call.resources.memory)
        return cluster.memory_to_ask(call, self._machines)

    def _remote(self, name: str, gpus: float, cpus: int, memory: int, gpu_type: str) -> Any:
        """Return the remote function for calls with these GPUs, processors, bytes of memory and GPU type.

        A GPU call that states no processors does not wait for one: it needs little of one, and an idle GPU is more
        wasteful. Its worker takes further calls only if every machine has exactly one GPU. Otherwise Ray may assign
        another GPU later, but CUDA keeps using a process's first GPU.
        """
        # "DEFAULT" even if this process is an actor with a placement group, such as a search trial.
        options: dict[str, Any] = {"name": name, "max_retries": 0, "scheduling_strategy": "DEFAULT"}
        if memory:
            options["memory"] = memory
        if not gpus:
            return self._on_cpu.options(num_cpus=cpus, num_gpus=0, **options)
        if gpu_type:
            options["label_selector"] = cluster.gpu_selector(gpu_type, self.gpu_types)
        max_calls = 1 if self._has_process_per_call else 0
        remote = ray.remote(num_cpus=cpus, num_gpus=gpus, max_calls=max_calls)(self._on_gpu)
        return remote.options(**options)

    def take_back(self, unwanted: Callable[[Call], bool]) -> Sequence[Call]:
        unwanted_references = [reference for reference, sent_call in self._pending.items() if unwanted(sent_call.call)]
        calls = []
        with contextlib.suppress(exceptions.RayError):
            for reference in unwanted_references:
                ray.cancel(reference)  # a running call ignores it (see worker.entry)
            if unwanted_references:
                ready, _ = ray.wait(unwanted_references, num_returns=len(unwanted_references), timeout=CANCEL_SECONDS)
            else:
                ready = []
                _ = []
            for reference in ready:
                if isinstance(self._answer(reference), exceptions.TaskCancelledError):
                    calls.append(self._pending.pop(reference).call)
        for reference in unwanted_references:
            if reference in self._pending:
                self._pending[reference].is_taken_back = True
        return calls

    def obstacle(self, resources: Resources) -> str | None:
        if self._may_grow or (self._gpu_setting == "wait" and not self._is_private):
            return None
        return cluster.obstacle(resources, self._machines, self._gpu_setting != "none")

    def lacks(self) -> str | None:
        calls = [sent_call.call for sent_call in self._pending.values()]
        for resources in {call.resources for call in calls}:
            if resources != NO_RESOURCES and cluster.obstacle(resources, self._machines, has_gpus=True):
                return f"machine with {format_resources(replace(resources, time=NO_TIME))}"
        if not self._gpu_count and any(call.shares_gpu for call in calls):
            return "GPU"
        if self._cpu_count or all(call.gpus for call in calls):
            return None
        return "processor"

    def wait(self, seconds: float) -> Sequence[Finished]:
        self._look()
        ready = self._ready(0) or (self._ready(seconds, at_least=1) and self._ready(0))
        try:
            answers: Sequence[Any] = ray.get(ready)
        except Exception:  # one of the calls raised it, so get them one by one
            answers = [self._answer(reference) for reference in ready]
        finished = []
        for reference, answer in zip(ready, answers, strict=True):
            finished.append(self._call_outcome(self._pending.pop(reference), answer))
        return [call for call in (*finished, *self._abandoned_calls()) if call is not None]

    @property
    def pending(self) -> int:
        return len(self._pending)

    def running(self) -> Sequence[tuple[Call, float]]:
        now = time.monotonic()
        return calls_with_slots(self._pending.values(), self._cpu_count, self._gpu_count, now, self._memory)

    def end(self, call: Call, reason: str) -> None:
        """See `Executor.end`. On a shared cluster, first test whether the call has begun.

        A call may have begun only just now, so it is ended when the caller next finds it overdue.
        """
        reference = next((submitted for submitted, sent_call in self._pending.items() if sent_call.call is call), None)
        if reference is None:
            return
        sent_call = self._pending[reference]
        now = time.monotonic()
        with contextlib.suppress(exceptions.RayError):
            if sent_call.end_request_time is not None:
                if self._guard is not None and now - sent_call.end_request_time > END_SECONDS:
                    self._guard.kill_stopped_processes()  # a stopped process does not react to requests
            elif self._is_private or sent_call.has_begun:
                sent_call.end_request_time = now
                sent_call.end_reason = reason
                ray.cancel(reference, force=True)
            elif sent_call.test_time is None:
                sent_call.test_time = now
                ray.cancel(reference)  # removes it from the queue; a running call ignores it (see worker.entry)
            elif now - sent_call.test_time > BEGUN_SECONDS:
                sent_call.has_begun = True
                sent_call.slot_time = sent_call.test_time

    def halt(self) -> None:
        self._halted = True
        with contextlib.suppress(exceptions.RayError):
            for reference in self._pending:
                ray.cancel(reference)
            for reference in self._ready(CANCEL_SECONDS):
                if isinstance(self._answer(reference), exceptions.TaskCancelledError):
                    del self._pending[reference]

    def cancel(self) -> None:
        references = list(self._pending)
        self._pending.clear()
        with contextlib.suppress(exceptions.RayError):
            for reference in references:
                ray.cancel(reference, force=True)

    def close(self) -> None:
        self._pending.clear()
        self._close.close()

    def _ready(self, seconds: float, at_least: int | None = None) -> list[Any]:
        """Return the submitted calls that have ended.

        Waits up to `seconds` for all of them, or for `at_least` of them.
        """
        if not self._pending:
            return []
        references = list(self._pending)
        ready, _ = ray.wait(references, num_returns=at_least or len(references), timeout=seconds)
        return list(ready)

    def _answer(self, reference: Any) -> bytes | str | Exception:
        try:
            answer: bytes | str = ray.get(reference)
        except Exception as error:
            return error
        return answer

    def _abandoned_calls(self) -> Iterator[Finished]:
        """Yield cancelled calls that do not end, for example because their worker's machine is disconnected."""
        now = time.monotonic()
        for reference, sent_call in list(self._pending.items()):
            if sent_call.end_request_time is not None and now - sent_call.end_request_time > 3 * END_SECONDS:
                del self._pending[reference]
                yield _lost_call(sent_call.call, sent_call.end_reason, died=True)

    def _call_outcome(self, sent_call: SentCall, answer: bytes | str | Exception) -> Finished | None:
        """Return the outcome of a call. Returns None if it had not begun and is given up or sent again."""
        call = sent_call.call
        if isinstance(answer, bytes):
            self._has_worker_answered = True
            finished: Finished = pickle.loads(answer)
            if sent_call.end_request_time is not None:  # Ray kills the programs of a worker before the worker itself
                return _with_cause(finished, sent_call.end_reason)
            return finished
        if isinstance(answer, exceptions.LocalRayletDiedError):
            raise ClusterError(f"Ray's daemon on this machine died ({self._address}); repeat the command to continue")
        if isinstance(answer, str) and not self._has_worker_answered:
            raise ClusterError(f"a worker cannot compute ({answer}); every node needs the same installation")
        if isinstance(answer, str):
            return _lost_call(call, f"the installation there differs: {answer}", died=False)
        if sent_call.end_request_time is not None:
            return _lost_call(call, sent_call.end_reason, died=True)
        if isinstance(answer, exceptions.TaskCancelledError) and self._halted:
            return None
        if isinstance(answer, exceptions.TaskCancelledError) and (
            sent_call.is_taken_back or sent_call.test_time is not None
        ):
            self.submit(call)
            return None
        return _lost_call(call, *cluster.reason(answer))

    def _look(self) -> None:
        """Update the slots when nodes join or leave. Raises ClusterError once the head is unreachable."""
        now = time.monotonic()
        if now - self._last_look < LOOK_SECONDS:
            return
        is_reachable = self._head is None or reachable(*self._head, seconds=1.0)
        machines = None
        if is_reachable:
            machines = self._nodes()
        self._last_look = now = time.monotonic()
        if machines is not None:
            self._head_seen = now
            self._measure(machines)
            self._ask_autoscaler()
            self._send_again_with_less_memory()
        elif (self._is_private and not is_reachable) or now - self._head_seen > HEAD_SECONDS:
            if self._guard is not None:
                self._guard.kill_stopped_processes()  # a stopped head would block `close`
            raise ClusterError(
                f"the head of the Ray cluster at {self._address} is unreachable; repeat the command to continue"
            )

    def _dashboard_pages(self) -> Mapping[str, str]:
        if self._head is None:
            dashboard = None
        else:
            dashboard = private_ray.dashboard_url()
        if not dashboard:
            return {}
        job = ray.get_runtime_context().get_job_id()
        return {"driver": f"http://{dashboard}/#/jobs/{job}", "nodes": f"http://{dashboard}/#/cluster"}

    def _nodes(self) -> list[Machine] | None:
        """Return the machines that calls may use. Returns None if the head does not answer.

        `ray.nodes` is avoided because it takes minutes to return if the head dies during the request.
        """
        if self._head is None:
            names = ("Resources", "Labels", "NodeID", "NodeManagerHostname", "NodeManagerAddress")
            result = []
            for node in ray.nodes():
                if node["Alive"]:
                    result.append(Machine.from_node(*(node[name] for name in names)))
            return result
        try:
            node_records = private_ray.read_nodes(ANSWER_SECONDS)
        except exceptions.RpcError:
            return None
        result = []
        for node in node_records:
            if node.state == node.ALIVE and node.state_snapshot.state != node.state_snapshot.DRAINING:
                result.append(
                    Machine.from_node(
                        node.resources_total,
                        node.labels,
                        node.node_id.hex(),
                        node.node_manager_hostname,
                        node.node_manager_address,
                    )
                )
        return result

    def _measure(self, machines: Sequence[Machine]) -> None:
        cpus = int(sum(machine.resources.get("CPU", 0) for machine in machines))
        gpus = int(sum(machine.resources.get("GPU", 0) for machine in machines))
        if self._is_private and not cpus:
            raise ClusterError("Ray's daemon on this machine died; repeat the command to continue")
        self.slots = max(1, cpus)
        self.window = max(2 * self.slots, min(CALLS_PER_SLOT * self.slots, MAX_CALLS))
        self._machines = machines
        self._cpu_count = cpus
        self._gpu_count = gpus
        self._memory = sum(machine.resources.get("memory", 0.0) for machine in machines)
        self._had_gpus |= gpus > 0
        if self._gpu_setting == "none":
            self.gpus = 0
        else:
            self.gpus = gpus or int(self._expects_gpus())
        if self.gpus:
            self.gpu_types = cluster.gpu_types(machines)
        else:
            self.gpu_types = {}
        self.growing = self.gpus > 0 and not self._is_private and self._may_grow
        self._has_process_per_call = gpus > 1 and any(machine.resources.get("GPU", 0) > 1 for machine in machines)

    def _expects_gpus(self) -> bool:
        """Whether a cluster without a GPU may get one. Calls that request one make an autoscaler start a machine."""
        if self._is_private or self._gpu_setting == "wait" or self._had_gpus:
            return not self._is_private
        return self._may_grow and not self._cannot_gain_gpus

    @property
    def _may_grow(self) -> bool:
        """Whether the machines of this cluster were probably started by an autoscaler."""
        return any(cluster.LABEL in machine.labels for machine in self._machines)

    def _ask_autoscaler(self) -> None:
        """Check whether calls request a GPU or memory that none of the autoscaler's machine types has.

        Requests that their jobs state are not questioned.
        """
        waiting = any(sent_call.call.gpus or sent_call.memory for sent_call in self._pending.values())
        if self._head is None or not self._may_grow or not waiting:
            return
        infeasible = cluster.infeasible_requests()
        self._cannot_gain_gpus |= not self._gpu_count and cluster.lack_gpus(infeasible)
        stated = {sent_call.memory for sent_call in self._pending.values() if sent_call.call.resources.memory}
        measured = [bundle for bundle in infeasible if bundle.get("memory") not in stated]
        self._is_memory_unknown |= any("memory" in bundle for bundle in measured)

    def _send_again_with_less_memory(self) -> None:
        """Remove calls from the queue that request more memory than any machine has now. They are sent again."""
        with contextlib.suppress(exceptions.RayError):
            for reference, sent_call in self._pending.items():
                if sent_call.test_time is None and sent_call.memory > self._memory_to_ask(sent_call.call):
                    sent_call.test_time = time.monotonic()
                    ray.cancel(reference)  # a running call ignores it (see worker.entry)


def _with_cause(finished: Finished, cause: str) -> Finished:
    """Return the outcomes of a call that was asked to end, with this cause for the jobs that were lost."""
    outcomes = []
    for outcome in finished.outcomes:
        outcomes.append(Lost(outcome.key, cause, died=True) if isinstance(outcome, Lost) else outcome)
    return Finished(finished.call, tuple(outcomes), finished.messages, finished.transfers)


def _lost_call(call: Call, cause: str, died: bool, exhausted: MemoryKind | None = None) -> Finished:
    return Finished(call, tuple(Lost(item.key, cause, died, exhausted) for item in call.items))
