"""A dry run of a user's training program: `engram check-training`.

It trains the first two models of an audit, and the first one again. The results of the first two are stored, so that
the run reuses them. The findings are whether the program keeps its contract, whether its scores depend on the rows and
on the seed, and how long a training takes, which becomes the price of the plan.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from orchestrator.errors import SpecError
from orchestrator.executors.calls import Call, Done, Failed, Item, Lost, perform
from orchestrator.planning.plan import Plan, plan_of
from orchestrator.quantities import format_count, format_duration, format_size
from orchestrator.run_folder import other_runs
from orchestrator.spec.resolve import Cell
from orchestrator.store import Store
from tasks.contract.job import Job
from tasks.programs.config import Program
from tasks.programs.effect_of_rows import compare_trainings
from tasks.programs.row_training import RowTraining, is_programmed

CHECKED = 2  # trainings whose results are stored
GPU_MEMORY = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
LOOK = 0.5  # seconds between two looks at the memory of the GPUs


@dataclass(frozen=True)
class Finding:
    """One finding: `ok` is None for a notice, and False for a violation of the contract."""

    name: str
    ok: bool | None
    text: str


@dataclass
class TrainingCheck:
    """The findings, and the seconds of one training."""

    findings: list[Finding] = field(default_factory=list)
    seconds: float | None = None

    @property
    def is_ok(self) -> bool:
        return all(finding.ok is not False for finding in self.findings)

    def add(self, name: str, ok: bool | None, text: str) -> None:
        self.findings.append(Finding(name, ok, text))


def check_training(cell: Cell, store: Store) -> TrainingCheck:
    """Train twice with the program of this audit, and once again, and return the findings.

    Raises SpecError if the audit trains with no program of the user.
    """
    plan = plan_of(cell)
    keys = [key for key, job in plan.jobs.items() if isinstance(getattr(job.config, "program", None), Program)]
    if not keys:
        raise SpecError(
            f"{cell.audit} trains with Engram's own recipe here; give your program as training.command='...' or "
            "training=package.module:train"
        )
    check = TrainingCheck()
    used_before = _gpu_memory()
    with _watch_gpus() as most_used:
        tables = []
        for key in keys[:CHECKED]:
            tables.append(_train(plan, key, store, check))
            if not check.is_ok:
                return check
        check.add("contract", True, f"{format_count(len(tables), 'training')} returned what the audit needs")
        _check_rows([plan.jobs[key] for key in keys[:CHECKED]], tables, check)
        _check_seed(plan.jobs[keys[0]], tables[0], check)
    _add_cost(plan, keys, store, check)
    child_bytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    memory = f"{format_size(child_bytes)} of host memory at most"
    if used_before is not None and most_used:
        memory += f", {format_size(max(0, max(most_used) - used_before) * 2**20)} of GPU memory"
    check.add("memory", True, memory)
    return check


def _train(plan: Plan, key: str, store: Store, check: TrainingCheck) -> Any:
    """Perform one training unless its result is stored. Returns its table, or None with a finding if it fails."""
    if key in store:
        return store.read(key)
    job = plan.jobs[key]
    item = Item(key, f"{job.function.__module__}:{job.function.__qualname__}", job.config, plan.inputs[key])
    call = Call(0, plan.task(key), (item,), gpus=job.resources.gpus)
    (outcome,) = perform(call, store).outcomes
    match outcome:
        case Done(seconds=seconds):
            check.seconds = seconds if check.seconds is None else min(seconds, check.seconds)
            return store.read(key)
        case Failed(error=error):
            check.add("contract", False, error.partition(": ")[2] or error)
        case Lost(cause=cause):
            check.add("contract", False, cause)
        case _:
            check.add("contract", False, f"the result cannot be stored: {outcome}")
    return None


def _check_rows(jobs: list[Job], tables: list[Any], check: TrainingCheck) -> None:
    """Check whether the scores depend on the training rows."""
    configs = [job.config for job in jobs]
    is_comparable = all(isinstance(config, RowTraining) for config in configs) and all(map(is_programmed, tables))
    if len(jobs) < CHECKED or not is_comparable:
        return
    effect = compare_trainings((configs[0], configs[1]), (tables[0], tables[1]))
    if effect.is_same:
        check.add(
            "rows",
            False,
            "two trainings on different rows gave equal scores: the program does not train on the rows in {rows} "
            "(ENGRAM_ROWS, job.rows), or its results do not come from this training",
        )
    elif effect.is_visible:
        check.add("rows", True, f"rows score higher if they are trained on (p = {effect.p_value:.2g})")
    else:
        check.add(
            "rows",
            None,
            f"scores change with the rows, but {format_count(effect.records, 'row')} do not score higher in the "
            "training that used them: the models may memorise little, or the program trains on other rows",
        )


def _check_seed(job: Job, table: Any, check: TrainingCheck) -> None:
    """Check whether a second training with the same rows and seed gives the same result."""
    repeated = job.function(job.config, [])
    if repeated.equals(table):
        check.add("seed", True, "a second training with the same rows and seed gave the same scores")
    else:
        check.add(
            "seed",
            None,
            "a second training with the same rows and seed gave other scores; the tests stay valid, but results "
            "cannot be repeated exactly. Seed all generators with {seed}",
        )


def _add_cost(plan: Plan, keys: list[str], store: Store, check: TrainingCheck) -> None:
    """Add the time of a training, and keep it for the price of the plan."""
    if check.seconds is None:
        return
    group = plan.groups[keys[0]]
    folder = other_runs.checks_folder(store.folder("runs")) / keys[0][:12]
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        other_runs.write_timings(folder, {group: [check.seconds]})
    remaining = len(keys) - CHECKED
    more = f"; {format_count(remaining, 'more training')} take {format_duration(remaining * check.seconds)} one by one"
    check.add("time", True, f"{format_duration(check.seconds)} per training{more if remaining > 0 else ''}")


def _gpu_memory() -> int | None:
    """Return the memory that is used on all GPUs of this machine, in MiB, or None without nvidia-smi."""
    if shutil.which(GPU_MEMORY[0]) is None:
        return None
    try:
        printed = subprocess.run(GPU_MEMORY, capture_output=True, text=True, check=True, timeout=10).stdout
        return sum(int(line) for line in printed.split())
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


@contextmanager
def _watch_gpus() -> Iterator[list[int]]:
    """Collect the used memory of the GPUs while the block runs, in MiB."""
    used: list[int] = []
    if _gpu_memory() is None:
        yield used
        return
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(LOOK):
            memory = _gpu_memory()
            if memory is not None:
                used.append(memory)

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield used
    finally:
        is_over.set()
        watcher.join()


def describe_start(cell: Cell) -> str:
    """Return the line that is printed before the trainings begin."""
    return f"training three models of {cell.audit}; the first two are stored and reused by the run"
