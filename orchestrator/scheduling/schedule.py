"""The schedule, which selects the next call to send and updates the plan's state after each outcome.

It is pure bookkeeping, without clock, cluster or disk. All decisions about retries are made here.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Mapping

from orchestrator.executors.calls import Call, Done, Failed, Finished, Item, Lost, Missing, Refused
from orchestrator.executors.gpu_packing import FIRST_GROWING, SHARERS, GpuPacking, GpuPackings, gpu_fraction
from orchestrator.planning.identity import source_of
from orchestrator.planning.plan import Plan
from tasks.contract.job import marks, may_spread
from tasks.contract.resources import NO_RESOURCES

TOGETHER_SECONDS = 0.5  # seconds of work per call, which keeps the overhead of sending it small
MAX_JOBS_PER_CALL = 64
MAX_DEATHS = 3  # worker processes that may die on a job before it counts as failed
MAX_REOPENED = 3  # times that a result may be lost before its job counts as failed
MAX_LOSSES = 10  # times that a job may be lost, without any success in between, before the run pauses
LONGEST_DELAY = 60.0


class Schedule:
    """The jobs of a plan by state: done, running, waiting or failed.

    `slots` calls run concurrently, one per processor. With `gpus`, so do calls of GPU tasks, up to `sharers` at a time
    on each GPU. If there are several GPU types, `gpu_types` counts each one, and each is filled according to its own
    measurements. If the cluster is `growing`, an autoscaler may add more. `seconds` has the expected seconds per job by
    group, if known. `together` fixes the number of jobs per call. None derives it from measured seconds and, on GPUs,
    from measured memory and load.

    `processes_per_job` processes compute a job without a GPU together, if its task supports this.

    A job that states its GPUs is sent like a job without a GPU. The executor begins it once all its resources are free.
    """

    def __init__(
        self,
        plan: Plan,
        stored_keys: Collection[str],
        *,
        slots: int = 1,
        gpus: int = 0,
        gpus_per_job: int = 1,
        processes_per_job: int = 1,
        sharers: int = SHARERS,
        together: int | None = None,
        fail_fast: bool = False,
        seconds: Mapping[str, float] | None = None,
        failed: Mapping[str, Failed] | None = None,
    ) -> None:
        self.plan = plan
        self.slots = slots
        self.gpus = gpus
        self.gpus_per_job = gpus_per_job
        self.processes_per_job = processes_per_job
        self.gpu_types: Mapping[str, int] = {}  # number of GPUs of each type if there are several types
        self.growing = False
        self.on_gpus = 0  # GPU calls in flight
        self._on_type: Counter[str] = Counter()  # GPU calls in flight by GPU type
        self._jobs_on_gpus = 0  # jobs in the GPU calls in flight
        self._sent: Counter[str] = Counter()  # GPU calls in flight by group
        self.together = together
        self.fail_fast = fail_fast
        self.done: set[str] = {key for key in plan.jobs if key in stored_keys}
        self.failed = dict(failed or {})  # final: jobs that failed earlier in this run are not sent again
        self.paused: str | None = None  # reason why nothing more is sent
        self._seconds = dict(seconds or {})
        self._packings = GpuPackings(sharers if gpus_per_job == 1 else 1)
        self._memory: dict[str, int] = {}  # by group: peak host memory of a call in bytes
        self._starved: set[str] = set()  # keys whose worker was ended because its host ran out of memory
        self._running: set[str] = set()
        self.elsewhere: set[str] = set()  # keys left to other runs
        # Exactly the keys that can be sent now. They are in `_retries` or `_ready`, mixed with outdated entries.
        self._sendable: set[str] = set()
        self._retries: deque[tuple[list[str], float]] = deque()
        self._deaths = Counter[str]()
        self._losses = Counter[str]()
        self._reopened = Counter[str]()
        self._damaged = 0
        self._renewed: dict[str, int] = {}  # last call sent before a reopened key was done again
        self._number = 0
        self._readers: dict[str, list[str]] = defaultdict(list)  # linked keys that wait for each key
        self._depth: dict[str, int] = {}
        self._unmet: dict[str, int] = {}  # number of keys that each linked key waits for
        self._ready: dict[str, deque[str]] = {}  # by group
        # Groups, deepest first, so that tables fill early. Groups that need a GPU have their own queue.
        self._queue: list[tuple[int, int, str]] = []
        self._queue_for_gpus: list[tuple[int, int, str]] = []
        self._pushed = 0
        for key in plan.jobs:
            # A link waits for the previous link as a reader waits for its inputs, and it is deeper: a chain is finished
            # before the next one begins, so that few checkpoints are stored at a time.
            waits = plan.dependencies(key)
            self._depth[key] = 1 + max((self._depth[below] for below in waits), default=0)
            if key not in self.done:
                self._link(key, waits)
                self._enqueue(key)

    @property
    def running(self) -> int:
        """Number of jobs in flight."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Number of jobs that are not sent, done or failed, including dependents of failed jobs."""
        failed = self.failed.keys() & self.plan.jobs.keys()
        return len(self.plan.jobs) - len(self.done) - len(failed) - self.running

    @property
    def damaged(self) -> int:
        """Number of results found missing or damaged when read. Several readers of the same loss count once."""
        return self._damaged

    @property
    def is_over(self) -> bool:
        """Whether no call is running, no job can be sent, and none is expected from other runs."""
        stopped = self.paused is not None or (self.fail_fast and bool(self.failed))
        return not self._running and (stopped or not (self._sendable or self.elsewhere))

    def next(self, room: bool = True) -> Call | None:
        """Return the next call to send, or None if nothing can be sent. Without `room`, only GPU calls are considered.

        GPU calls are sent first while a GPU has room for them.
        """
        if self.paused is not None or (self.fail_fast and self.failed):
            return None
        while self._retries and room:
            keys, delay = self._retries.popleft()
            if keys := [key for key in keys if key in self._sendable]:
                return self._call(keys, delay)
        while queue := self._next_queue(room):
            group = queue[0][-1]
            if keys := self._take(group):
                return self._call(keys)
            self._drop(queue)
        return None

    def record(self, finished: Finished) -> None:
        """Record the outcomes of a call's jobs."""
        lost_outcomes: list[Lost] = []
        self._learn_packing(finished)
        for outcome in finished.outcomes:
            self._running.discard(outcome.key)
            match outcome:
                case Done():
                    self._learn(outcome)
                    self._finish(outcome.key)
                case Failed():
                    self.failed[outcome.key] = outcome
                case Missing():
                    self._reopen(outcome, finished.call.number)
                case Lost():
                    lost_outcomes.append(outcome)
                    if outcome.exhausted == "host":
                        self._starved.add(outcome.key)
                case Refused():
                    self.paused = outcome.cause
        if len(lost_outcomes) == 1:
            self._retry(lost_outcomes[0])
        elif lost_outcomes:  # halves, then single jobs, which isolates the faulty job and saves the others
            half = len(lost_outcomes) // 2
            for part in (lost_outcomes[:half], lost_outcomes[half:]):
                self._send_again([outcome.key for outcome in part])

    def misplaced(self, call: Call) -> bool:
        """Whether a call's need for a GPU has changed since it was sent, or its GPU type no longer exists."""
        is_type_gone = call.shares_gpu and call.gpu_type not in self._types()
        return is_type_gone or call.shares_gpu != bool(self.gpus and self._shares_gpu(call.items[0].key))

    def take_back(self, calls: Iterable[Call]) -> None:
        """Requeue the jobs of calls that were sent but have not begun."""
        for call in calls:
            self._leave_gpu(call)
            keys = [item.key for item in call.items]
            self._running.difference_update(keys)
            for key in keys:
                self._enqueue(key)

    def defer(self, keys: Iterable[str]) -> None:
        """Leave these keys to another living run, which is computing them."""
        deferred_keys = {key for key in keys if self._is_open(key)}
        self.elsewhere |= deferred_keys
        self._sendable -= deferred_keys

    def take_over_results(self, keys: Iterable[str]) -> None:
        """Record keys that another run has stored."""
        for key in keys:
            self.elsewhere.discard(key)
            if key not in self._running:
                self._finish(key)

    def reclaim(self, keys: Iterable[str]) -> None:
        """Compute these keys here after all, because the run that had them has ended."""
        for key in keys:
            if key in self.elsewhere:
                self.elsewhere.discard(key)
                self._enqueue(key)

    def _is_open(self, key: str) -> bool:
        """Whether this run still has to send the key."""
        return not any(key in keys for keys in (self.done, self._running, self.elsewhere, self.failed))

    def _next_queue(self, room: bool) -> list[tuple[int, int, str]]:
        """Return the queue to send from next. Returns an empty queue if nothing can be sent."""
        if not self.gpus:
            queues = [queue for queue in (self._queue, self._queue_for_gpus) if queue and room]
            return min(queues, default=[])
        while (queue := self._queue_for_gpus) and not self._ready[queue[0][-1]]:
            self._drop(queue)
        if queue and self._load(queue[0][-1], self._type(queue[0][-1])) < 1:
            return queue
        return self._queue if room else []

    def _drop(self, queue: list[tuple[int, int, str]]) -> None:
        """Remove the first group, which is empty, from a queue."""
        del self._ready[heapq.heappop(queue)[-1]]

    def _take(self, group: str) -> list[str]:
        """Take the next jobs of a group to send together, skipping outdated entries."""
        ready = self._ready[group]
        share = self._share(group, ready)
        keys: list[str] = []
        while ready and len(keys) < share:
            key = ready.popleft()
            if key in self._sendable:
                self._sendable.discard(key)
                keys.append(key)
        return keys

    def _call(self, keys: list[str], delay: float = 0.0) -> Call:
        self._running.update(keys)
        self._sendable.difference_update(keys)
        self._number += 1
        task = self.plan.task(keys[0])
        items = tuple(map(self._item, keys))
        group = self.group(keys[0])
        resources = self.plan.resources.get(keys[0], NO_RESOURCES)
        memory = float(resources.memory) or self._memory.get(group, 0.0)
        if not self._starved.isdisjoint(keys):
            memory = math.inf
        if not (self.gpus and self._shares_gpu(keys[0])):
            return Call(
                self._number,
                task,
                items,
                float(resources.gpus),
                delay,
                memory=memory,
                group=group,
                resources=resources,
                processes=self._processes(keys[0]),
            )
        gpu_type = self._type(group)
        self.on_gpus += 1
        self._on_type[gpu_type] += 1
        self._jobs_on_gpus += len(items)
        self._sent[group] += 1
        sharers = self._packings.packing(group, gpu_type).sharers
        part = gpu_fraction(sharers) * self.gpus_per_job
        return Call(
            self._number,
            task,
            items,
            part,
            delay,
            sharers,
            gpu_type=gpu_type,
            memory=memory,
            group=group,
            resources=resources,
            processes=self._processes(keys[0]),
        )

    def _processes(self, key: str) -> int:
        """Return how many processes compute a job together: one per GPU or, without GPUs, `processes_per_job`."""
        job = self.plan.jobs[key]
        if not may_spread(job.function, job.config):
            return 1
        stated_gpus = self.plan.resources.get(key, NO_RESOURCES).gpus
        if stated_gpus:
            return stated_gpus
        return self.gpus_per_job if self.gpus and self._shares_gpu(key) else self.processes_per_job

    def _types(self) -> Mapping[str, int]:
        """Return how many jobs the GPUs of each distinguished type can take. The empty string stands for any type."""
        if len(self.gpu_types) > 1:
            types = self.gpu_types
        else:
            types = {"": self.gpus}
        return {name: self._jobs_on(gpus) for name, gpus in types.items()}

    def _jobs_on(self, gpus: int) -> int:
        """Return how many jobs can run at once on these GPUs. If there are too few, one job waits for more."""
        return max(min(gpus, 1), gpus // self.gpus_per_job)

    def _type(self, group: str) -> str:
        """Return the GPU type whose machines have the most room for calls of a group."""
        types = self._types()
        return next(iter(types)) if len(types) == 1 else min(types, key=lambda name: self._load(group, name))

    def _load(self, group: str, gpu_type: str) -> float:
        """Return the number of calls in flight on GPUs of a type, relative to the target number."""
        packing = self._packings.packing(group, gpu_type)
        gpus = self._types()[gpu_type]
        if gpu_type:
            sent_calls = self._on_type[gpu_type]
        else:
            sent_calls = self.on_gpus
        if self.growing:  # queue nothing beyond running calls, because Ray would request a machine for it
            return sent_calls / packing.slots(self._useful_gpus(group, packing, gpus))
        return sent_calls / packing.calls_in_flight(gpus)

    def _useful_gpus(self, group: str, packing: GpuPacking, existing_gpus: int) -> int:
        """Return the number of GPUs among which to divide a group's jobs.

        On a growing cluster, how many are worthwhile.
        """
        if not self.growing:
            return existing_gpus
        jobs = len(self._ready.get(group, ())) + self._jobs_on_gpus
        return packing.useful_gpus(jobs, self._seconds.get(group, 0.0), existing_gpus)

    def _leave_gpu(self, call: Call) -> None:
        """Update the counts for a call that has returned or was taken back."""
        if call.shares_gpu:
            self.on_gpus -= 1
            self._on_type[call.gpu_type] -= 1
            self._jobs_on_gpus -= len(call.items)
            self._sent[self.group(call.items[0].key)] -= 1

    def _shares_gpu(self, key: str) -> bool:
        """Whether a job may share a GPU with others. A job that states its GPUs has them alone."""
        uses_gpu = marks(self.plan.jobs[key].function).gpus > 0
        return uses_gpu and not self.plan.resources.get(key, NO_RESOURCES).gpus

    def _item(self, key: str) -> Item:
        job = self.plan.jobs[key]
        function_name = f"{job.function.__module__}:{job.function.__qualname__}"
        leaves = any(link not in self.done for link in self.plan.following.get(key, ()))
        chain = tuple(self.plan.chain(key))
        source = source_of(job.function.__module__)
        return Item(key, function_name, job.config, self.plan.inputs[key], chain, leaves, source)

    def _share(self, group: str, keys: Collection[str]) -> int:
        """Return how many of a group's ready jobs to send in one call."""
        ready = len(keys)
        if self.together is not None or not keys:
            return min(self.together or 0, ready)
        key = next(iter(keys))
        if self.gpus and self._shares_gpu(key):
            packing = self._packings.packing(group, self._type(group))
            if self.growing and packing.stack is None:
                return min(ready, FIRST_GROWING)
            return packing.share(ready, self._useful_gpus(group, packing, self._jobs_on(self.gpus)), self._sent[group])
        seconds = self._seconds.get(group)
        if seconds is None:
            return 1
        fitting = int(TOGETHER_SECONDS / max(seconds, 1e-9))
        # Two calls per slot remain at the end, so that no slot waits for a large last call.
        return max(1, min(fitting, MAX_JOBS_PER_CALL, ready // (2 * self._concurrent_calls(key))))

    def _concurrent_calls(self, key: str) -> int:
        """Return how many calls of jobs like this one can run at once on the processors and GPUs."""
        resources = self.plan.resources.get(key, NO_RESOURCES)
        cpus = resources.cpus
        if not resources.gpus:
            cpus = max(cpus, self._processes(key))
        calls = self.slots // max(1, cpus)
        if resources.gpus:
            calls = min(calls, self.gpus // resources.gpus)
        return max(1, calls)

    def _learn(self, outcome: Done) -> None:
        self._losses.clear()
        group = self.group(outcome.key)
        known_seconds = self._seconds.get(group)
        if known_seconds is None:
            self._seconds[group] = outcome.seconds
        else:
            self._seconds[group] = 0.8 * known_seconds + 0.2 * outcome.seconds
        self._memory[group] = max(outcome.memory, self._memory.get(group, 0))

    def _learn_packing(self, finished: Finished) -> None:
        """Update the number of calls per GPU and of jobs per call from a call's measurements."""
        call = finished.call
        if call.shares_gpu:
            self._leave_gpu(call)
            measurements = []
            for outcome in finished.outcomes:
                if isinstance(outcome, Done) and outcome.measured:
                    measurements.append(outcome.measured)
            lost_outcomes = []
            for outcome in finished.outcomes:
                if isinstance(outcome, Lost):
                    lost_outcomes.append(outcome)
            too_big = any(outcome.died or outcome.exhausted == "device" for outcome in lost_outcomes)
            self._packings.learn(self.group(call.items[0].key), call.gpu_type, call.sharers, measurements, too_big)

    def group(self, key: str) -> str:
        """Return the group of the key's job."""
        return self.plan.groups[key]

    def _enqueue(self, key: str) -> None:
        """Queue a key if it has to be sent and all its dependencies are done."""
        if self._unmet[key] or key in self._sendable or not self._is_open(key):
            return
        self._sendable.add(key)
        group = self.group(key)
        if group not in self._ready:
            self._ready[group] = deque()
            self._pushed += 1
            if self._shares_gpu(key):
                queue = self._queue_for_gpus
            else:
                queue = self._queue
            heapq.heappush(queue, (-self._depth[key], self._pushed, group))
        self._ready[group].append(key)

    def _send_again(self, keys: Iterable[str], delay: float = 0.0) -> None:
        """Requeue these keys as one call. Keys that now wait for others follow later."""
        if sendable_keys := [key for key in keys if not self._unmet[key]]:
            self._sendable.update(sendable_keys)
            self._retries.append((sendable_keys, delay))

    def _link(self, key: str, waits: Collection[str]) -> None:
        """Count the unmet dependencies of a key and register the key as their reader."""
        for below in waits:
            self._readers[below].append(key)
        self._unmet[key] = sum(below not in self.done for below in waits)

    def _finish(self, key: str) -> None:
        if key in self.done:
            return
        self.done.add(key)
        self._sendable.discard(key)
        if key in self._reopened:
            self._renewed[key] = self._number
        for reader in self._readers[key]:
            self._unmet[reader] -= 1
            self._enqueue(reader)

    def _reopen(self, outcome: Missing, call: int) -> None:
        """Recompute absent or damaged inputs. The reader waits for them.

        Two reports may refer to the same damage: an input that is not done is already being computed, and a report from
        a call sent before the input was done again is outdated.
        """
        for below in outcome.inputs:
            if below not in self.done or call <= self._renewed.get(below, 0):
                continue
            self.done.discard(below)
            self._reopened[below] += 1
            self._damaged += 1
            for reader in self._readers[below]:
                self._unmet[reader] += 1
                self._sendable.discard(reader)
            if (times := self._reopened[below]) >= MAX_REOPENED:
                error = f"its result was missing or damaged {times} times when read; check the disk"
                self.failed[below] = Failed(below, error, "")
            if below not in self._unmet:  # it was done from the beginning
                self._link(below, self.plan.dependencies(below))
            self._enqueue(below)
        self._enqueue(outcome.key)

    def _retry(self, lost: Lost) -> None:
        key = lost.key
        self._deaths[key] += lost.died
        self._losses[key] += 1
        if self._deaths[key] >= MAX_DEATHS:
            self.failed[key] = Failed(key, f"its worker died {MAX_DEATHS} times; the last time: {lost.cause}", "")
        elif self._losses[key] >= MAX_LOSSES:
            self.paused = f"no job can be run: {lost.cause}"
        else:
            self._send_again([key], min(LONGEST_DELAY, 0.25 * 2 ** self._losses[key]))
