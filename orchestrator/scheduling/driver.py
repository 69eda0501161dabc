"""The driver, which runs a plan to completion on an executor despite losses, stops and concurrent runs.

It is the only part with a clock, and it connects schedule, executor and store. It passes every event to its observers.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from orchestrator.errors import ClusterError, StoreError
from orchestrator.executors import Executor
from orchestrator.executors.calls import Call, Done, Failed, Finished, Lost, Missing, Outcome, Refused
from orchestrator.executors.metrics import Metrics
from orchestrator.planning.plan import Plan
from orchestrator.quantities import format_duration, format_resources
from orchestrator.run_folder.advances import folder_of, request_stop
from orchestrator.run_folder.other_runs import SAMPLES, CheckpointGc
from orchestrator.scheduling.schedule import Schedule
from orchestrator.scheduling.stop import GRACE, PROGRAM_GRACE, Budget, OutOfTime, Stop
from orchestrator.scheduling.waiting import (
    SYSTEM,
    Claims,
    Clock,
    PriceOfGroup,
    TimeLimits,
    Waiting,
    unknown_price,
)
from orchestrator.store import Store
from tasks.contract.job import marks, may_spread
from tasks.contract.resources import NO_RESOURCES, NO_TIME, Resources
from tasks.worker.compute_context import StrategyName

Event = Mapping[str, Any]
Observer = Callable[[Event], None]
Elsewhere = Callable[[Set[str], Set[str]], Claims]

POLL = 0.5  # seconds between checks for results stored by other runs and for reasons to stop
# Calls checked within POLL. If there are more calls, all are checked less often, so that the cost stays the same.
CALLS_PER_POLL = 200
TELL_RUNNING = 5.0  # seconds between two `running` events, because the count changes with every job


@dataclass
class Progress:
    """A driver's results so far: computed keys, failures by key, and the latest seconds per job by group."""

    computed: set[str]
    failed: dict[str, Failed]
    seconds: dict[str, deque[float]]
    executor_seconds: float = 0.0  # seconds spent starting and ending the executor
    damaged: int = 0
    paused: str | None = None


class Driver:
    """Drives plans on one executor, which is opened only if there are jobs to run.

    `way`, `together` (the maximum number of models in one step) and the `runs` that store the strategy choices are sent
    with each call. `budget` limits the resources used by calls. `timeout` is the maximum time per job in seconds. If it
    is None, it is derived from jobs of the same group or, until one has ended, from `price`, the expected seconds per
    job of a group.

    `observe` receives the events of returned calls in batches. `elsewhere` returns the remaining planned keys that
    other runs are computing, and `cancelled` the reason given in a request to stop. `check_held` raises Held once
    another driver has this run, `states` removes checkpoints that are no longer needed, and `metrics` counts outcomes.
    """

    def __init__(
        self,
        store: Store,
        executor: Callable[[], Executor],
        observe: Callable[[Sequence[Event]], None],
        stop: Stop,
        *,
        gpus_per_job: int = 1,
        processes_per_job: int = 1,
        together: int | None = None,
        way: StrategyName = "auto",
        stand_ins: Mapping[str, str] | None = None,
        runs: tuple[str, ...] = (),
        fail_fast: bool = False,
        deadline: float | None = None,
        budget: Budget | None = None,
        seconds: Mapping[str, float] | None = None,
        timeout: float | None = None,
        price: PriceOfGroup = unknown_price,
        elsewhere: Elsewhere | None = None,
        cancelled: Callable[[], str | None] = lambda: None,
        check_held: Callable[[], None] = lambda: None,
        states: CheckpointGc | None = None,
        metrics: Metrics | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        self.store = store
        self.observe = observe
        self.stop = stop
        stop.ask_programs = self._ask_programs
        self.progress = Progress(set(), {}, defaultdict(lambda: deque(maxlen=SAMPLES)))
        self._open = executor
        self._executor: Executor | None = None
        self._gpus_per_job = gpus_per_job
        self._processes_per_job = processes_per_job
        self._together = together
        self._way: StrategyName = way
        self._stand_ins = stand_ins or {}
        self._runs = runs
        self.fail_fast = fail_fast
        self._deadline = deadline
        self._budget = budget if budget is not None and budget.limited else None
        self._seconds = dict(seconds or {})
        self._limits = TimeLimits(timeout, price)
        self._elsewhere = elsewhere
        self._cancelled = cancelled
        self._check_held = check_held
        self._states = states
        self._metrics = metrics or Metrics("")
        self._clock = clock
        self._waiting = Waiting(lambda line: observe([{"event": "told", "line": line}]))
        self._claims: Claims = {}
        self._delayed: list[tuple[float, int, Call]] = []
        self._reported_running = (0, float("-inf"))  # number of jobs, and when it was reported

    def drive(self, plan: Plan, stored_keys: set[str]) -> None:
        """Run the jobs that are not stored until no more can be done, or until a stop or pause."""
        if not plan.missing(stored_keys) or self.stop.reason:
            return
        executor = self._executor_unless_stopped()
        if executor is None:
            return
        check_resources(plan, plan.missing(stored_keys), executor, self._processes_per_job)
        schedule = Schedule(
            plan,
            stored_keys,
            slots=executor.slots,
            gpus=executor.gpus,
            gpus_per_job=self._gpus_per_job,
            processes_per_job=self._processes_per_job,
            sharers=executor.sharers,
            together=self._together,
            fail_fast=self.fail_fast,
            seconds=self._seconds,
            failed=self.progress.failed,
        )
        try:
            self._run_schedule(schedule, executor)
        except ClusterError:
            if self.stop.reason is None:  # otherwise, the cause of the stop has ended the cluster too
                raise
        self.progress.failed.update(schedule.failed)
        self.progress.paused = schedule.paused

    def _run_schedule(self, schedule: Schedule, executor: Executor) -> None:
        last_look = last_look_here = 0.0
        while not self.stop.reason:
            if self._clock.monotonic() - last_look > POLL:
                self._look_elsewhere(schedule)
                self._metrics.set_queue(schedule.running, schedule.waiting)
                last_look = self._clock.monotonic()
                if last_look - last_look_here > POLL * (executor.pending // CALLS_PER_POLL):
                    self._look_here(schedule, executor)
                    last_look_here = last_look
            self._send(schedule, executor)
            if schedule.is_over or schedule.paused:
                break
            self._receive(schedule, executor)
            if self._deadline is not None and self._clock.monotonic() > self._deadline:
                self.stop.ask("time limit")
            for reason in (self._cancelled(), None if self._budget is None else self._budget.spent):
                if reason is not None:
                    self.stop.ask(reason)
        self._wind_down(schedule, executor)
        self._metrics.set_queue(0, 0)

    @property
    def stopped(self) -> str | None:
        """The reason why the run ends before its plan is done. None if it does not."""
        return self.progress.paused or self.stop.reason

    def close(self) -> None:
        if self._executor is not None:
            began = self._clock.monotonic()
            self._executor.close()
            self._executor = None
            self.progress.executor_seconds += self._clock.monotonic() - began

    def _running_executor(self) -> Executor:
        if self._executor is None:
            began = self._clock.monotonic()
            self._executor = self._open()
            self.progress.executor_seconds += self._clock.monotonic() - began
        return self._executor

    def _executor_unless_stopped(self) -> Executor | None:
        """Return the executor. Returns None if it cannot be opened because the run is stopping."""
        try:
            return self._running_executor()
        except ClusterError:
            if self.stop.reason is None:
                raise
            return None

    def slots(self) -> int:
        """Return the number of concurrent calls, at least one."""
        executor = self._executor_unless_stopped()
        return 1 if executor is None else executor.slots

    def _send(self, schedule: Schedule, executor: Executor) -> None:
        now = self._clock.monotonic()
        while self._delayed and self._delayed[0][0] <= now:
            executor.submit(heapq.heappop(self._delayed)[-1])
        earlier_gpus = bool(schedule.gpus), schedule.gpu_types.keys()
        schedule.slots = executor.slots
        schedule.gpus = executor.gpus
        schedule.gpu_types = executor.gpu_types
        schedule.growing = executor.growing
        if earlier_gpus != (
            bool(schedule.gpus),
            schedule.gpu_types.keys(),
        ):  # the first GPU of a type has joined, or none will
            schedule.take_back(executor.take_back(schedule.misplaced))
        while call := schedule.next(room=executor.pending - schedule.on_gpus < executor.window):
            keep = self._states is not None and self._states.keep
            call = replace(
                call,
                way=self._way,
                members=self._together,
                runs=self._runs,
                keep=keep,
                stand_ins=self._stand_ins,
            )
            if call.delay:
                heapq.heappush(self._delayed, (now + call.delay, call.number, call))
            else:
                executor.submit(call)
        self.stop.running = min(executor.pending, executor.slots + schedule.on_gpus)

    def _receive(self, schedule: Schedule, executor: Executor) -> None:
        if not executor.pending:
            self._clock.sleep(0.05)  # all remaining jobs wait for their back-off or for another run
            return
        try:
            with self.stop.computing_here() if executor.inside else nullcontext():
                finished_calls = self._wait(executor)
        except OutOfTime:
            executor.cancel()
            return
        self._check_held()
        if finished_calls:
            self._waiting.reset("here")
        self._settle(schedule, finished_calls)

    def _wait(self, executor: Executor, seconds: float = POLL) -> Sequence[Finished]:
        """Return the calls that end within this many seconds. The calls that ran are charged to the budget."""
        if self._budget is None:
            return executor.wait(seconds)
        running = [call for call, _ in executor.running()]
        began = self._clock.monotonic()
        finished_calls = executor.wait(seconds)
        if executor.inside:
            charged_calls = [finished.call for finished in finished_calls]
        else:
            charged_calls = running
        self._budget.charge(charged_calls, self._clock.monotonic() - began)
        return finished_calls

    def _settle(self, schedule: Schedule, finished_calls: Sequence[Finished]) -> None:
        """Record the outcomes of calls and report them in one batch."""
        events: list[Event] = []
        try:
            for finished in finished_calls:
                self._record(schedule, finished, events)
        finally:
            if events:
                self.observe(events)

    def _record(self, schedule: Schedule, finished: Finished, events: list[Event]) -> None:
        """Record the outcomes of a call. A lost or refused job whose result is stored counts as done."""
        events.extend({"event": "told", "line": line} for line in finished.messages)
        for transfer in finished.transfers:
            self._metrics.count_transfer(transfer)
        outcomes = tuple(resolved for outcome in finished.outcomes for resolved in self._resolve_orphan(outcome))
        for outcome in outcomes:
            events.extend(self._describe(schedule, outcome))
        failed_before = len(schedule.failed)
        damaged_before = schedule.damaged
        schedule.record(replace(finished, outcomes=outcomes))
        self.progress.damaged += schedule.damaged - damaged_before
        for failed in reversed([*islice(reversed(schedule.failed.values()), len(schedule.failed) - failed_before)]):
            events.append(self._describe_failure(schedule, failed))
        if self._states is not None:
            for outcome in outcomes:
                if isinstance(outcome, Done):
                    self._states.pass_over(schedule.plan, outcome.key, schedule.done)

    def _resolve_orphan(self, outcome: Outcome) -> tuple[Outcome, ...]:
        """Return the outcome, or Done if a lost or refused job has a stored result."""
        if not isinstance(outcome, Lost | Refused) or outcome.key not in self.store:
            return (outcome,)
        done_outcome = Done(outcome.key, 0.0, "orphan")
        # If the store refuses writes, the run pauses.
        if isinstance(outcome, Lost):
            return (done_outcome,)
        return (done_outcome, outcome)

    def _describe(self, schedule: Schedule, outcome: Outcome) -> Iterator[Event]:
        """Yield the events for an outcome and count it."""
        key = outcome.key
        job_fields = self._about(schedule, key)
        if not isinstance(outcome, Failed):  # the schedule decides whether a failure is final
            self._metrics.count_job(job_fields["task"], type(outcome).__name__.lower())
        match outcome:
            case Done():
                self.progress.computed.add(key)
                if outcome.seconds:
                    self.progress.seconds[schedule.group(key)].append(outcome.seconds)
                    self._limits.learn(schedule.group(key), outcome.seconds)
                network_count = marks(schedule.plan.jobs[key].function).trains
                models = {}
                if network_count:
                    models = {"models": network_count}
                if outcome.measured:
                    busy = outcome.measured.busy
                else:
                    busy = None
                self._metrics.count_computed(job_fields["task"], outcome.seconds, network_count, busy)
                yield {"event": "done", **job_fields, **models, "seconds": outcome.seconds, "worker": outcome.worker}
                if outcome.differs:
                    yield {"event": "differs", **job_fields}
            case Missing():
                yield {"event": "missing", **job_fields, "inputs": list(outcome.inputs)}
            case Lost():
                yield {"event": "lost", **job_fields, "cause": outcome.cause}
            case Refused():
                yield {"event": "refused", **job_fields, "cause": outcome.cause}

    def _describe_failure(self, schedule: Schedule, failed: Failed) -> Event:
        """Return the event of a job that failed for good.

        Either its task raised an exception or the schedule gave up.
        """
        if not failed.traceback:  # no worker could store it
            with suppress(StoreError):
                self.store.write_failure(failed.key, failed.error)
        self._metrics.count_job(schedule.plan.task(failed.key), "failed")
        return {"event": "failed", **self._about(schedule, failed.key), "error": failed.error}

    def _about(self, schedule: Schedule, key: str) -> dict[str, str]:
        """Return a job's fields in events: its key and task, plus its kind if the task's jobs form several groups."""
        task = schedule.plan.task(key)
        kind = schedule.group(key)
        return {"key": key, "task": task} | ({} if kind == task else {"kind": kind})

    def _look_elsewhere(self, schedule: Schedule) -> None:
        """Defer jobs that other living runs are computing. Take over results they stored and jobs they abandoned."""
        self._check_held()
        if self._elsewhere is None:
            return
        self._claims = self._elsewhere(schedule.plan.jobs.keys(), schedule.done)
        deferred_keys = self._waiting.deferred_keys(self._claims, lambda keys: self._longest_seconds(schedule, keys))
        schedule.defer(deferred_keys)
        stored_keys = {key for key in schedule.elsewhere if key in self.store}
        schedule.take_over_results(stored_keys)
        schedule.reclaim(schedule.elsewhere - deferred_keys - stored_keys)
        if stored_keys:
            self._waiting.reset("elsewhere")

    def _look_here(self, schedule: Schedule, executor: Executor) -> None:
        """End calls that exceed their time limit. During a wait, report the reason."""
        now = self._clock.monotonic()
        if (lacking := executor.lacks()) is None:
            self._waiting.reset("machine")
        else:
            self._waiting.report_machine(now, lacking)
        running = executor.running()
        self._report_running(now, sum(len(call.items) for call, _ in running))
        for call, seconds in running:
            least = call.resources.time or self._limits.minimum
            if seconds > least and seconds > (limit := self._time_limit(schedule, call)):
                executor.end(call, f"it was ended after {format_duration(limit)}, its time limit")
        if running:
            self._waiting.reset("elsewhere")
            self._waiting.report_running(now, running, lambda call: self._unmeasured_limit(schedule, call))
        elif schedule.elsewhere and not executor.pending and not self._delayed:
            self._waiting.report_elsewhere(now, self._claims, set(schedule.elsewhere))
        else:
            self._waiting.reset("elsewhere")

    def _report_running(self, now: float, jobs: int) -> None:
        """Report the number of running jobs if it has changed, at limited intervals because it changes constantly."""
        reported_count, report_time = self._reported_running
        if jobs != reported_count and now - report_time >= TELL_RUNNING:
            self._reported_running = (jobs, now)
            self.observe([{"event": "running", "count": jobs}])

    def _time_limit(self, schedule: Schedule, call: Call) -> float:
        """Return a call's time limit in seconds: the one that its jobs state, or else that of their groups."""
        if call.resources.time:
            return call.resources.time * len(call.items)
        return self._limits.limit(_jobs(schedule, call))

    def _unmeasured_limit(self, schedule: Schedule, call: Call) -> float | None:
        """Return a call's time limit in seconds if none is stated and no job of its group has ended yet.

        Otherwise, return None.
        """
        if not call.resources.time and self._limits.learned_limit(_jobs(schedule, call)) is None:
            return self._time_limit(schedule, call)
        return None

    def _longest_seconds(self, schedule: Schedule, keys: Set[str]) -> float | None:
        """Return the time limit in seconds of a call with one of these keys per group. None if it is unknown."""
        stated = [resources.time for key, resources in schedule.plan.resources.items() if key in keys]
        learned = self._limits.learned_limit(dict.fromkeys(map(schedule.group, keys), 1))
        return max([*stated, learned or 0.0]) or None

    def _wind_down(self, schedule: Schedule, executor: Executor) -> None:
        """Stop sending calls, give running calls a moment to end, then cancel them.

        PROGRAM_GRACE seconds before that, programs that jobs have started are asked to end.
        """
        self._delayed.clear()
        if not executor.pending:
            return
        executor.halt()
        end = self._clock.monotonic() + GRACE
        while executor.pending and (seconds_left := end - self._clock.monotonic()) > 0:
            if seconds_left <= PROGRAM_GRACE:
                self._ask_programs()
            finished_calls = self._wait(executor, min(seconds_left, POLL))
            self._check_held()
            self._settle(schedule, finished_calls)
        if executor.pending:
            executor.cancel()

    def _ask_programs(self) -> None:
        """Ask running calls to end the programs that their jobs have started."""
        if self._runs:
            request_stop(folder_of(self.store, self._runs[0]))


def check_resources(plan: Plan, keys: Iterable[str], executor: Executor, processes_per_job: int = 1) -> None:
    """Raise ClusterError if one of these jobs can never begin, because no machine has the resources that it needs."""
    needed: dict[Resources, str] = {}
    for key in keys:
        resources = plan.resources.get(key, NO_RESOURCES)
        if processes_per_job > 1 and not executor.gpus and may_spread(plan.jobs[key].function, plan.jobs[key].config):
            resources = replace(resources, cpus=max(resources.cpus, processes_per_job))
        if resources != NO_RESOURCES:
            needed.setdefault(replace(resources, time=NO_TIME), plan.task(key))
    for resources, task in needed.items():
        reason = executor.obstacle(resources)
        if reason is not None:
            needed_resources = format_resources(resources)
            raise ClusterError(
                f"{task} needs {needed_resources} in one machine, but {reason}; reduce them or use another --address"
            )


def _jobs(schedule: Schedule, call: Call) -> dict[str, int]:
    """Return the number of jobs in a call by group. All jobs belong to one group."""
    return {schedule.group(call.items[0].key): len(call.items)}
