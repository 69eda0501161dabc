"""Random histories of a schedule, compared after every step with a model of the allowed behaviour.

    python -m tests.support.histories --count 1000000 --seed 0 --processes 16

A history consists of a small plan and events: calls are sent and return in any order, jobs fail, workers die, nodes
disappear, results are damaged while readers are in progress, and other runs take jobs and return them. The model keeps
the true state with separate rules, without counters and queues. After some moment no fault occurs, and then the
schedule must finish.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from orchestrator.executors.calls import Call, Done, Failed, Finished, Lost, Missing, Outcome, Refused
from orchestrator.executors.gpu_packing import GpuMeasurement
from orchestrator.planning.plan import Plan
from orchestrator.scheduling.schedule import MAX_DEATHS, MAX_LOSSES, MAX_REOPENED, Schedule
from tasks.contract.job import Function, Inputs, Job, marks, task
from tests.support.seeds import try_seeds

SHAPES = 500  # different plans
STEPS = 40  # at most, before nothing goes wrong any more
FATES = ("done", "measured", "failed", "died", "gone", "memory", "missing", "refused")
WEIGHTS = (40, 10, 2, 4, 4, 2, 20, 0.2)


@dataclass(frozen=True)
class Number:
    value: int = 0


@task(version=1, name="histories.plain", batch_key=lambda config: config.value % 3)
def plain(config: Number, inputs: Inputs) -> pa.Table:
    return pa.table({})


@task(version=1, name="histories.gather", gathers=True)
def gather(config: Number, inputs: Inputs) -> pa.Table:
    return pa.table({})


@task(version=1, name="histories.train", gpus=1.0, batch_key=lambda config: config.value % 2)
def train(config: Number, inputs: Inputs) -> pa.Table:
    return pa.table({})


TASKS: tuple[Function, ...] = (plain, gather, train)


@dataclass(frozen=True)
class ScheduleSettings:
    """The settings of a schedule."""

    stored_share: float = 0.0  # share of the jobs whose results exist
    slots: int = 1
    gpus: int = 0
    sharers: int = 4
    together: int | None = None
    fail_fast: bool = False
    tolerate: int = 0
    seconds: bool = False


@lru_cache(SHAPES)
def shape(number: int) -> Plan:
    """One of many small plans: shared inputs, chains, gathering jobs, jobs for GPUs."""
    rng = random.Random(number)
    jobs: list[Job] = []
    for value in range(rng.randint(1, 9)):
        function = rng.choice(TASKS)
        below = tuple(rng.choices(jobs, k=min(len(jobs), rng.choice((0, 0, 1, 1, 2, 4)))))
        if jobs and rng.random() < 0.3:  # many readers of one input
            below = (jobs[0],)
        after = None
        if rng.random() < 0.3:
            after = rng.choice([*jobs, Job(plain, Number(100 + value))])  # which is planned, or is not
        jobs.append(Job(function, Number(value), below, after=after))
    read_inputs = {id(below) for job in jobs for below in job.inputs}
    tops = tuple(job for job in jobs if id(job) not in read_inputs)
    return Plan.from_roots({"summary": tops} if rng.random() < 0.5 else {str(i): job for i, job in enumerate(tops)})


class Model:
    """A schedule, and the true state of its jobs."""

    def __init__(
        self, plan: Plan, settings: ScheduleSettings, stored_keys: Iterable[str], failed: Iterable[Failed] = ()
    ) -> None:
        self.plan = plan
        self.settings = settings
        self.done = dict.fromkeys(stored_keys, 0)  # by key, the calls that were sent when it was last done
        self.bad: set[str] = set()  # results that are damaged or missing, detected or not
        self.flying: dict[int, Call] = {}
        self.sound: dict[tuple[int, str], set[str]] = {}  # of a running job, the inputs that it may have read sound
        self.harmed: dict[tuple[int, str], set[str]] = {}  # and the inputs that it may have found damaged
        self.elsewhere: set[str] = set()
        self.failed = {failure.key: "" for failure in failed}  # by key, a word that the failure must contain
        self.paused = False
        self.harms: Counter[str] = Counter()
        self.found: Counter[str] = Counter()
        self.deaths: Counter[str] = Counter()
        self.losses: Counter[str] = Counter()
        self.computed: Counter[str] = Counter()
        self.calls = 0
        self.schedule = Schedule(
            plan,
            set(self.done),
            slots=settings.slots,
            gpus=settings.gpus,
            sharers=settings.sharers,
            together=settings.together,
            fail_fast=settings.fail_fast,
            seconds=dict.fromkeys(plan.groups.values(), 1e-4) if settings.seconds else None,
            failed={failure.key: failure for failure in failed},
        )
        self.check()

    # The true state

    @property
    def running(self) -> set[str]:
        return {item.key for call in self.flying.values() for item in call.items}

    @property
    def stopped(self) -> bool:
        return self.paused or (self.settings.fail_fast and bool(self.failed))

    def sendable(self) -> set[str]:
        unavailable = self.done.keys() | self.running | self.elsewhere | self.failed.keys()
        return {key for key in self.plan.jobs.keys() - unavailable if self.ready(key)}

    def ready(self, key: str) -> bool:
        before = self.plan.after.get(key, "")
        return all(k in self.done for k in self.plan.inputs[key]) and (
            before in self.done or before not in self.plan.jobs
        )

    def check(self) -> None:
        schedule = self.schedule
        sendable = self.sendable()
        assert set(self.done) == schedule.done
        assert len(self.running) == schedule.running
        assert self.elsewhere == schedule.elsewhere
        assert self.failed.keys() == schedule.failed.keys()
        assert all(word in schedule.failed[key].error for key, word in self.failed.items())
        assert self.paused == (schedule.paused is not None)
        assert sum(self.found.values()) == schedule.damaged
        assert all(count <= self.harms[key] for key, count in self.found.items())
        assert all(count <= 1 + self.harms[key] for key, count in self.computed.items())
        assert schedule.on_gpus == sum(call.gpus > 0 for call in self.flying.values())
        assert (not self.flying and (self.stopped or not (sendable or self.elsewhere))) == schedule.is_over

    # What happens

    def send(self, room: bool = True) -> bool:
        """Take the next call, if there is one."""
        may = set() if self.stopped else self.sendable()
        call = self.schedule.next(room)
        if call is None:
            if room:  # the remaining jobs wait for a slot on a GPU
                assert not may or (self.schedule.on_gpus and all(map(self._asks, may)))
            self.check()
            return False
        keys = [item.key for item in call.items]
        assert 0 < len(keys) == len(set(keys))
        assert may.issuperset(keys)
        assert len(keys) <= (self.settings.together or 512)
        assert len({self.plan.groups[key] for key in keys}) == 1
        assert room or call.gpus
        assert bool(call.gpus) == bool(self.schedule.gpus and self._asks(keys[0]))
        assert call.number == self.calls + 1
        self.calls = call.number
        self.flying[call.number] = call
        for item in call.items:
            assert self.plan.inputs[item.key] == item.inputs
            self.sound[call.number, item.key] = set(item.inputs) - self.bad
            self.harmed[call.number, item.key] = set(item.inputs) & self.bad
        self.check()
        return True

    def answer(self, which: int, fates: Sequence[str]) -> None:
        """A call returns with these fates of its jobs, if they are possible."""
        if not self.flying:
            return
        number = list(self.flying)[which % len(self.flying)]
        call = self.flying.pop(number)
        outcomes = tuple(
            self._outcome(number, item.key, item.inputs, fates[i % len(fates)]) for i, item in enumerate(call.items)
        )
        for outcome in outcomes:
            self._note(outcome, number)
        losses = [outcome for outcome in outcomes if isinstance(outcome, Lost)]
        if len(losses) == 1:
            self._note_loss(losses[0])
        self.schedule.record(Finished(call, outcomes))
        self.check()

    def harm(self, which: int) -> None:
        """Damage a stored result, which is detected when a job reads it."""
        if sound_keys := [key for key in self.done if key not in self.bad]:
            key = sound_keys[which % len(sound_keys)]
            self.bad.add(key)
            self.harms[key] += 1
            for call in self.flying.values():
                for item in call.items:
                    if key in item.inputs:
                        self.harmed[call.number, item.key].add(key)

    def defer(self, which: Sequence[int]) -> None:
        keys = self._some(list(self.plan.jobs), which)
        unavailable = self.done.keys() | self.running | self.failed.keys()
        self.elsewhere |= set(keys) - unavailable
        self.schedule.defer(keys)
        self.check()

    def arrive(self, which: Sequence[int]) -> None:
        keys = self._some(sorted(self.elsewhere), which)
        for key in keys:
            self.elsewhere.discard(key)
            self._make(key)
        self.schedule.take_over_results(keys)
        self.check()

    def reclaim(self, which: Sequence[int]) -> None:
        keys = self._some(sorted(self.elsewhere), which)
        self.elsewhere -= set(keys)
        self.schedule.reclaim(keys)
        self.check()

    def resize(self, slots: int, gpus: int) -> None:
        self.schedule.slots = slots
        self.schedule.gpus = gpus
        self.schedule.gpu_types = {"small": 1, "large": gpus - 1} if gpus > 1 else {}
        self.schedule.growing = slots == 3

    def finish(self) -> None:
        """Run without further faults: the schedule must finish without forgetting a job."""
        for _ in range(10 * len(self.plan.jobs) + 10):
            if self.elsewhere:
                self.reclaim(range(len(self.elsewhere)))
            while self.send():
                pass
            if not self.flying:
                break
            self.answer(0, ["done"])
        assert self.schedule.is_over
        assert not self.flying
        hopeless: set[str] = set()
        for key in self.plan.jobs:  # its dependencies come first
            if key in self.failed or any(below in hopeless for below in self.plan.dependencies(key)):
                hopeless.add(key)
        assert self.stopped or self.done.keys() | hopeless == self.plan.jobs.keys()

    # How it does

    def _asks(self, key: str) -> bool:
        return marks(self.plan.jobs[key].function).gpus > 0

    def _some(self, keys: list[str], which: Sequence[int]) -> list[str]:
        return list(dict.fromkeys(keys[index % len(keys)] for index in which)) if keys else []

    def _outcome(self, number: int, key: str, inputs: tuple[str, ...], fate: str) -> Outcome:
        sound = self.sound.pop((number, key))
        harmed = self.harmed.pop((number, key))
        unread = set(inputs) - sound
        match fate:
            case "died":
                return Lost(key, "worker died", died=True)
            case "gone":
                return Lost(key, "its node went away")
            case "memory":
                return Lost(key, "OutOfMemoryError: CUDA out of memory", exhausted="device")
            case "refused":
                return Refused(key, "No space left on device")
            case "missing" if harmed:
                return Missing(key, tuple(below for below in dict.fromkeys(inputs) if below in harmed))
        if unread:
            return Missing(key, tuple(below for below in dict.fromkeys(inputs) if below in unread))
        if fate == "failed":
            return Failed(key, "ValueError: no", "...")
        return Done(key, 1e-4, "here:1", measured=GpuMeasurement(2, 1.0, 10.0, 0.4) if fate == "measured" else None)

    def _note(self, outcome: Outcome, number: int) -> None:
        key = outcome.key
        match outcome:
            case Done():
                self._make(key)
                self.computed[key] += 1
                self.losses.clear()
            case Failed():
                self.failed[key] = "ValueError"
            case Refused():
                self.paused = True
            case Missing():
                for below in outcome.inputs:
                    if below in self.done and number > self.done[below]:
                        del self.done[below]
                        self.found[below] += 1
                        if self.found[below] >= MAX_REOPENED:
                            self.failed[below] = f"damaged {self.found[below]} times"

    def _make(self, key: str) -> None:
        self.done[key] = self.calls
        self.bad.discard(key)
        for call in self.flying.values():
            for item in call.items:
                if key in item.inputs:
                    self.sound[call.number, item.key].add(key)

    def _note_loss(self, loss: Lost) -> None:
        self.deaths[loss.key] += loss.died
        self.losses[loss.key] += 1
        if self.deaths[loss.key] >= MAX_DEATHS:
            self.failed[loss.key] = f"died {MAX_DEATHS} times"
        elif self.losses[loss.key] >= MAX_LOSSES:
            self.paused = True


def settings(rng: random.Random) -> ScheduleSettings:
    return ScheduleSettings(
        stored_share=rng.choice((0.0, 0.0, 0.5, 0.9)),
        slots=rng.randint(1, 3),
        gpus=rng.choice((0, 0, 1, 2)),
        sharers=rng.choice((1, 4)),
        together=rng.choice((None, 1, 2, 3, 12)),
        fail_fast=rng.random() < 0.1,
        tolerate=rng.choice((0, 1, 5)),
        seconds=rng.random() < 0.5,
    )


def history(seed: int) -> int:
    """Run a complete history. Returns the number of its steps."""
    rng = random.Random(seed)
    plan = shape(rng.randrange(SHAPES))
    history_settings = settings(rng)
    model = Model(plan, history_settings, [key for key in plan.jobs if rng.random() < history_settings.stored_share])
    steps = live(model, rng)
    if 0 < len(model.failed) <= history_settings.tolerate and not model.stopped:
        less = plan.drop_keys(model.failed)
        assert remaining_jobs(plan, model.failed) == Counter(
            map(plan.task, less.jobs.keys() & plan.jobs.keys())
        ) + Counter(map(less.task, less.jobs.keys() - plan.jobs.keys()))
        model = Model(
            less, history_settings, model.done.keys() & less.jobs.keys(), list(model.schedule.failed.values())
        )
        steps += live(model, rng)
    return steps


def remaining_jobs(plan: Plan, failed: Iterable[str]) -> Counter[str]:
    """Jobs per task that can run without the failed ones and that a remaining job or root needs."""
    lost_keys = set(failed)
    for key in plan.jobs:
        gone = [below for below in plan.inputs[key] if below in lost_keys]
        gathers = marks(plan.jobs[key].function).gathers and len(gone) < len(plan.inputs[key])
        if (gone and not gathers) or plan.after.get(key) in lost_keys:
            lost_keys.add(key)
    needed_keys = {key for root in plan.roots.values() for key in root} - lost_keys
    for key in reversed(plan.jobs):
        if key in needed_keys:
            needed_keys |= set(plan.inputs[key]) - lost_keys
    return Counter(map(plan.task, needed_keys))


def live(model: Model, rng: random.Random) -> int:
    """Run a random number of random steps, then finish."""
    steps = rng.randint(0, STEPS)
    for _ in range(steps):
        match rng.choices(range(7), (40, 35, 10, 4, 4, 4, 1))[0]:
            case 0:
                model.send(rng.random() < 0.9)
            case 1:
                model.answer(rng.randrange(8), rng.choices(FATES, WEIGHTS, k=4))
            case 2:
                model.harm(rng.randrange(8))
            case 3:
                model.defer(rng.choices(range(9), k=2))
            case 4:
                model.arrive(rng.choices(range(9), k=2))
            case 5:
                model.reclaim(rng.choices(range(9), k=2))
            case 6:
                model.resize(rng.randint(1, 3), rng.randint(0, 2))
    model.finish()
    return steps


def count_steps(seed: int) -> Counter[str]:
    return Counter({"steps": history(seed)})


if __name__ == "__main__":
    try_seeds(__doc__ or "", 20_000, count_steps)
