"""How far does a training get when it is broken into links?

Two kinds of trainings: density models of digits, and a count that takes no time. The count writes one line to a log
outside the store for every epoch that is really trained, so that tests can count the epochs.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from tasks.contract import schemas
from tasks.contract.audit import Audit
from tasks.contract.job import Inputs, Job, task
from tasks.datasets.dataset import Dataset
from tasks.training.density import fit
from tasks.training.density_config import DensityTraining
from tasks.worker import checkpoints, compute_context

MODULUS = 2**61 - 1


@dataclass(frozen=True)
class Counting:
    """One count. `trouble` occurs before epoch `at` of the count `number` while the file `mended` does not exist."""

    number: int = 0
    epochs: int = 1
    seconds: float = 0.0  # an epoch
    trouble: str = ""
    at: int = -1
    folder: str = ""


@dataclass(frozen=True)
class Config:
    """`models` trainings of `epochs` epochs in links of `link` (0: unbroken). Trouble occurs in the first one."""

    models: int = 2
    epochs: int = 4
    link: int = 1
    density: bool = False
    data: Dataset = Dataset("digits")
    examples: int = 60
    seconds: float = 0.0
    trouble: str = ""
    at: int = -1
    folder: str = ""


@dataclass(frozen=True)
class Nothing:
    pass


def counted(config: Counting, index: int) -> pa.Table:
    state: dict[str, Any] = {"number": config.number, "values": [config.number]}
    for earlier_state in checkpoints.earlier_checkpoints(index):
        loaded = json.loads(earlier_state)
        if loaded["number"] == config.number and len(loaded["values"]) <= config.epochs:
            state = loaded
            break
    values = state["values"]
    compute_context.note(continued_from=len(values) - 1)
    for epoch in range(len(values), config.epochs + 1):
        if config.number == 0 and epoch == config.at and not (Path(config.folder) / "mended").exists():
            if config.trouble == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError(f"epoch {epoch} cannot be had")
        if config.folder:
            with open(Path(config.folder) / "epochs.log", "a") as log:
                log.write(f"{config.number}:{epoch}\n")
        time.sleep(config.seconds)
        values.append((values[-1] * 6364136223846793005 + epoch) % MODULUS)
    if checkpoints.is_state_requested(index):
        checkpoints.leave(index, json.dumps(state).encode())
    return pa.table({"epoch": pa.array(range(1, config.epochs + 1)), "value": pa.array(values[1:])})


def count_many(configs: Sequence[Counting], inputs: Sequence[Inputs]) -> Iterator[tuple[int, pa.Table | Exception]]:
    for index, config in enumerate(configs):
        try:
            yield index, counted(config, index)
        except ValueError as error:
            yield index, error


@task(version=1, many=count_many, batch_key=lambda config: config.epochs, trains=1)
def count(config: Counting, inputs: Inputs) -> pa.Table:
    return counted(config, 0)


@task(version=1, gathers=True)
def lengths(config: Nothing, inputs: Inputs) -> pa.Table:
    row = dict.fromkeys(schemas.SUMMARY.names) | {
        "metric": "epochs",
        "setting": "{}",
        "estimate": float(sum(len(table) for table in inputs)),
        "n": len(inputs),
        "unit": "link",
    }
    return pa.Table.from_pylist([row], schema=schemas.SUMMARY)


def chain(config: Config, number: int) -> tuple[Job, ...]:
    links: list[Job] = []
    length = config.link or config.epochs
    for end in range(length, config.epochs + 1, length):
        before = links[-1] if links else None
        if config.density:
            recorded_epochs = tuple(range(end - length + 1, end + 1))
            fitting = DensityTraining(config.data, seed=number, examples=config.examples, batch=16, samples=4)
            links.append(Job(fit, replace(fitting, epochs=end, recorded=recorded_epochs), after=before))
        else:
            trouble = (config.trouble, config.at) if number == 0 else ("", -1)
            counting = Counting(number, end, config.seconds, *trouble, config.folder)
            links.append(Job(count, counting, after=before))
    return tuple(links)


def plan(config: Config) -> dict[str, Job | tuple[Job, ...]]:
    chains = [chain(config, number) for number in range(config.models)]
    all_links = tuple(link for links in chains for link in links)
    return {
        "summary": Job(lengths, Nothing(), all_links),
        "links": all_links,
        "ends": tuple(links[-1] for links in chains),
    }


def tiny(config: Config) -> Config:
    return replace(config, models=1, epochs=2, seconds=0.0)


AUDIT = Audit(Config, plan, {"few": Config()}, tiny)
