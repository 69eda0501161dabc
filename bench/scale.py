"""Cost of driving a large campaign with a simulated executor: a million jobs on a thousand GPUs.

    python -m bench.scale [--jobs 1000000] [--gpus 1000] [--seed 0] [--profile] [--out bench/results/NAME.md]

All of `engram run` is real: plan, lease, schedule, driver, journal, tables, store, and verification of every result.
Only the computation is simulated. Calls take time on a virtual clock, and worker deaths, node losses, errors and lost
results are drawn from the seed. Results are valid files with one small table, which the executor does not sync. The
time spent in the executor itself is counted separately.
"""

from __future__ import annotations

import argparse
import cProfile
import dataclasses
import hashlib
import heapq
import platform
import pstats
import random
import resource
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

from measurement.files import write_whole
from orchestrator.executors.calls import Call, Done, Failed, Finished, Item, Lost, Missing, Outcome
from orchestrator.executors.gpu_packing import SHARERS, GpuMeasurement
from orchestrator.planning.plan import Plan
from orchestrator.runs import held_runs, lifecycle
from orchestrator.runs.report import Report
from orchestrator.scheduling.waiting import Clock
from orchestrator.spec.resolve import Cell
from orchestrator.spec.specification import Execution
from orchestrator.store import Store, entry, open_store
from tasks.contract.job import Inputs, Job, task
from tasks.contract.resources import Resources

START = 4e9  # seconds since 1970, later than any real file
NETWORKS = 40  # trainings per condition
LINKS = 4  # links per training
PER_CONDITION = NETWORKS * (LINKS + 1) + 1  # jobs per condition
GPUS_PER_NODE = 8
CORES_PER_GPU = 4
NODE_SECONDS = 1800.0  # mean time between node losses
DIES = 2e-3  # fraction of calls whose worker dies
RAISES = 1e-4  # fraction of links that raise an exception
DAMAGED = 5e-5  # fraction of jobs that miss an input
SPREAD = 0.4  # standard deviation of the log of a job's seconds


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Settings shared by the trainings of a condition."""

    network: str
    learning_rate: float
    batch: int = 128
    optimiser: str = "adam"


@dataclasses.dataclass(frozen=True)
class Training:
    recipe: Recipe
    condition: int
    seed: int
    epochs: int


@dataclasses.dataclass(frozen=True)
class Part:
    condition: int = 0


def _not_here(_config: object, _inputs: Inputs) -> pa.Table:
    raise NotImplementedError("the simulated executor writes all results")


def _batch_key(config: Training) -> object:
    return config.recipe, config.epochs


@task(version=1, name="scale.train", gpus=1.0, batch_key=_batch_key, trains=1)
def train(config: Training, inputs: Inputs) -> pa.Table:
    return _not_here(config, inputs)


@task(version=1, name="scale.score")
def score(config: Part, inputs: Inputs) -> pa.Table:
    return _not_here(config, inputs)


@task(version=1, name="scale.condition", gathers=True)
def condition(config: Part, inputs: Inputs) -> pa.Table:
    return _not_here(config, inputs)


@task(version=1, name="scale.summary", gathers=True)
def summary(config: Part, inputs: Inputs) -> pa.Table:
    return _not_here(config, inputs)


@dataclasses.dataclass(frozen=True)
class Kind:
    """Cost of one kind of network on a GPU: seconds per link, models per step, and the busy fraction of the GPU."""

    seconds: float
    stack: int
    busy: float


KINDS: Mapping[str, Kind] = {
    "mlp": Kind(5.0, 16, 0.25),
    "convolutional": Kind(15.0, 8, 0.5),
    "residual": Kind(30.0, 4, 0.9),
    "transformer": Kind(60.0, 1, 1.0),
}
CPU_SECONDS: Mapping[str, float] = {"scale.score": 4.0, "scale.condition": 2.0, "scale.summary": 60.0}
RATES = (1e-4, 3e-4, 1e-3, 3e-3)


def campaign(jobs: int) -> dict[str, Job | tuple[Job, ...]]:
    """Return the roots of a campaign with about this many jobs: conditions with training chains, scores and a table."""
    recipes = [Recipe(network, rate) for network in KINDS for rate in RATES]
    tables = tuple(
        _condition(number, recipes[number % len(recipes)]) for number in range(max(1, jobs // PER_CONDITION))
    )
    return {"summary": Job(summary, Part(), tables), "conditions": tables}


def _condition(number: int, recipe: Recipe) -> Job:
    scores = []
    for seed in range(NETWORKS):
        link: Job | None = None
        for epoch in range(1, LINKS + 1):
            link = Job(train, Training(recipe, number, seed, 10 * epoch), after=link, waits=True)
        assert link is not None
        scores.append(Job(score, Part(number), (link,)))
    return Job(condition, Part(number), tuple(scores))


class Results:
    """Writes valid results with one table into a store's folder, without syncing."""

    def __init__(self, store: Store) -> None:
        self._root = Path(store.location)
        self._name = "f" * 64
        table = pa.table({"value": [1.0]})
        record = {"key": self._name, "content": entry.content(table), "task": "scale", "seconds": 1.0, "worker": "none"}
        before, digest, after = entry.seal(table, record)
        self._before = bytes(before)
        self._after = bytes(after)
        self._zeros = b"0" * len(digest)

    def path(self, key: str) -> Path:
        return self._root / entry.result_name(key)

    def write(self, key: str) -> None:
        before = self._before.replace(self._name.encode(), key.encode())
        after = self._after.replace(self._name.encode(), key.encode())
        digest = hashlib.sha256(before + self._zeros + after).hexdigest().encode()
        path = self.path(key)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(before + digest + after)


class Simulated:
    """An executor with GPUs and cores on a virtual clock. `seconds` is the real time spent in the executor itself."""

    inside = growing = False
    gpu_types: Mapping[str, int] = {}
    pages: Mapping[str, str] = {}

    def __init__(self, gpus: int, results: Results, rng: random.Random) -> None:
        self.gpus = gpus
        self.slots = CORES_PER_GPU * gpus
        self.sharers = SHARERS
        self.window = 2 * self.slots
        self.now = START
        self.seconds = 0.0
        self.calls: Counter[str] = Counter()
        self._results = results
        self._rng = rng
        self._nodes = max(1, gpus // GPUS_PER_NODE)
        self._next_loss = START + rng.expovariate(1 / NODE_SECONDS)
        self._free = {True: float(gpus), False: float(self.slots)}  # free GPUs, and free cores
        self._queues: dict[bool, deque[Call]] = {True: deque(), False: deque()}
        self._flights: dict[int, tuple[Call, float, int]] = {}  # by number: the call, its start time and its node
        self._ends: list[tuple[float, int]] = []
        self._ended: list[Finished] = []

    @contextmanager
    def _own_time(self) -> Iterator[None]:
        began = time.process_time()
        yield
        self.seconds += time.process_time() - began

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self.now, lambda: self.now, self._pass)

    def _pass(self, seconds: float) -> None:
        self.now += seconds

    @property
    def pending(self) -> int:
        return sum(map(len, self._queues.values())) + len(self._flights) + len(self._ended)

    def submit(self, call: Call) -> None:
        with self._own_time():
            self.calls[call.task] += 1
            self._queues[call.gpus > 0].append(call)
            self._begin(call.gpus > 0)

    def _begin(self, on_gpu: bool) -> None:
        """Start queued calls on free GPUs or cores."""
        queue = self._queues[on_gpu]
        while queue and self._free[on_gpu] + 1e-9 >= (queue[0].gpus or 1.0):
            call = queue.popleft()
            self._free[on_gpu] -= call.gpus or 1.0
            self._flights[call.number] = call, self.now, self._rng.randrange(self._nodes)
            heapq.heappush(self._ends, (self.now + self._duration(call), call.number))

    def _duration(self, call: Call) -> float:
        config = call.items[0].config
        spread = self._rng.lognormvariate(0.0, SPREAD)
        if not isinstance(config, Training):
            return CPU_SECONDS[call.task] * len(call.items) * spread
        kind = KINDS[config.recipe.network]
        return kind.seconds * -(-len(call.items) // kind.stack) * spread

    def wait(self, seconds: float) -> Sequence[Finished]:
        with self._own_time():
            until = self.now + seconds
            while self._ends and self._ends[0][1] not in self._flights:  # already lost together with its node
                heapq.heappop(self._ends)
            self.now = max(self.now, min(until, self._next_loss, self._ends[0][0] if self._ends else until))
            if self.now >= self._next_loss:
                self._lose_node()
            while self._ends and self._ends[0][0] <= self.now:
                number = heapq.heappop(self._ends)[1]
                if number in self._flights:
                    call, began, node = self._land(number)
                    self._ended.append(Finished(call, self._outcomes(call, self.now - began, f"node-{node}:1")))
            ended = self._ended
            self._ended = []
            return ended

    def _land(self, number: int) -> tuple[Call, float, int]:
        call, began, node = self._flights.pop(number)
        self._free[call.gpus > 0] += call.gpus or 1.0
        self._begin(call.gpus > 0)
        return call, began, node

    def _lose_node(self) -> None:
        """Lose a node and its calls. A new node replaces it."""
        self._next_loss = self.now + self._rng.expovariate(1 / NODE_SECONDS)
        lost_node = self._rng.randrange(self._nodes)
        for number in [number for number, (_, _, node) in self._flights.items() if node == lost_node]:
            self._ended.append(_lost(self._land(number)[0], "its node went away", died=False))

    def _outcomes(self, call: Call, seconds: float, worker: str) -> tuple[Outcome, ...]:
        if self._rng.random() < DIES:
            return _lost(call, "its worker process died", died=True).outcomes
        job_seconds = seconds / len(call.items)
        return tuple(self._outcome(item, job_seconds, worker) for item in call.items)

    def _outcome(self, item: Item, seconds: float, worker: str) -> Outcome:
        if item.inputs and self._rng.random() < DAMAGED:
            lost_input = self._rng.choice(item.inputs)
            self._results.path(lost_input).unlink(missing_ok=True)
            return Missing(item.key, (lost_input,))
        config = item.config
        # Decided by the key, because a task that raises would raise again.
        if isinstance(config, Training) and int(item.key[:8], 16) < RAISES * 16**8:
            return Failed(item.key, "TrainingError: loss is not finite at step 1", "Traceback ...")
        self._results.write(item.key)
        if not isinstance(config, Training):
            return Done(item.key, seconds, worker)
        kind = KINDS[config.recipe.network]
        return Done(item.key, seconds, worker, measured=GpuMeasurement(kind.stack, 5e8, 8e10, kind.busy))

    def running(self) -> Sequence[tuple[Call, float]]:
        return [(call, self.now - began) for call, began, _ in self._flights.values()]

    def take_back(self, unwanted: Callable[[Call], bool]) -> Sequence[Call]:
        raise AssertionError("the simulated executor never takes calls back")

    def obstacle(self, resources: Resources) -> None:
        return None

    def lacks(self) -> None:
        return None

    def end(self, call: Call, why: str) -> None:
        self._ended.append(_lost(self._land(call.number)[0], why, died=True))

    def halt(self) -> None:
        for queue in self._queues.values():
            queue.clear()

    def cancel(self) -> None:
        self.halt()
        self._flights.clear()

    def close(self) -> None:
        self.cancel()


def _lost(call: Call, cause: str, died: bool) -> Finished:
    return Finished(call, tuple(Lost(item.key, cause, died) for item in call.items))


class Phases:
    """Processor seconds in each phase of a run. Events mark the phases."""

    def __init__(self, executor: Simulated) -> None:
        self.seconds: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        self._executor = executor
        self._phase = "start"
        self._since = 0.0
        self.enter("plan")

    def observe(self, event: Mapping[str, Any]) -> None:
        self.events[event["event"]] += 1
        if event["event"] == "planned":
            self.enter("drive")
        elif event["event"] == "step" and event["step"] == "checking stored results":
            self.enter("verify, report")

    def enter(self, phase: str) -> None:
        now = time.process_time() - self._executor.seconds
        self.seconds[self._phase] += now - self._since
        self._phase = phase
        self._since = now


@dataclasses.dataclass(frozen=True)
class Measured:
    """The cost of a campaign: processor seconds by phase, and other figures by their name in the table."""

    jobs: int
    phases: Mapping[str, float]
    figures: Mapping[str, float]


def drive(jobs: int, gpus: int, seed: int, folder: Path) -> Measured:
    """Run a campaign to completion, then start it again."""
    store = open_store(folder)
    executor = Simulated(gpus, Results(store), random.Random(seed))
    phases = Phases(executor)
    wall = time.perf_counter()
    report = start(store, jobs, executor, phases)
    phases.enter("resume")
    second_report = start(store, jobs, executor, Phases(executor))
    phases.enter("end")
    wall = time.perf_counter() - wall
    planned_count = report.jobs["planned"]
    # A resumed run repeats only jobs that failed because their inputs were damaged too often.
    has_repeated_jobs = any("missing or damaged" in message for _, _, message in report.failures)
    assert has_repeated_jobs or second_report.jobs["done"] == 0, second_report
    assert report.jobs["failed"] == len(report.failures) == phases.events["failed"] - (report.state == "failed"), report
    calls = sum(executor.calls.values())
    ended = phases.events["done"]
    spent = phases.seconds["drive"]
    return Measured(
        planned_count,
        {name: phases.seconds[name] for name in ("plan", "drive", "verify, report", "resume")},
        {
            "virtual hours": (executor.now - START) / 3600,
            "calls sent": calls,
            "results": ended,
            "failed": report.jobs["failed"],
            "lost and sent again": phases.events["lost"],
            "found missing": phases.events["missing"],
            "decisions a second (calls sent, results and losses recorded)": (calls + ended + phases.events["lost"])
            / spent,
            "driving, us a job": 1e6 * spent / planned_count,
            "share of one core while it drives, %": 100 * spent / (executor.now - START),
            "the executor's own seconds, not counted": executor.seconds,
            "peak memory, MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "wall-clock seconds": wall,
        },
    )


def start(store: Store, jobs: int, executor: Simulated, phases: Phases) -> Report:
    """Perform `engram run` for a campaign on this executor."""
    execution = Execution(mlflow="off", report=False, tolerate=jobs)
    plan = Plan.from_roots(campaign(jobs))
    with (
        mock.patch.object(held_runs, "open_executor", return_value=executor),
        mock.patch.object(lifecycle, "plan_of", return_value=plan),
    ):
        return lifecycle.start([Cell("scale", Part())], store, execution, phases.observe, clock=executor.clock)


def markdown(measured: Measured, options: argparse.Namespace) -> str:
    from measurement.machine import machine_facts  # imports torch, which would count towards the driver's memory

    about = {
        "command": f"python -m bench.scale --jobs {options.jobs} --gpus {options.gpus} --seed {options.seed}",
        "system": platform.platform(),
        **machine_facts(("pyarrow",)),
    }
    lines = [f"- {name}: {value}" for name, value in about.items()]
    lines += ["", f"| {measured.jobs:,} jobs on {options.gpus:,} GPUs | |", "|---|---|"]
    lines += [f"| {name}, CPU seconds | {seconds:,.1f} |" for name, seconds in measured.phases.items()]
    lines += [f"| {name} | {value:,.{0 if value >= 100 else 2}f} |" for name, value in measured.figures.items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--gpus", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="parent folder of the temporary store")
    parser.add_argument("--profile", action="store_true", help="print a profile; this slows the run down")
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    options = parser.parse_args()
    profile = cProfile.Profile(time.process_time)
    with tempfile.TemporaryDirectory(prefix="engram-bench-", dir=options.folder) as folder:
        if options.profile:
            profile.enable()
        measured = drive(options.jobs, options.gpus, options.seed, Path(folder))
        profile.disable()
    if options.profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(45)
    text = markdown(measured, options)
    print(text, end="")
    if options.out:
        write_whole(text, options.out)


if __name__ == "__main__":
    main()
