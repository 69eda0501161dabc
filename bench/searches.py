"""Overhead of a search per trial, compared with Ray Tune in one run on one cluster.

python -m bench.searches [TRIALS]

The rows are: Tune at its defaults with a function that returns a number; Tune as a search uses it (no loggers, one
process for all trials, one trial at a time) with a trainable that returns a number; and a search whose trainings are
all stored, which only proposes, plans, verifies and reads. The last row is a search that trains models.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray import tune

from measurement.machine import machine_facts
from orchestrator.executors.connection import connect
from orchestrator.searches import searching, tuning
from orchestrator.searches.definition import Search, Settings, build_search
from orchestrator.spec.specification import Execution, Spec
from orchestrator.store import Store, open_store

FEW = 4  # trials in the shorter of two searches; taking the difference removes fixed costs


def nothing(_config: dict[str, Any]) -> dict[str, float]:
    return {"value": 1.0}


class Nothing(tune.Trainable):  # type: ignore[misc]  # Tune has no types here
    def setup(self, config: dict[str, Any]) -> None:
        pass

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        return True

    def step(self) -> dict[str, Any]:
        return {"value": 1.0, "done": True}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        return None


def bare(trials: int, folder: str) -> None:
    """Run Tune at its defaults."""
    run = tune.RunConfig(storage_path=folder, verbose=0)
    space = {"rate": tune.loguniform(1e-4, 1e-2)}
    how = tune.TuneConfig(num_samples=trials, max_concurrent_trials=1)
    tune.Tuner(nothing, param_space=space, tune_config=how, run_config=run).fit()


def lean(trials: int, folder: str) -> None:
    """Run Tune as a search uses it."""
    with tuning.variables(tuning.QUIET):
        run = tune.RunConfig(storage_path=folder, verbose=0)
        space = {"rate": tune.loguniform(1e-4, 1e-2)}
        how = tune.TuneConfig(num_samples=trials, max_concurrent_trials=1, reuse_actors=True)
        light = tune.with_resources(Nothing, tune.PlacementGroupFactory([tuning.TRIAL_RESOURCES]))
        tune.Tuner(light, param_space=space, tune_config=how, run_config=run).fit()


def build_bench_search(trials: int) -> Search:
    spec = Spec("unique_feature", "smoke", {"canaries": 1, "epochs": 1})
    return build_search(spec, Settings({"learning_rate": "log(1e-4..1e-2)"}, trials=trials))


def run_search(trials: int, store: Store) -> None:
    searching.run(build_bench_search(trials), store, Execution(mlflow="off", report=False))


def seconds_per_trial(run: Callable[[int], object], trials: int) -> float:
    """Return the seconds per trial.

    This is the time difference between a long and a short search, divided by the difference in trials.
    """
    seconds_by_count = []
    for count in (FEW, trials):
        start = time.perf_counter()
        run(count)
        seconds_by_count.append(time.perf_counter() - start)
    return (seconds_by_count[1] - seconds_by_count[0]) / (trials - FEW)


def main() -> None:
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 24
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder, connect("local"):
        store = open_store(Path(folder) / "store")
        run_search(FEW, store)  # excludes one-time imports
        start = time.perf_counter()
        run_search(trials, store)
        fresh = (time.perf_counter() - start) / (trials - FEW)
        rows = {
            "Ray Tune at its defaults, a function that does nothing": seconds_per_trial(
                lambda n: bare(n, folder), trials
            ),
            "Ray Tune as a search uses it, a trainable that does nothing": seconds_per_trial(
                lambda n: lean(n, folder), trials
            ),
            "a search whose trainings are stored": seconds_per_trial(lambda n: run_search(n, store), trials),
            "a search of trials with two trainings of one epoch each": fresh,
        }
    first = next(iter(rows.values()))
    for name, value in machine_facts(("ray",)).items():
        print(f"- {name}: {value}")
    print()
    print(f"| one trial of {trials} | seconds | relative to Tune at its defaults |")
    print("|---|---|---|")
    for name, seconds in rows.items():
        print(f"| {name} | {seconds:.2f} | {seconds / first:.2f}x |")


if __name__ == "__main__":
    main()
