"""Runs on a virtual clock: the real driver, schedule, leases, journal and store, with faults determined by a seed.

    python -m tests.support.simulation --count 1000000 --seed 0 --processes 16

Every start of the run is a process on a separate machine: a thread that runs only while the world lets it, and that
yields whenever it reads the clock, queries its workers, notifies its observer or accesses the store. At these points it
may be killed, or its machine may sleep. Workers take virtual seconds, die, lose their node, or continue after their
driver. Results are damaged; the disk refuses writes; drivers are started again, also concurrently. After some moment no
fault occurs, and then the next start must finish the run.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import os
import random
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

from orchestrator.errors import Held, Unwritable
from orchestrator.executors.calls import Call, Finished, Lost, perform
from orchestrator.planning.plan import Plan
from orchestrator.runs import held_runs, lifecycle
from orchestrator.runs.report import Report
from orchestrator.scheduling.driver import POLL
from orchestrator.scheduling.schedule import MAX_DEATHS, MAX_REOPENED
from orchestrator.scheduling.waiting import Clock
from orchestrator.spec.resolve import Cell
from orchestrator.spec.specification import Execution
from orchestrator.store import WriteEffect, lease
from orchestrator.store.local import LocalStore
from tasks.contract.job import Function, Inputs, Job, task
from tasks.contract.resources import Resources
from tests.support.seeds import try_seeds

START = 4e9  # seconds since 1970: no file of the real world is from later
BEAT = lease.BEAT
STALE = 60.0
STARTS = 60  # an unfinished run with more starts counts as one that never finishes


@dataclasses.dataclass(frozen=True)
class Number:
    value: int = 0
    fails: bool = False


def _table(config: Number) -> pa.Table:
    if config.fails:
        raise ValueError("cannot be had")
    return pa.table({"number": pa.array([config.value], pa.int64())})


@task(version=1, name="simulation.part", batch_key=lambda config: config.value % 2)
def part(config: Number, inputs: Inputs) -> pa.Table:
    return _table(config)


@task(version=1, name="simulation.total", gathers=True)
def total(config: Number, inputs: Inputs) -> pa.Table:
    return _table(config)


TASKS: tuple[Function, ...] = (part, total)


class Dead(BaseException):
    """Ends the threads of a finished world."""


class World:
    """One store, the processes that work on it and all faults, in virtual time."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = random.Random(seed)
        self.time = START
        self.calm = START + self.rng.uniform(0, 120)  # no fault occurs afterwards
        self.full = (0.0, 0.0)  # when the disk refuses
        self.plans = self._plans()  # of one run, or of two that share jobs
        self.plan = Plan.union(self.plans)
        self.store = Disk(folder, self)
        self.execution = Execution(
            address="none", mlflow="off", report=False, together=self.rng.choice((None, 1, 3, 8)), tolerate=0
        )
        self.sound: set[str] = set()
        self.stored: dict[str, tuple[float, Flight | None]] = {}  # when and by whose call
        self.harmed: dict[str, float] = {}
        self.harms: Counter[str] = Counter()
        self.blows: list[float] = []
        self.deaths: Counter[str] = Counter()
        self.computed: Counter[str] = Counter()
        self.excused: Counter[str] = Counter()  # computations that were on their way when something went wrong
        self.processes: list[Process] = []
        self.current: Process | None = None
        self.computing: Flight | None = None
        self.baton = threading.Semaphore(0)
        self.sealed = False
        self.last: dict[int, Report] = {}  # the final report of each run
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()

    def _plans(self) -> list[Plan]:
        rng = self.rng
        jobs: list[Job] = []
        for value in range(rng.randint(2, 9)):
            if jobs:
                below = tuple(dict.fromkeys(rng.choices(jobs, k=rng.choice((0, 0, 1, 2)))))
            else:
                below = ()
            if jobs and rng.random() < 0.4:
                below = (jobs[0],)
            after = rng.choice(jobs) if jobs and rng.random() < 0.2 else None
            jobs.append(Job(rng.choice(TASKS), Number(value, rng.random() < 0.04), below, after=after))
        read_inputs = {id(below) for job in jobs for below in job.inputs}
        tops = tuple(job for job in jobs if id(job) not in read_inputs)
        second_total = Job(total, Number(len(jobs)), tuple(rng.sample(jobs, rng.randint(1, len(jobs)))))
        roots = (tops, (second_total,)) if rng.random() < 0.4 else (tops,)
        return [Plan.from_roots({"summary": run_roots}) for run_roots in roots]

    # Time

    def at(self, when: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._count), action))

    def run(self) -> None:
        """Run from the first start until the run is over."""
        for run in range(len(self.plans)):
            self.at(START + run * self.rng.uniform(0, 20), lambda run=run: self.start(run))  # type: ignore[misc]
        if self.rng.random() < 0.5:
            when = START + self.rng.uniform(0, 60)
            self.full = (when, when + self.rng.uniform(0, 30))
        for _ in range(self.rng.choice((0, 0, 1, 3, 8))):
            self.at(START + self.rng.uniform(0, 120), self.harm)
        for _ in range(self.rng.choice((0, 1, 2))):
            self.at(START + self.rng.uniform(0, 120), lambda: self.start(0, is_extra=True))
        try:
            while len(self.last) < len(self.plans):
                self.time, _, action = heapq.heappop(self._events)
                action()
            self._check_end()
        finally:
            self.sealed = True
            for process in self.processes:
                process.thread_ends()

    @property
    def faulty(self) -> bool:
        return self.time < self.calm

    # What happens

    def start(self, run: int, is_extra: bool = False) -> None:
        assert len(self.processes) < STARTS, "the run does not finish"
        process = Process(self, len(self.processes), run, is_extra)
        self.processes.append(process)
        self.at(self.time, process.resume)

    def ended(self, process: Process) -> None:
        """Check a process that has ended or was killed, and start the run again unless it is over."""
        process.check()
        report = process.report
        if report is not None and report.state in ("finished", "failed") and process.verified >= self.calm:
            self.last[process.run] = report
        elif not process.is_extra:
            self.at(self.time + self.rng.uniform(0.1, 90), lambda: self.start(process.run))

    def harm(self) -> None:
        """Flip one bit of a result, or delete its file."""
        if self.faulty and self.sound:
            key = self.rng.choice(sorted(self.sound))
            path = self.store.path(key)
            if self.rng.random() < 0.7:
                data = bytearray(path.read_bytes())
                data[self.rng.randrange(len(data))] ^= 1
                path.write_bytes(data)
            else:
                path.unlink()
            self.sound.discard(key)
            self.harmed[key] = self.time
            self.harms[key] += 1
            self.blows.append(self.time)

    def acquired(self, process: Process) -> None:
        """Check that two drivers never hold valid leases."""
        for other_process in self.processes:
            if other_process is not process and other_process.run == process.run and other_process.holds:
                assert other_process.asleep, f"{process.name} took over from {other_process.name}, which lives"
                assert self.time - other_process.beaten > STALE
                other_process.holds = False
                other_process.deposed = True
        process.holds = True
        process.beat()

    def submitted(self, flight: Flight) -> None:
        """Check that no stored result is computed again, except for jobs in progress when a process died or a call was
        dropped."""
        process = flight.process
        if process.deposed:  # it notices when it checks the other drivers
            assert self.time - process.woke <= POLL, f"{process.name} computes under a lease that was taken over"
            self.excused.update(item.key for item in flight.call.items)
        for other_process in self.processes:
            if other_process.workers and other_process.holds and other_process is not process:
                other_keys = {
                    item.key for running_flight in other_process.workers.flights for item in running_flight.call.items
                }
                own_keys = {item.key for item in flight.call.items}
                self.excused.update(other_keys & own_keys)
                slept = other_process.sleeps or process.sleeps  # without heartbeats in the meantime
                # If two runs find a finished result damaged, both compute it again: neither waits for the later one,
                # and two writers of one key are harmless.
                twice = {key for key in other_keys & own_keys if not self.harms[key]}
                assert slept or not twice, f"{process.name} computes what {other_process.name} is computing"
        for item in flight.call.items:
            if item.key in self.sound:
                when, by = self.stored[item.key]
                assert when >= process.listed
                assert by is not None
                assert by.process is not process or by.fate != "ends", f"{item.key[:8]} is stored and computed again"
                self.excused[item.key] += 1
        self.at(flight.ends, flight.end)

    def wrote(self, key: str) -> None:
        self.computed[key] += 1
        self.sound.add(key)
        self.stored[key] = (self.time, self.computing)

    # How it ends

    def failing(self) -> set[str]:
        return {key for key in self.plan.jobs if self.plan.jobs[key].config.fails}

    def _check_end(self) -> None:
        missed: set[str] = set()
        for run, report in self.last.items():
            aside = {key for key, _, error in report.failures if not self.plan.jobs[key].config.fails}
            assert all(self.deaths[key] >= MAX_DEATHS or self.harms[key] >= MAX_REOPENED for key in aside)
            lost_keys = self.plans[run].dependents(aside | self.failing())
            missed |= lost_keys
            expected_keys = self.plans[run].jobs.keys() - lost_keys
            assert expected_keys <= self.store.keys()
            assert list(self.store.verify(sorted(expected_keys))) == []
            assert (("failed", 3) if lost_keys else ("finished", 0)) == (report.state, report.exit_code)
        planned_keys = {key for plan in self.plans for key in plan.jobs}
        assert planned_keys - missed <= self.store.keys() <= planned_keys
        for key, count in self.computed.items():
            assert count <= 1 + self.harms[key] + self.excused[key]


class Process:
    """One start of the run, on a separate machine."""

    def __init__(self, world: World, number: int, run: int, is_extra: bool) -> None:
        rng = world.rng
        self.world = world
        self.name = f"machine-{number}"
        self.run = run
        self.is_extra = is_extra
        self.plan = world.plans[run]
        self.dies = rng.randint(1, 60) if world.faulty and rng.random() < 0.5 else 0  # at which touch
        self.sleeps = rng.randint(1, 60) if world.faulty and rng.random() < 0.3 else 0
        self.rest = rng.uniform(1, 200)
        self.limit = rng.uniform(0.5, 20) if world.faulty and rng.random() < 0.15 else None  # given as stop_after
        self.touches = 0
        self.alive = True
        self.asleep = False
        self.holds = False
        self.deposed = False
        self.beaten = self.woke = self.listed = self.verified = world.time
        self.refused = False
        self.started = world.time
        self.workers: Workers | None = None
        self.leases: list[lease.Lease] = []
        self.report: Report | None = None
        self.held: str | None = None
        self.error: BaseException | None = None
        self._go = threading.Semaphore(0)
        self.thread = threading.Thread(target=self._main, name=self.name, daemon=True)
        self.thread.start()

    def resume(self) -> None:
        """Let the process run until it yields."""
        if not self.alive:
            return
        self.world.current = self
        self._go.release()
        self.world.baton.acquire()
        self.world.current = None
        if not self.thread_runs:
            self.alive = self.holds = False
            self.world.ended(self)

    thread_runs = True

    def thread_ends(self) -> None:
        self._go.release()
        self.thread.join()

    def _main(self) -> None:
        world = self.world
        try:
            self._go.acquire()
            if world.sealed:
                raise Dead
            clock = Clock(lambda: world.time, self._monotonic, self.pause)
            execution = dataclasses.replace(world.execution, stop_after=self.limit)
            cell = Cell("simulated", Number())
            self.report = lifecycle.start([cell], world.store, execution, self._observe, clock=clock)
        except Held as held:
            self.held = str(held)
        except Dead:
            pass
        except BaseException as error:
            self.error = error
        self.thread_runs = False
        world.baton.release()

    def touch(self) -> None:
        """Yield to possible faults."""
        self._stay()
        self.touches += 1
        if self.touches == self.dies and self.world.faulty:
            self.alive = self.holds = False
            if self.workers is not None:
                self.workers.orphaned()
            self.world.at(self.world.time, lambda: self.world.ended(self))
            self._give_way()
        elif self.touches == self.sleeps and self.world.faulty:
            self.asleep = True
            self.pause(self.rest)
            self.asleep = False
            self.woke = self.world.time
            self.beat()

    def pause(self, seconds: float) -> None:
        self.world.at(self.world.time + seconds, self.resume)
        self._give_way()

    def _give_way(self) -> None:
        self.world.baton.release()
        self._go.acquire()
        self._stay()

    def _stay(self) -> None:
        if self.world.sealed:
            raise Dead

    def _monotonic(self) -> float:
        self.touch()
        return self.world.time

    def _observe(self, event: Mapping[str, Any]) -> None:
        self.touch()

    def beat(self) -> None:
        """Send one heartbeat for all leases, as the heart's thread does, and schedule the next."""
        if self.alive and not self.asleep and self.world.current in (None, self):
            for held_lease in self.leases:
                held_lease.renew()
            if self.deposed and not any(held_lease.lost for held_lease in self.leases):
                # the other driver has released the lease
                self.deposed = False
                self.holds = True
            self.beaten = self.world.time if self.holds else self.beaten

    def keep_beating(self) -> None:
        if self.alive:
            self.beat()
            self.world.at(self.world.time + BEAT, self.keep_beating)

    def check(self) -> None:
        """Check that the reported state is true."""
        world = self.world
        if self.error is not None:
            raise self.error
        if self.held is not None:
            other_processes = []
            for other_process in world.processes:
                if other_process is not self and other_process.run == self.run:
                    other_processes.append(other_process)
            assert self.deposed or any(world.time - other_process.beaten <= STALE for other_process in other_processes)
        if self.report is None:
            return
        match self.report.state:
            case "finished" | "failed":
                failed_keys = {key for key, _, _ in self.report.failures}
                assert (self.report.state == "failed") == bool(failed_keys)
                for key in self.plan.jobs.keys() - self.plan.dependents(failed_keys):
                    assert key in world.sound or world.harmed[key] >= self.verified, f"{key[:8]} is missing"
            case "paused":
                late = any(when >= self.verified for when in world.blows)  # found when tables were written
                often = sum(when >= self.started for when in world.blows) > held_runs.MAX_REPAIRS
                assert self.refused or late or often, self.report.note
            case "interrupted":
                assert self.limit is not None
                assert world.time - self.started >= self.limit, self.report.note


@dataclasses.dataclass(eq=False)
class Flight:
    """A call in progress: it `ends`, its worker `dies` after some jobs, or its node is `gone` but may continue."""

    world: World
    process: Process
    call: Call
    fate: str
    ends: float
    began: float
    orphan: bool  # whether it continues after its driver has died

    def end(self) -> None:
        workers = self.process.workers
        assert workers is not None
        if self not in workers.flights:  # given up
            if self.orphan:
                self._perform(self.call)
            return
        workers.flights.remove(self)
        if not self.process.alive and not self.orphan:
            return
        call = self.call
        if self.fate == "ends":
            workers.ended.append(self._perform(call))
            return
        done = self.world.rng.randint(0, len(call.items))
        if self.fate == "dies":
            self._perform(dataclasses.replace(call, items=call.items[:done]))
            if len(call.items) == 1:
                self.world.deaths[call.items[0].key] += 1
        else:
            self.world.at(self.world.time + self.world.rng.uniform(0, 20), lambda: self._perform(call))
        losses = tuple(Lost(item.key, f"worker {self.fate}", self.fate == "dies") for item in call.items)
        workers.ended.append(Finished(call, losses))

    def _perform(self, call: Call) -> Finished:
        self.world.computing = self
        if self.fate != "ends" or not self.process.alive or self.process.asleep:
            self.world.excused.update(item.key for item in call.items)
        try:
            return perform(call, self.world.store)
        finally:
            self.world.computing = None


class Workers:
    """A process's executor, which runs calls concurrently."""

    pages: Mapping[str, str] = {}
    gpus = 0
    sharers = 1
    inside = False
    growing = False
    gpu_types: Mapping[str, int] = {}

    def __init__(self, process: Process) -> None:
        self.process = process
        self.world = process.world
        self.slots = self.world.rng.randint(1, 3)
        self.window = 2 * self.slots
        self.flights: list[Flight] = []
        self.ended: list[Finished] = []
        process.workers = self

    def submit(self, call: Call) -> None:
        self.process.touch()
        rng = self.world.rng
        fate = "ends"
        if self.world.faulty:
            fate = rng.choices(("ends", "dies", "gone"), (8, 1, 1))[0]
        now = self.world.time
        flight = Flight(self.world, self.process, call, fate, now + rng.uniform(0.05, 8), now, rng.random() < 0.5)
        self.flights.append(flight)
        self.world.submitted(flight)

    def take_back(self, unwanted: Callable[[Call], bool]) -> Sequence[Call]:
        return ()

    def obstacle(self, resources: Resources) -> None:
        return None

    def lacks(self) -> None:
        return None

    def wait(self, seconds: float) -> Sequence[Finished]:
        self.process.touch()
        if not self.ended:
            first = min((flight.ends for flight in self.flights), default=float("inf"))
            self.process.pause(max(0.0, min(seconds, first - self.world.time)))
        ended = self.ended
        self.ended = []
        return ended

    @property
    def pending(self) -> int:
        return len(self.flights) + len(self.ended)

    def running(self) -> Sequence[tuple[Call, float]]:
        return [(flight.call, self.world.time - flight.began) for flight in self.flights]

    def end(self, call: Call, why: str) -> None:
        self.flights = [flight for flight in self.flights if flight.call is not call]
        self.ended.append(Finished(call, tuple(Lost(item.key, why, died=True) for item in call.items)))

    def halt(self) -> None:
        self.process.touch()

    def orphaned(self) -> None:
        for flight in self.flights:
            self.world.excused.update(item.key for item in flight.call.items)

    def cancel(self) -> None:
        self.orphaned()
        self.flights = []
        self.ended = []

    def close(self) -> None:
        self.process.touch()


class Disk(LocalStore):
    """The store. It refuses writes for a while, and an access may kill the driver."""

    def __init__(self, folder: Path, world: World) -> None:
        super().__init__(folder)
        self._world = world

    def path(self, key: str) -> Path:
        return self._results / key[:2] / f"{key}.arrow"

    def keys(self) -> set[str]:
        if (process := self._world.current) is not None:
            process.touch()
            process.listed = self._world.time
        return super().keys()

    def verify(self, keys: Iterable[str]) -> Iterator[tuple[str, str]]:
        if (process := self._world.current) is not None:
            process.verified = self._world.time
        yield from super().verify(keys)

    def write(self, key: str, table: pa.Table, record: Mapping[str, Any]) -> WriteEffect:
        world = self._world
        if world.full[0] <= world.time < world.full[1]:
            for process in world.processes:
                process.refused = True
            raise Unwritable(f"cannot write {self.location}: No space left on device (ENOSPC)")
        effect = super().write(key, table, record)
        assert effect is not WriteEffect.CONFLICT
        world.wrote(key)
        return effect


def simulate(seed: int) -> World:
    """Run the world of a seed until it ends."""
    with tempfile.TemporaryDirectory(prefix="engram-simulation-") as folder:
        world = World(seed, Path(folder))
        acquire = lease.acquire
        me = lease.this_process

        def acquired(*where: Any, **how: Any) -> lease.Lease:
            process = world.current
            assert process is not None
            new_lease = acquire(*where, **{**how, "heart": False})
            process.leases.append(new_lease)
            world.acquired(process)
            world.at(world.time + BEAT, process.keep_beating)
            return new_lease

        def holder(now: float) -> Any:
            return dataclasses.replace(me(now), host=world.current.name if world.current else "nobody")

        def planned(cell: Cell) -> Plan:
            assert world.current is not None
            return world.current.plan

        def executor(*_: Any) -> Workers:
            assert world.current is not None
            return Workers(world.current)

        with (
            mock.patch.object(lease, "acquire", acquired),
            mock.patch.object(lease, "this_process", holder),
            mock.patch.object(held_runs, "open_executor", executor),
            mock.patch.object(lifecycle, "plan_of", planned),
            mock.patch.object(os, "fsync"),  # no simulated machine loses written data
        ):
            world.run()
        return world


def count_starts(seed: int) -> Counter[str]:
    """Count how the starts in a seed's world ended, and its virtual seconds."""
    world = simulate(seed)
    outcomes: Counter[str] = Counter()
    for process in world.processes:
        outcomes[process.report.state if process.report else "refused" if process.held else "killed"] += 1
    return outcomes + Counter({"virtual seconds": int(world.time - START), "damaged": sum(world.harms.values())})


if __name__ == "__main__":
    try_seeds(__doc__ or "", 500, count_starts)
