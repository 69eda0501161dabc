"""Runs calls in processes of this machine that are forked from one server, without Ray.

Starting takes as long as importing torch once. All rules of a private Ray cluster apply: workers have one thread, a
worker that dies loses only its own call, and no process outlives the driver.
"""

from __future__ import annotations

import os
import pickle
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from orchestrator.errors import ClusterError
from orchestrator.executors import fork_server
from orchestrator.executors.calls import RAN_OUT, Call, Finished, Lost
from orchestrator.executors.environment import ONE_THREAD, count_processors
from orchestrator.executors.forked_workers import ROOT, Death, ForkedWorkers
from tasks.contract.resources import Resources
from tasks.worker.hardware import MemoryKind, available_memory, numbers_of

FACTORY = "orchestrator.executors.worker:entry"
# What every worker imports. Modules of the user are imported by jobs, which check their code.
PRELOAD = ("orchestrator.executors.calls", "orchestrator.store.local")
CALLS_PER_SLOT = 16  # submitted calls per worker; more gain nothing
OOM_COUNTS = (Path("/proc/vmstat"), Path("/sys/fs/cgroup/memory.events"))  # count the processes that were ended


class PoolExecutor:
    """Runs calls on one worker per processor. The workers see no GPU.

    `modules` are imported before the first worker is forked, which saves each worker from doing so. Raises ClusterError
    if workers cannot be started.
    """

    sharers = 1
    inside = False
    growing = False
    gpus = 0
    pages: Mapping[str, str] = {}

    def __init__(self, store: str, modules: Collection[str] = (), slots: int | None = None) -> None:
        self.slots = slots or count_processors()
        self.window = CALLS_PER_SLOT * self.slots
        self.gpu_types: Mapping[str, int] = {}
        self._calls: deque[Call] = deque()
        self._memory = float(available_memory())
        self._oom_kills = count_oom_kills()
        self._has_worked = False  # whether a worker has returned a call
        self._workers = ForkedWorkers[Call](FACTORY, [ROOT, ONE_THREAD, store], [*PRELOAD, *modules], self.slots)

    @property
    def pending(self) -> int:
        return len(self._calls) + len(self._workers.busy)

    def submit(self, call: Call) -> None:
        self._calls.append(call)
        self._dispatch()

    def take_back(self, unwanted: Callable[[Call], bool]) -> Sequence[Call]:
        unwanted_calls = [call for call in self._calls if unwanted(call)]
        self._calls = deque(call for call in self._calls if not unwanted(call))
        return unwanted_calls

    def obstacle(self, resources: Resources) -> str | None:
        if resources.gpus:
            return "the processes of --address pool use no GPU"
        return None

    def lacks(self) -> None:
        return None

    def wait(self, seconds: float) -> Sequence[Finished]:
        deadline = time.monotonic() + seconds
        while self.pending:
            self._dispatch()
            finished = []
            for call, answer in self._workers.receive(max(0.0, deadline - time.monotonic())):
                finished.append(self._outcome(call, answer))
            if finished or time.monotonic() >= deadline:
                self._dispatch()  # so that workers are busy while the caller records the outcomes
                return finished
        return ()

    def running(self) -> Sequence[tuple[Call, float]]:
        now = time.monotonic()
        calls = []
        for worker in self._workers.busy:
            if worker.call is not None and worker.begin_time is not None:
                calls.append((worker.call, now - worker.begin_time))
        return calls

    def end(self, call: Call, reason: str) -> None:
        for worker in self._workers.busy:
            if worker.call is call:
                self._workers.kill(worker, reason)

    def halt(self) -> None:
        self._calls.clear()

    def cancel(self) -> None:
        self._calls.clear()
        for worker in self._workers.busy:
            self._workers.kill(worker)
            self._workers.forget(worker)

    def close(self) -> None:
        self._calls.clear()
        self._workers.close()

    def _dispatch(self) -> None:
        """Send the next calls, as long as there are free workers, processors and enough memory."""
        while self._calls and self._has_room(self._calls[0]):
            if not self._workers.send(self._calls[0], pickle.dumps(self._calls[0])):
                return
            self._calls.popleft()

    def _has_room(self, call: Call) -> bool:
        """Whether the processors and the memory that a call is known to need are free, or nothing else runs."""
        running_calls = [worker.call for worker in self._workers.busy if worker.call is not None]
        memory = call.memory + sum(running.memory for running in running_calls)
        cpus = call.cpus + sum(running.cpus for running in running_calls)
        return not running_calls or (memory <= self._memory and cpus <= self.slots)

    def _outcome(self, call: Call, answer: bytes | str | Death) -> Finished:
        """Return the outcome of a call from a worker's answer. Raises ClusterError if no worker can compute."""
        if isinstance(answer, Death):
            return self._lost_by(call, answer)
        if isinstance(answer, bytes):
            self._has_worked = True
            finished: Finished = pickle.loads(answer)
            return finished
        if not self._has_worked:
            raise ClusterError(f"a worker cannot compute ({answer})")
        return _lost_call(call, answer, died=False)

    def _lost_by(self, call: Call, death: Death) -> Finished:
        """Return the outcome of a call whose worker has ended."""
        if death.status is None:
            return _lost_call(call, "the process that starts the workers died", died=False)
        if death.status == fork_server.NOT_FORKED:
            return _lost_call(call, "the system refused to start its worker process", died=False)
        if death.end_reason:
            return _lost_call(call, death.end_reason, died=True)
        oom_kills = count_oom_kills()
        is_out_of_memory = oom_kills > self._oom_kills and os.WIFSIGNALED(death.status)
        self._oom_kills = oom_kills
        if is_out_of_memory:
            return _lost_call(call, f"{RAN_OUT['host']}, so the system ended its worker process", True, "host")
        return _lost_call(call, "its worker process died", died=True)


def count_oom_kills() -> int:
    """Count the processes that this machine, or the container, has ended because memory ran out."""
    count = 0
    for table in OOM_COUNTS:
        with suppress(OSError):
            count += numbers_of(table).get("oom_kill", 0)
    return count


def _lost_call(call: Call, cause: str, died: bool, exhausted: MemoryKind | None = None) -> Finished:
    return Finished(call, tuple(Lost(item.key, cause, died, exhausted) for item in call.items))
