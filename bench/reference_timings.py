"""Measure the reference timings from which `engram run --dry-run` estimates jobs that have never run on a machine.

    python -m bench.reference_timings [--only NAME ...] [--out orchestrator/pricing/reference_timings.json]

Presets on embedded data run job by job in this process on one thread, and each network is trained for one epoch on
images of common shapes. Times are processor time, which is little affected by other processes. Seconds per unit of work
(`tasks.contract.job`) are fitted to the jobs' seconds by non-negative least squares on relative errors. New timings
replace those in the file, after conversion to the machine speed in the file; other timings are kept. `private` covers
trainings with differential privacy and takes the fastest of several repetitions. The sections in OWN keep the timings
of other sections.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from measurement.files import write_whole
from orchestrator.planning.plan import Plan, plan_of
from orchestrator.pricing.reference import FILE, KINDS, Speed, measure_speed
from orchestrator.spec.resolve import pin_cells, resolve_cells
from orchestrator.spec.specification import Spec
from tasks.contract.job import Job, marks
from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset
from tasks.models.catalog import Network
from tasks.training.classifier import Training, train
from tasks.training.classifier import work as of_classifier

# Settings that turn each chain into a single job, because this script keeps no checkpoints between jobs, and that
# shorten the presets.
PRESETS: Mapping[str, tuple[tuple[str, str, Mapping[str, Any]], ...]] = {
    "unique_feature": (
        ("unique_feature", "smoke", {}),
        ("unique_feature", "quickstart", {"canaries": 4}),
        ("unique_feature", "null", {"canaries": 4}),
    ),
    "forgetting": (("forgetting", "smoke", {}), ("forgetting", "quickstart", {})),
    "unlearning": (("forgetting", "unlearning", {"replicates": 1, "permutations": 239}),),
    "density": (
        ("density", "smoke", {}),
        ("density", "quickstart", {"repetitions": 1, "folds": 3, "epochs": 10, "evaluation_interval": 5}),
    ),
    "kernel": (("density", "figure1", {}),),
    "relational": (
        ("relational", "smoke", {"link": 0}),
        ("relational", "smoke", {"link": 0, "model": "tiny-t5"}),
        ("relational", "quickstart", {"link": 0, "replicates": 1, "epochs": 10}),
    ),
    "linear": (("relational", "figure5", {}), ("relational", "linear-private", {})),
    "deja_vu": (
        ("deja_vu", "smoke", {"link": 0}),
        ("deja_vu", "quickstart", {"link": 0, "epochs": 60, "checkpoints": "30,60"}),
    ),
    "membership": (("membership", "smoke", {}), ("membership", "quickstart", {})),
    "text": (
        ("text", "smoke", {}),
        ("text", "smoke", {"epochs": 24}),
        ("text", "quickstart", {"epochs": 1}),
        ("text", "quickstart", {"epochs": 4}),
    ),
}
NETWORKS = {
    ("mlp1", "28x28"): 1024, ("cnn1", "28x28"): 512, ("resnet18", "28x28"): 64, ("densenet100", "28x28"): 32,
    ("mlp1", "32x32#rgb"): 1024, ("cnn1", "32x32#rgb"): 256, ("cnn2", "32x32#rgb"): 256,
    ("resnet18", "32x32#rgb"): 64, ("densenet100", "32x32#rgb"): 32, ("airbench", "32x32#rgb"): 64,
}  # fmt: skip
# Two lengths of each training with differential privacy, because short ones cost more per step. They are shortened
# trainings from the presets, on images of the same shapes.
PRIVATE: tuple[tuple[str, str, Mapping[str, Any]], ...] = tuple(
    (audit, "ladder" if audit != "relational" else "private", {**settings, "epochs": epochs})
    for audit, settings, lengths in (
        ("unique_feature", {"network": "mlp1"}, (5, 20)),
        ("unique_feature", {"network": "cnn1"}, (1, 4)),
        ("density", {"samples": 64}, (20, 80)),
        ("density", {"samples": 8, "data": "digits", "examples": 320, "batch": 64}, (2, 6)),
        ("relational", {}, (1, 2)),
    )
    for epochs in lengths
)
REPEATED = 3  # repetitions of a private training, after one that calibrates the noise
# Sections that replace only the units and tasks whose names contain one of these strings.
OWN: Mapping[str, tuple[str, ...]] = {
    "private": ("privately ", " on 8x8x1", "unique_feature.private_rank"),
    "membership": ("membership.",),
    "text": ("text.", "tiny-gpt"),
}
AROUND = ("around, local", "around, none", "around, pool")  # used instead of a task: starting and ending an executor
AUTOENCODERS = ("conv-vae", "conv-vae-one-scale")


@dataclass(frozen=True)
class Timed:
    """A job's task, number of input tables, units of work, and processor seconds."""

    task: str
    tables: int
    amounts: Mapping[str, float] | None
    seconds: float


def run_plan(plan: Plan) -> Iterator[Timed]:
    """Run every job in a plan in order. Tables stay in memory."""
    tables: dict[str, pa.Table] = {}
    for key, job in plan.jobs.items():
        inputs = [tables[below] for below in plan.inputs[key]]
        tables[key], seconds = timed(job, inputs)
        mark = marks(job.function)
        if mark.work is None:
            amounts = None
        else:
            amounts = trained(job, tables[key])
        yield Timed(mark.name, len(inputs), amounts, seconds)


def timed(job: Job, inputs: list[pa.Table]) -> tuple[pa.Table, float]:
    start = time.process_time()
    table = job.function(job.config, inputs)
    return table, time.process_time() - start


def trained(job: Job, table: pa.Table) -> Mapping[str, float]:
    """Return the units of a job. A training that stopped early counts only the epochs it completed."""
    count = marks(job.function).work
    assert count is not None
    work = count(job.config)
    if work.least == work.most or "epochs" not in table.schema.names:
        return work.amounts
    training = replace(getattr(job.config, "training", job.config), patience=0)
    every = of_classifier(training)
    done = table["epochs"][0].as_py() / training.epochs
    return {**{unit: amount * done for unit, amount in every.trained.items()}, **every.besides}


def presets(name: str) -> Iterator[Timed]:
    for audit, preset, settings in PRESETS[name]:
        for scale in ("tiny", "full"):  # the first imports the modules that all jobs use
            spec = Spec(audit, preset, {**settings, "scale": scale})
            for cell in pin_cells(resolve_cells(spec), {}):
                rows = list(run_plan(plan_of(cell)))
                if scale == "full":
                    yield from rows


def networks() -> Iterator[Timed]:
    for (network, shape), examples in NETWORKS.items():
        data = pin(Dataset(f"digits#{shape}"))
        config = Training(data, Network(network), examples=examples, epochs=1, patience=0)
        job = Job(train, config)
        timed(job, [])
        _, seconds = timed(job, [])
        yield Timed(
            "classifier.train", 0, of_classifier(config).trained, seconds
        )  # one epoch, so it contains no other units


def autoencoders() -> Iterator[Timed]:
    from tasks.models.catalog import DensityModel
    from tasks.training.density import fit, work
    from tasks.training.density_config import DensityTraining

    data = pin(Dataset("photos#32x32#rgb"))
    for name in AUTOENCODERS:
        for epochs, samples in ((1, 8), (2, 2)):
            config = DensityTraining(
                data, DensityModel(name), examples=96, epochs=epochs, recorded=(epochs,), samples=samples
            )
            timed(Job(fit, config), [])
            _, seconds = timed(Job(fit, config), [])
            yield Timed("generator.fit", 0, work(config).amounts, seconds)


def private() -> Iterator[Timed]:
    """Time each kind of training in PRIVATE, with and without privacy, and the tasks of private audits.

    Yields the fastest repetition of each training.
    """
    for audit, preset, settings in PRIVATE:
        for job in trainings(Spec(audit, preset, settings)):
            seconds = min(timed(job, [])[1] for _ in range(REPEATED + 1))
            yield Timed(marks(job.function).name, 0, trained(job, pa.table({})), seconds)
    *_, cell = pin_cells(resolve_cells(Spec("unique_feature", "ladder", {"scale": "tiny"})), {})
    yield from (row for row in run_plan(plan_of(cell)) if row.amounts is None)


def trainings(spec: Spec) -> list[Job]:
    """Return one training of each kind without input tables, with and without privacy."""
    jobs_by_units: dict[frozenset[str], Job] = {}
    for cell in pin_cells(resolve_cells(spec), {}):
        for job in plan_of(cell).jobs.values():
            work = marks(job.function).work
            if work is not None and marks(job.function).trains and not job.inputs:
                jobs_by_units.setdefault(frozenset(work(job.config).amounts), job)
    return list(jobs_by_units.values())


def replaces(section: str, name: str) -> bool:
    """Whether a section's timing of this unit or task replaces the one in the file."""
    return section not in OWN or any(part in name for part in OWN[section])


def every(name: str) -> bool:
    return True


def rates(rows: list[Timed]) -> dict[str, float]:
    """Fit the seconds per unit."""
    from scipy.optimize import nnls

    with_units = [row for row in rows if row.amounts]
    names = sorted({unit for row in with_units for unit in row.amounts or {}})
    seconds_by_unit: dict[str, float] = {}
    matrix = []
    for row in with_units:
        matrix.append([(row.amounts or {}).get(name, 0.0) / row.seconds for name in names])
    if matrix:
        seconds_by_unit = dict(zip(names, map(float, nnls(np.array(matrix), np.ones(len(matrix)))[0]), strict=True))
    return seconds_by_unit


def points(rows: list[Timed]) -> dict[str, dict[int, float]]:
    """Return the mean seconds per job for each task without units, by the number of tables that it reads."""
    seconds: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.amounts is None and row.task not in AROUND:
            seconds[row.task][row.tables].append(row.seconds)
    means = {}
    for task, by_count in seconds.items():
        means[task] = {count: float(np.mean(values)) for count, values in by_count.items()}
    return means


def executors() -> Iterator[Timed]:
    """Time starting and ending Ray, or no executor, around a small run.

    This is wall time, so it is valid only on an idle machine.
    """
    import tempfile

    import orchestrator

    for group in AROUND:
        with tempfile.TemporaryDirectory() as folder:
            address = group.partition(", ")[2]
            run = orchestrator.run(
                "relational", preset="figure1", scale="tiny", store=folder, address=address, mlflow="off", report=False
            )
            timings = json.loads((Path(folder) / "runs" / run.run / "timings.json").read_text())
        yield Timed(group, 0, None, timings[group][0])


SECTIONS: Mapping[str, Callable[[], Iterator[Timed]]] = {
    **{name: (lambda name=name: presets(name)) for name in PRESETS},  # type: ignore[misc]
    "networks": networks,
    "autoencoders": autoencoders,
    "private": private,
    "executors": executors,
}


def merge_timings(before: Any, rows: list[Timed], here: Speed, keep: Callable[[str], bool] = every) -> dict[str, Any]:
    """Merge new timings into the file's content, converted to the file's speed.

    Only units and tasks for which `keep` returns true are merged.
    """
    stored_timings = before or {"speed": asdict(here), "units": {}, "tasks": {}, "around": {}}
    slower, _ = here.against(Speed(**stored_timings["speed"]))
    around = {row.task: round(row.seconds, 1) for row in rows if row.task in AROUND}
    unit_seconds = {unit: rate for unit, rate in rates(rows).items() if keep(unit)}
    units = stored_timings["units"] | {unit: rate / slower for unit, rate in unit_seconds.items()}
    tasks = {task: dict(by_count) for task, by_count in stored_timings["tasks"].items()}
    for task, by_count in points(rows).items():
        if keep(task):
            tasks[task] = tasks.get(task, {}) | {count: seconds / slower for count, seconds in by_count.items()}
    rounded_tasks = {}
    for task in sorted(tasks):
        rounded_tasks[task] = [[count, float(f"{tasks[task][count]:.4g}")] for count in sorted(tasks[task])]
    return {
        "speed": stored_timings["speed"],
        "units": {unit: float(f"{units[unit]:.4g}") for unit in sorted(units)},
        "tasks": rounded_tasks,
        "around": stored_timings["around"] | around,
    }


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", default=list(SECTIONS), choices=list(SECTIONS), metavar="NAME")
    parser.add_argument("--out", type=Path, default=FILE)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in arguments.only:
        speeds = [measure_speed()]
        rows = list(SECTIONS[name]())
        speeds.append(measure_speed())
        here = Speed(*(float(np.mean([getattr(speed, kind) for speed in speeds])) for kind in KINDS))
        before = None
        if arguments.out.exists():
            before = json.loads(arguments.out.read_text())
        if before:
            for task, pairs in before["tasks"].items():
                before["tasks"][task] = {int(count): seconds for count, seconds in pairs}
        content = merge_timings(before, rows, here, partial(replaces, name))
        write_whole(json.dumps(content, indent=1) + "\n", arguments.out)
        print(f"{name}: {len(rows)} jobs, {sum(row.seconds for row in rows):.1f} s", flush=True)


if __name__ == "__main__":
    main()
