"""Python functions that train one model: in a module, pinned by its source, or from a notebook, pickled by cloudpickle.

    def train(job: engram.TrainingJob) -> numpy.ndarray: ...

Written `package.module:train`, or `pickle:FILE` for a function that `engram.membership` received as an object. Planning
imports no code of the user.
"""

from __future__ import annotations

import atexit
import os
import pickle
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tasks.contract.pinnable import DIGEST, PinnedName
from tasks.models.custom import TRAINING, Factory, pin_factory, sources
from tasks.models.factory_import import import_factory, one_line
from tasks.programs.code import STORED
from tasks.programs.command_line import PLACEHOLDERS
from tasks.user_code.acceptance import digest_in_keys
from tasks.worker import files
from tasks.worker.files import File
from tasks.worker.job_services import current_services

PICKLE = "pickle:"  # prefix of a pickled function
Rows = NDArray[np.int64]
Log = Callable[[Mapping[str, float], int], None]
REQUIRED = ("rows", "ask", "seed", "out", "state")  # placeholders of every job
ALONE = "engram-out"  # folder for the results of a program that runs without Engram
NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_./-]")


@dataclass(frozen=True)
class TrainingFunction(PinnedName):
    """A function that trains one model, pinned once `digest` is set: that of its source, or of its pickle's bytes."""

    noun: ClassVar[str] = "training"

    @classmethod
    def parse(cls, text: str) -> TrainingFunction:
        name, _, digest = text.rpartition("@")
        if not DIGEST.fullmatch(digest):  # a path may contain an @
            name, digest = text, ""
        if not name.startswith(PICKLE):
            Factory.parse(text, TRAINING)
        return cls(name, digest)

    def identity(self) -> str:
        if not self.digest:
            raise ValueError(f"training {self.name!r} has no digest yet; pin it before planning")
        if self.is_pickled:
            return f"{PICKLE}{self.digest}"
        return f"{self._factory.function}@{digest_in_keys(self.digest)}"

    def pin(self, known_digests: MutableMapping[str, str]) -> TrainingFunction:
        """Return the function with its digest. Raises ValueError if it is missing or differs from the pinned one."""
        if self._is_stored:
            return self
        if self.is_pickled:
            pinned = files.pin(self._file, known_digests)
            return TrainingFunction(f"{PICKLE}{pinned.path}", pinned.digest)
        return replace(self, digest=pin_factory(self._factory).digest)

    def named(self) -> TrainingFunction:
        """Return the function with only the last component of a path."""
        return TrainingFunction(f"{PICKLE}{Path(self._file.path).name}", self.digest) if self.is_pickled else self

    def paths(self) -> tuple[Path, ...]:
        if self._is_stored:
            return ()
        if self.is_pickled:
            return self._file.paths()
        return tuple(sources(self._factory).values())

    @property
    def is_pickled(self) -> bool:
        return self.name.startswith(PICKLE)

    def load(self) -> Callable[[TrainingJob], Any]:
        """Import or unpickle the function. Raises ValueError if this fails, or if its source has changed."""
        if not self.is_pickled:
            return import_factory(self._factory)
        if self._is_stored:
            content = current_services().read_file(self._file.path.removeprefix(STORED))
        else:
            content = files.read(self._file)
        try:
            function: Callable[[TrainingJob], Any] = pickle.loads(content)
        except Exception as error:  # modules that the user's function needs may be missing
            raise ValueError(f"the training function cannot be unpickled: {one_line(error)}") from error
        return function

    @property
    def _is_stored(self) -> bool:
        """Whether the pickle is a file of the run's store, in a bucket."""
        return self.name.startswith(f"{PICKLE}{STORED}")

    @property
    def _file(self) -> File:
        return File(self.name.removeprefix(PICKLE), self.digest)

    @property
    def _factory(self) -> Factory:
        return Factory.parse(str(self), TRAINING)


@dataclass(frozen=True, eq=False)
class TrainingJob:
    """One training: what to train on and where results go.

    A user's function receives it; a program that a command starts gets it from `TrainingJob.from_environment`.

    rows: Numbers of the rows to train on, ascending, from 0.
    ask: Numbers of the rows to score, in this order; usually all rows.
    seed: Seed of this training, below 2**32.
    out: Folder for results that the function does not return.
    state: Folder that survives if this job is interrupted: the next attempt finds the same files in it.
    data: Folder with the records to train on and to score, such as train.npz and ask.npz, if the audit changes records;
        otherwise None.
    gpus: Number of GPUs of this job.
    """

    rows: Rows
    ask: Rows
    seed: int
    out: Path
    state: Path
    data: Path | None = None
    gpus: int = 0
    send_metrics: Log | None = None

    @classmethod
    def from_environment(cls, default_rows: int | None = None) -> TrainingJob:
        """Return the job for which Engram started this program by `training.command`.

        A program that Engram did not start gets a job on all of `default_rows` rows with seed 0 and the results in the
        folder engram-out, so that it runs alone as well.

        Raises RuntimeError if Engram did not start the program and `default_rows` is not given.
        """
        values = {name: os.environ.get(variable, "") for name, (variable, _) in PLACEHOLDERS.items()}
        missing = [PLACEHOLDERS[name][0] for name in REQUIRED if not values[name]]
        if len(missing) == len(REQUIRED) and default_rows is not None:
            return _make_job_alone(default_rows)
        if missing:
            raise RuntimeError(
                f"{' and '.join(missing)} {'are' if len(missing) > 1 else 'is'} not set, so Engram did not start this "
                "program: start it by training.command, or pass default_rows=N to train on all N rows"
            )
        return cls(
            np.load(values["rows"]),
            np.load(values["ask"]),
            int(values["seed"]),
            Path(values["out"]),
            Path(values["state"]),
            Path(values["data"]) if values["data"] else None,
            int(values["gpus"] or 0),
            print_metrics,
        )

    def log(self, step: int | None = None, **metrics: float) -> None:
        """Show metrics of the training while it runs, such as `job.log(loss=0.21, step=3)`."""
        if self.send_metrics is not None:
            self.send_metrics({name: float(value) for name, value in metrics.items()}, -1 if step is None else step)

    def save_scores(self, scores: Any) -> None:
        """Write the scores of the rows in `ask`, as an array, tensor or list, to `out`.

        The file appears only when it is complete.
        """
        unfinished = self.out / f"unfinished-{os.getpid()}.npy"
        np.save(unfinished, to_numbers(scores))
        os.replace(unfinished, self.out / "scores.npy")


def _make_job_alone(total: int) -> TrainingJob:
    """Return a job on all rows. Its state folder is empty at the start and is removed when the program ends."""
    out = Path(ALONE)
    out.mkdir(exist_ok=True)
    state = Path(tempfile.mkdtemp(prefix="engram-state-"))
    atexit.register(shutil.rmtree, state, ignore_errors=True)
    rows = np.arange(total)
    return TrainingJob(rows, rows, 0, out, state, send_metrics=print_metrics)


def print_metrics(metrics: Mapping[str, float], step: int) -> None:
    """Print the line by which a command logs metrics. A negative step is left out."""
    words = [f"step={step}"] if step >= 0 else []
    for name, value in metrics.items():
        words.append(f"{NOT_IN_NAMES.sub('_', name)}={value!r}")
    print("engram:", *words, flush=True)  # noqa: T201 - the worker reads it


def to_numbers(values: Any) -> NDArray[np.float64]:
    """Return an array, tensor or list as numbers. Raises TypeError or ValueError for anything else."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().double()
    return np.asarray(values, np.float64)
