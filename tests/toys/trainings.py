"""How small does a loss get when trainings are interrupted?

An audit whose jobs use all services of their worker, as the program of a user does: they print, log metrics and
continue from their state. Each epoch writes one line to a log outside the store, so that tests count epochs.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from tasks.contract import schemas
from tasks.contract.audit import Audit
from tasks.contract.job import Inputs, Job, task
from tasks.worker.job_services import ProgramDied, RunStopped, current_services


@dataclass(frozen=True)
class Training:
    """One training. `trouble` occurs once, in the first attempt, before epoch 1.

    With `wait`, each attempt waits there for the file `go`.
    """

    seed: int = 0
    epochs: int = 3
    seconds: float = 0.0  # an epoch
    trouble: str = ""
    folder: str = ""


@dataclass(frozen=True)
class Config:
    """The number of trainings, the epochs of each, and their behaviour."""

    trainings: int = 2
    epochs: int = 3
    seconds: float = 0.0
    trouble: str = ""
    folder: str = ""


@dataclass(frozen=True)
class Nothing:
    pass


def read_epoch(state: Path) -> int:
    """Return the epoch from which to continue."""
    path = state / "epoch"
    return int(path.read_text()) if path.exists() else 0


@task(version=1, trains=1)
def train(config: Training, inputs: Inputs) -> pa.Table:
    services = current_services()
    assert services.output is not None
    assert services.state is not None
    for epoch in range(read_epoch(services.state), config.epochs):
        if epoch == 1:
            meet_trouble(config)
        if config.folder:
            with open(Path(config.folder) / "epochs.log", "a") as log:
                log.write(f"{config.seed}:{epoch}\n")
        await_end(config.seconds)
        sys.stdout.write(f"epoch {epoch} of training {config.seed}\n")
        services.log({"loss": 1 / (epoch + 1), "accuracy": 1 - 1 / (epoch + 2)}, epoch)
        (services.state / "draft").write_text(str(epoch + 1))
        (services.state / "draft").replace(services.state / "epoch")
        services.save_state()
    return pa.table({"loss": [1 / config.epochs]})


def await_end(seconds: float) -> None:
    """Wait as for a program that takes this long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if current_services().is_stopping:
            raise RunStopped
        time.sleep(min(0.05, seconds))


def meet_trouble(config: Training) -> None:
    folder = Path(config.folder)
    mark = folder / f"{config.seed}.met"
    if not config.trouble or mark.exists():
        return
    if config.trouble == "wait":
        while not (folder / "go").exists():
            time.sleep(0.01)
        return
    mark.touch()
    if config.trouble == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if config.trouble == "segfault":
        raise ProgramDied("the program was ended by SIGSEGV")
    raise ValueError("the loss is too large")


@task(version=1, gathers=True)
def mean_loss(config: Nothing, inputs: Inputs) -> pa.Table:
    losses = [table["loss"][0].as_py() for table in inputs]
    row = dict.fromkeys(schemas.SUMMARY.names) | {
        "metric": "loss",
        "setting": "{}",
        "estimate": sum(losses) / len(losses),
        "n": len(losses),
        "unit": "training",
    }
    return pa.Table.from_pylist([row], schema=schemas.SUMMARY)


def plan(config: Config) -> dict[str, Job | tuple[Job, ...]]:
    jobs = []
    for seed in range(config.trainings):
        jobs.append(Job(train, Training(seed, config.epochs, config.seconds, config.trouble, config.folder)))
    return {"summary": Job(mean_loss, Nothing(), tuple(jobs)), "trainings": tuple(jobs)}


def tiny(config: Config) -> Config:
    return replace(config, trainings=2, seconds=0.0)


AUDIT = Audit(Config, plan, {"few": Config()}, tiny)
