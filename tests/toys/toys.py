"""How far does a sum get when its parts are lost?

An audit offered by another package. Each part writes one line to a log outside the store when it is computed, so that
tests count computations instead of trusting reports. `trouble` controls the behaviour of a part.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.contract import schemas
from tasks.contract.audit import Audit, Handout, Stopping
from tasks.contract.job import Inputs, Job, task
from tasks.contract.resources import EXECUTION_ONLY, NO_RESOURCES, Resources
from tasks.datasets.dataset import Dataset
from tasks.numerics import betting
from tasks.worker import compute_context

FORGOTTEN = 600.0  # seconds after which a part that waits gives up


@dataclass(frozen=True)
class Part:
    """One part. `trouble` occurs in the part whose number is `at` while the file `mended` does not exist.

    With the trouble `choose`, each part records a way of computing that is chosen once for the run. The choosing part
    takes `seconds` and writes a line to `chosen.log`. With `choose, die`, its process dies after that. With `wait`,
    each part from number `at` writes a line to `began.log` when it begins, then waits for the file `go`: a test then
    knows which parts are in progress, even on a busy machine. With `speak`, a part prints a line and warns before it
    raises. With `program`, a part runs a training program.
    """

    number: int = 0
    seconds: float = 0.0
    trouble: str = ""
    at: int = -1
    folder: str = ""


@dataclass(frozen=True)
class Config:
    """The number of parts and their behaviour. With the trouble `nothing`, there is no row to sum up.

    `data` are the probes for a model. With `share`, every part reads one additional shared part. With a `level`, the
    numbers are ranks among 201 (0 counts as 1), and the run ends once bets on them reject at the level. `resources` are
    those of each part.
    """

    parts: int = 6
    first: int = 0
    seconds: float = 0.0
    trouble: str = ""
    at: int = -1
    folder: str = ""
    label: str = ""
    data: Dataset | None = None
    share: bool = False
    level: float = 0.0
    resources: Resources = field(default=NO_RESOURCES, metadata={EXECUTION_ONLY: True})

    def __post_init__(self) -> None:
        if self.parts < 1:
            raise ValueError(f"parts is {self.parts}; it must be at least 1")


@dataclass(frozen=True)
class Label:
    label: str = ""


def compute(config: Part) -> pa.Table:
    if config.folder:
        with open(Path(config.folder) / "computed.log", "a") as log:
            log.write(f"{config.number}\n")
    if config.trouble == "program":
        run_program()
    if config.trouble == "wait" and config.number >= config.at:
        await_go(config)
    if config.trouble.startswith("choose"):
        choose_way(config)
    elif config.seconds:
        time.sleep(config.seconds)
    if config.number == config.at and not (Path(config.folder) / "mended").exists():
        if config.trouble == "speak":
            sys.stdout.write(f"part {config.number} speaks\n")
            warnings.warn("this will not end well", stacklevel=1)
        if config.trouble in ("raise", "speak"):
            raise ValueError(f"part {config.number} cannot be had")
        if config.trouble == "die":
            os.kill(os.getpid(), signal.SIGKILL)
    return pa.table({"number": pa.array([config.number], pa.int64()), "pid": pa.array([os.getpid()], pa.int64())})


def run_program() -> None:
    """Run the command `true` as a training program without files."""
    from tasks.programs.code import ProgramCode
    from tasks.programs.config import CommandTraining
    from tasks.programs.training import TrainingRequest, perform_training

    no_scripts = Path(__file__).parent / "toys-1.0.dist-info"
    training = CommandTraining(command="true", code=ProgramCode("*.txt", str(no_scripts)))
    with perform_training(training, TrainingRequest(np.arange(3), np.arange(6), 0)):
        pass


def await_go(config: Part) -> None:
    folder = Path(config.folder)
    with open(folder / "began.log", "a") as log:
        log.write(f"{config.number}\n")
    forgotten = time.monotonic() + FORGOTTEN
    while not (folder / "go").exists():
        if time.monotonic() > forgotten:
            raise TimeoutError(f"nobody let part {config.number} go")
        time.sleep(0.01)


def choose_way(config: Part) -> None:
    """Compute in the requested or chosen way, and note it."""
    folder = Path(config.folder)

    def choose() -> dict[str, str]:
        with open(folder / "chosen.log", "a") as log:
            log.write(f"{config.number}\n")
        time.sleep(config.seconds)
        return {"way": "loop" if (folder / "slow").exists() else "stack", "by": f"part {config.number}"}

    context = compute_context.current_context()
    way = context.way
    by = "force"
    if way == "auto":
        settled = context.settle("toys on anything", choose)
        way = settled["way"]
        by = settled["by"]
    if config.trouble == "choose, die" and not (folder / "mended").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    compute_context.note(way=way, chosen_by=by, stack=1 + config.number, members=context.members, steps_per_second=1e6)


def compute_many(configs: Sequence[Part], inputs: Sequence[Inputs]) -> Iterator[tuple[int, pa.Table | Exception]]:
    if any(config.trouble == "together" for config in configs):
        raise RuntimeError("not all of these at once")
    for index, config in enumerate(configs):
        try:
            yield index, compute(config)
        except ValueError as error:
            yield index, error


@task(version=1, many=compute_many, batch_key=lambda config: config.folder)
def part(config: Part, inputs: Inputs) -> pa.Table:
    return compute(config)


@task(version=1, gathers=True)
def total(config: Label, inputs: Inputs) -> pa.Table:
    numbers = pa.concat_tables(inputs)["number"].to_pylist()
    row = dict.fromkeys(schemas.SUMMARY.names) | {
        "metric": "sum",
        "setting": "{}",
        "estimate": float(sum(numbers)),
        "n": len(numbers),
        "unit": "part",
    }
    return pa.Table.from_pylist([row], schema=schemas.SUMMARY)


@dataclass(frozen=True)
class Level:
    level: float = 0.0


@task(version=1)
def evidence(config: Level, inputs: Inputs) -> pa.Table:
    numbers = pa.concat_tables(inputs)["number"].to_pylist()
    ranks = [max(number, 1) for number in numbers]
    values = betting.evidence(ranks, [201] * len(ranks)).tolist()
    return pa.table({"evidence": values, "decided": [betting.is_decided(value, config.level) for value in values]})


@task(version=1)
def nothing(config: Label, inputs: Inputs) -> pa.Table:
    return schemas.SUMMARY.empty_table()


@task(version=1)
def pictures(config: Label, inputs: Inputs) -> pa.Table:
    return pa.table({"title": pa.array(["white"]), "picture": pa.array([bytes(4)], pa.binary())})


def plan(config: Config) -> dict[str, Job | tuple[Job, ...]]:
    if config.trouble == "nothing":
        label = Label(config.label)
        return {"summary": Job(nothing, label), "pictures": Job(pictures, label)}
    if config.share:
        shared = (Job(part, Part(config.first - 1, folder=config.folder)),)
    else:
        shared = ()
    parts = tuple(
        Job(
            part,
            Part(config.first + i, config.seconds, config.trouble, config.at, config.folder),
            shared,
            resources=config.resources,
        )
        for i in range(config.parts)
    )
    bets = {"evidence": Job(evidence, Level(config.level), parts)} if config.level else {}
    return {"summary": Job(total, Label(config.label), parts), "parts": parts, **bets}


def tiny(config: Config) -> Config:
    return replace(config, parts=2, seconds=0.0)


def probes(config: Config) -> Iterator[tuple[str, NDArray[np.uint8]]]:
    from tasks.datasets.catalog import load

    if config.data is None:
        raise ValueError("data is not given; the pictures are taken from it")
    clean = load(config.data).test_images[: config.parts]
    yield "clean", clean
    yield "inverted", 255 - clean


PRESETS = {
    "few": Config(),
    "many": Config(parts=300),
    "three": (Config(parts=2), Config(parts=3, first=1, label="b"), Config(parts=3, first=1, label="c")),
    "partly": (Config(parts=2), Config(parts=4, data=Dataset("folder:late")), Config(parts=3, first=1)),
    "absent": (Config(data=Dataset("mnist")), Config(parts=2, data=Dataset("mnist"))),
}

AUDIT = Audit(
    Config, plan, PRESETS, tiny, handout=Handout(probes), stopping=Stopping("level", pairs="parts", table="evidence")
)
