"""What does a training remember, whose numbers are known by a formula?

Trainings that take no time. They write one line to a log outside the store for every epoch that is really trained, so
that tests can count the epochs. Memory grows with the rate and the epochs; skill also grows, but saturates.

    memory = 10 rate epochs + noise (doubled if the model is wide),  skill = 1 - exp(-20 rate epochs) / 2

The seed determines the noise, so new seeds give other numbers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import toys

from tasks.contract import schemas
from tasks.contract.audit import Audit
from tasks.contract.job import Inputs, Job, task
from tasks.contract.objectives import Objective, Objectives, row_reader
from tasks.contract.summaries import row
from tasks.numerics import seeds, statistics
from tasks.worker import checkpoints

MODELS = 4


@dataclass(frozen=True)
class Taught:
    """One training. With `wait`, it writes a line when it has begun and waits for the file `go`."""

    rate: float = 0.01
    wide: bool = False
    noise: float = 0.0
    seed: int = 0
    epochs: int = 1
    folder: str = ""
    wait: bool = False
    broken: bool = False


@dataclass(frozen=True)
class Config:
    """`rate` and `wide` are choices. A wide model remembers twice as much. With `broken`, its trainings fail."""

    rate: float = 0.01
    wide: bool = False
    noise: float = 0.0
    epochs: int = 8
    link: int = 0
    folder: str = ""
    wait: bool = False
    broken: bool = False
    extra: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rate <= 0:
            raise ValueError(f"rate is {self.rate}; it must be above 0")
        if self.wide and self.extra is not None:
            raise ValueError("extra is given and wide is on; a wide model has none")


@dataclass(frozen=True)
class Nothing:
    pass


def taught(config: Taught, index: int) -> pa.Table:
    if config.broken:
        raise ValueError(f"nothing is learnt at rate {config.rate}")
    if config.wait:
        toys.await_go(toys.Part(config.seed % 1000, folder=config.folder))
    done = max((json.loads(state)["epochs"] for state in checkpoints.earlier_checkpoints(index)), default=0)
    for epoch in range(done + 1, config.epochs + 1):
        if config.folder:
            with open(Path(config.folder) / "epochs.log", "a") as log:
                log.write(f"{config.rate}:{config.wide}:{config.seed}:{epoch}\n")
    if checkpoints.is_state_requested(index):
        checkpoints.leave(index, json.dumps({"epochs": config.epochs}).encode())
    draws = seeds.generator(config.seed, "noise").normal(size=2) * config.noise
    amount = config.rate * config.epochs
    memory = 10 * amount * (2 if config.wide else 1) + draws[0]
    skill = 1 - math.exp(-20 * amount) / 2 + draws[1] / 10
    about = {}
    for name in ("rate", "wide", "seed", "epochs"):
        about[name] = [getattr(config, name)]
    return pa.table({"memory": [memory], "skill": [skill], **about})


def teach_many(configs: Sequence[Taught], inputs: Sequence[Inputs]) -> Iterator[tuple[int, pa.Table | Exception]]:
    for index, config in enumerate(configs):
        try:
            yield index, taught(config, index)
        except ValueError as error:
            yield index, error


@task(version=1, many=teach_many, batch_key=lambda config: config.epochs, trains=1)
def teach(config: Taught, inputs: Inputs) -> pa.Table:
    return taught(config, 0)


@task(version=1, gathers=True)
def both(config: Nothing, inputs: Inputs) -> pa.Table:
    rows = []
    for name in ("memory", "skill"):
        values = [table[name][0].as_py() for table in inputs]
        rows.append(row(name, {}, statistics.mean(values), "training", 0.0))
    return pa.Table.from_pylist(rows, schemas.SUMMARY)


def plan(config: Config) -> dict[str, Job | tuple[Job, ...]]:
    ends = []
    for number in range(MODELS):
        seed = seeds.derive(config.seed, number)
        full_training = Taught(
            config.rate, config.wide, config.noise, seed, config.epochs, config.folder, config.wait, config.broken
        )
        length = config.link or config.epochs
        last_link: Job | None = None
        for end in range(length, config.epochs + 1, length):
            last_link = Job(teach, replace(full_training, epochs=end), after=last_link)
        assert last_link is not None
        ends.append(last_link)
    return {"summary": Job(both, Nothing(), tuple(ends)), "models": tuple(ends)}


def tiny(config: Config) -> Config:
    return replace(config, epochs=2)


AUDIT = Audit(
    Config,
    plan,
    {"few": Config(), "two": (Config(), Config(rate=0.02))},
    tiny,
    objectives=Objectives(
        Objective("memory", "nats", "lower", row_reader("memory", "{}")),
        Objective("skill", "share", "higher", row_reader("skill", "{}")),
        0.05,
    ),
)
