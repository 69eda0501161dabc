"""Overhead per job: ms per no-op job, compared with bare Ray and Ray Tune in one run.

    python -m bench.orchestration [--jobs 1000] [--rounds 5] [--tiny] [--out bench/results/NAME.md]

All rivals run the same number of jobs on the same cluster, taking turns in every round. The table shows medians over
rounds. A rival is a function `(jobs, folder) -> None` that returns when all its results are stored. The second table
compares jobs that each start the process `true`. The third shows the cost of plans with 10,000 and 100,000 jobs, each
measured in a separate process.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import site
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from measurement.files import write_whole
from orchestrator.executors.calls import Call, Done, Item
from orchestrator.executors.connection import connect
from orchestrator.executors.ray import RayExecutor
from orchestrator.inspection import explain
from orchestrator.planning.plan import Plan
from orchestrator.runs.lifecycle import start
from orchestrator.spec.resolve import Cell
from orchestrator.spec.specification import Execution
from orchestrator.store import open_store
from tasks.contract.job import Inputs, task
from tasks.contract.resources import Resources

ROOT = Path(__file__).resolve().parents[1]
TOYS = ROOT / "tests" / "toys"  # an audit with no-op jobs in another package
WINDOW = 256  # pending calls in bare Ray
WARMING = 8  # warm-up jobs
Rival = Callable[[int, Path], None]


@dataclass(frozen=True)
class Nothing:
    number: int


@task(version=1)
def nothing(config: Nothing, _inputs: Inputs) -> pa.Table:
    return pa.table({"number": [config.number]})


def fetch_windowed(submit: Callable[[int], Any], jobs: int) -> None:
    """Run bare Ray as in its documentation: a bounded number of pending tasks, and every result fetched."""
    import ray

    pending: list[Any] = []
    for number in range(jobs):
        if len(pending) >= WINDOW:
            ready, pending = ray.wait(pending)
            ray.get(ready)
        pending.append(submit(number))
    ray.get(pending)


def bare_ray(jobs: int, _folder: Path) -> None:
    """Run tasks that return their number, without storing results."""
    import ray

    fetch_windowed(ray.remote(lambda number: number).remote, jobs)


def bare_ray_with_files(jobs: int, folder: Path) -> None:
    """Run tasks that each write one Arrow file durably: a temporary file, synced and renamed."""
    import ray

    def write(number: int) -> int:
        import pyarrow as pa

        path = folder / f"{number}.arrow"
        temporary_path = path.with_suffix(".tmp")
        table = pa.table({"number": [number]})
        with open(temporary_path, "wb") as file:
            with pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary_path, path)
        directory = os.open(folder, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)
        return number

    fetch_windowed(ray.remote(write).remote, jobs)
    assert len(list(folder.glob("*.arrow"))) == jobs


def one_job_per_call(jobs: int, folder: Path) -> None:
    """Run Engram's executor and store without plan and schedule, with one job per call."""
    from bench.orchestration import Nothing  # not __main__'s, because workers must be able to import it

    store = open_store(folder / "store")
    executor = RayExecutor(store.location)
    submitted = finished = 0
    while finished < jobs:
        while submitted < jobs and submitted - finished < executor.window:
            item = Item(f"{submitted:064x}", "bench.orchestration:nothing", Nothing(submitted))
            executor.submit(Call(submitted, "bench.nothing", (item,)))
            submitted += 1
        for finished_call in executor.wait(1.0):
            finished += 1
            assert all(isinstance(outcome, Done) for outcome in finished_call.outcomes), finished_call.outcomes
    executor.close()
    assert len(store.keys()) == jobs


def engram_run(jobs: int, folder: Path, **settings: Any) -> None:
    """Run all of `engram run`: plan, lease, schedule, event log, Parquet parts, and verification of every result."""
    import toys

    report = start(
        [Cell("toys", toys.Config(parts=jobs, **settings))],
        open_store(str(folder / "store")),
        Execution(mlflow="off", report=False),
    )
    assert report.jobs["stored"] == jobs + 1, report


def processes_in_bare_ray(jobs: int, _folder: Path) -> None:
    """Run tasks that each start a process, without storing results."""
    import ray

    def start_process(number: int) -> int:
        subprocess.run(["true"], check=True)
        return number

    fetch_windowed(ray.remote(start_process).remote, jobs)


def processes_in_engram_run(jobs: int, folder: Path) -> None:
    """Run all of `engram run` with jobs whose training program is the command `true`."""
    engram_run(jobs, folder, trouble="program", resources=Resources(cpus=1))


def ray_tune(jobs: int, folder: Path) -> None:
    """Run Ray Tune at its cheapest settings: reused actors, no loggers, no output, one result per trial."""
    os.environ |= {"TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1", "RAY_AIR_NEW_OUTPUT": "0"}
    from ray import tune

    tuner = tune.Tuner(
        lambda config: {"number": config["number"]},
        param_space={"number": tune.grid_search(list(range(jobs)))},
        tune_config=tune.TuneConfig(reuse_actors=True),
        run_config=tune.RunConfig(storage_path=str(folder), verbose=0),
    )
    assert len(tuner.fit()) == jobs


RIVALS: Mapping[str, Rival] = {
    "bare Ray tasks, window of 256, nothing kept": bare_ray,
    "bare Ray + one atomic, synced Arrow file": bare_ray_with_files,
    "our executor and store, one job per call": one_job_per_call,
    "engram run, everything": engram_run,
    "Ray Tune, cheapest settings": ray_tune,
}


PROCESS_RIVALS: Mapping[str, Rival] = {
    "bare Ray tasks, window of 256, nothing kept": processes_in_bare_ray,
    "engram run, everything": processes_in_engram_run,
}


def in_turn(rivals: Mapping[str, Rival], jobs: int, rounds: int) -> dict[str, list[float]]:
    """Return each rival's milliseconds per job in each round, after a few uncounted jobs that start the workers."""
    milliseconds: dict[str, list[float]] = {name: [] for name in rivals}
    for _ in range(rounds):
        for name, rival in rivals.items():
            seconds(rival, WARMING)
            milliseconds[name].append(1e3 * seconds(rival, jobs) / jobs)
    return milliseconds


def seconds(rival: Rival, jobs: int) -> float:
    folder = Path(tempfile.mkdtemp(prefix="engram-bench-"))
    started = time.perf_counter()
    try:
        rival(jobs, folder)
        return time.perf_counter() - started
    finally:
        shutil.rmtree(folder)


def add_toys() -> None:
    """Make the `toys` audit importable in this process and its subprocesses."""
    site.addsitedir(str(TOYS))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(TOYS), os.environ.get("PYTHONPATH", "")])


def setting(jobs: int, rounds: int, cpus: int) -> dict[str, str]:
    from measurement.machine import machine_facts  # imports torch, which would count towards the driver's memory

    return {
        "jobs": f"{jobs} in each of {rounds} rounds, on {cpus} CPUs",
        "system": platform.platform(),
        **machine_facts(("ray", "pyarrow")),
    }


def times_table(job: str, base_name: str, base_index: int, milliseconds: Mapping[str, list[float]]) -> str:
    """Render the times of one kind of job. Ratios are relative to the rival with this index."""
    base = statistics.median(list(milliseconds.values())[base_index])
    lines = [f"| per {job} | ms (median) | least | most | against {base_name} |", "|---|---|---|---|---|"]
    for name, values in milliseconds.items():
        middle = statistics.median(values)
        lines.append(f"| {name} | {middle:.2f} | {min(values):.2f} | {max(values):.2f} | {middle / base:.2f}x |")
    return "\n".join(lines) + "\n"


def scale(jobs: int, folder: Path) -> dict[str, float]:
    """Measure a plan with this number of jobs: seconds to plan, find missing results, run and resume, and MB."""
    import resource

    import toys

    clock = time.perf_counter
    plan_start = clock()
    plan = Plan.from_roots(toys.plan(toys.Config(parts=jobs)))
    plan_end = clock()
    del plan
    store = open_store(str(folder / "store"))
    cell = Cell("toys", toys.Config(parts=jobs))
    run_start = clock()
    report = start([cell], store, Execution(mlflow="off", report=False))
    run_end = clock()
    assert report.exit_code == 0, report
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    plan = Plan.from_roots(toys.plan(toys.Config(parts=jobs)))
    seek_start = clock()
    assert plan.missing(store.keys()) == []
    seek_end = clock()
    command = [sys.executable, "-m", "orchestrator", "resume", report.run, "--store", store.location, "--json"]
    (total,) = (key for key in plan.jobs if plan.task(key) == "toys.total")
    explain_start = clock()
    assert len(explain.key(store, explain.resolve_key(store, total))["inputs"]) == jobs
    resume_start = clock()
    subprocess.run(command, check=True, capture_output=True)
    return {
        "plan, s": plan_end - plan_start,
        "find missing results, s": seek_end - seek_start,
        "run, ms per job": 1e3 * (run_end - run_start) / jobs,
        "explain a key with an input per job, s": resume_start - explain_start,
        "resume when finished, whole command, s": clock() - resume_start,
        "driver's peak memory, MB": memory,
    }


def scale_in_process(jobs: int) -> dict[str, float]:
    """Run `scale` in a separate process, which makes its peak memory measurable."""
    with tempfile.TemporaryDirectory(prefix="engram-bench-") as folder:
        script = "import sys, json; from pathlib import Path; from bench.orchestration import scale; "
        script += "print(json.dumps(scale(int(sys.argv[1]), Path(sys.argv[2]))))"
        done = subprocess.run([sys.executable, "-c", script, str(jobs), folder], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def scale_table(figures: Mapping[int, Mapping[str, float]]) -> str:
    names = list(next(iter(figures.values())))
    rows = []
    for name in names:
        cells = " | ".join(f"{column[name]:,.2f}" for column in figures.values())
        rows.append(f"| {name} | {cells} |")
    head = "| engram | " + " | ".join(f"{jobs:,} jobs" for jobs in figures) + " |"
    return "\n".join(["", head, "|---" * (1 + len(figures)) + "|", *rows]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpus", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--scale", type=int, nargs="*", default=[10_000, 100_000], metavar="JOBS")
    parser.add_argument("--tiny", action="store_true", help="few jobs, to test the code")
    parser.add_argument("--out", type=Path, help="write the result here: JSON if it ends in .json, else Markdown")
    options = parser.parse_args()
    if options.tiny:
        jobs = 20
        rounds = 1
    else:
        jobs = options.jobs
        rounds = options.rounds
    facts = setting(jobs, rounds, options.cpus)
    add_toys()
    with connect("local", options.cpus):
        milliseconds = in_turn(RIVALS, jobs, rounds)
        process_milliseconds = in_turn(PROCESS_RIVALS, jobs, rounds)
    scale_figures = {}
    for count in (100,) if options.tiny else options.scale:
        scale_figures[count] = scale_in_process(count)
    tables = [
        "".join(f"- {name}: {value}\n" for name, value in facts.items()),
        times_table("no-op job", "one atomic file", 1, milliseconds),  # the cheapest rival that stores results
        times_table("job that starts `true`", "bare Ray", 0, process_milliseconds),
    ]
    text = "\n".join(tables) + (scale_table(scale_figures) if scale_figures else "")
    print(text, end="")
    if options.out:
        if options.out.suffix == ".json":
            text = (
                json.dumps(
                    {
                        "setting": facts,
                        "ms_per_job": milliseconds,
                        "ms_per_process": process_milliseconds,
                        "scale": scale_figures,
                    },
                    indent=2,
                )
                + "\n"
            )
        write_whole(text, options.out)


if __name__ == "__main__":
    main()
