"""Python functions that train one model: in a module, pinned by its source, or from a notebook, pickled by cloudpickle.

    def train(job: engram.TrainingJob) -> numpy.ndarray: ...

Written `package.module:train`, or `pickle:FILE` for a function that `engram.membership` received as an object. Planning
imports no code of the user.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tasks.contract.pinnable import PinnedName
from tasks.models.custom import TRAINING, Factory, pin_factory, sources
from tasks.models.factory_import import import_factory, one_line
from tasks.user_code.acceptance import digest_in_keys
from tasks.worker import files
from tasks.worker.files import File

PICKLE = "pickle:"  # prefix of a pickled function
Rows = NDArray[np.int64]
Log = Callable[[Mapping[str, float], int], None]


@dataclass(frozen=True)
class TrainingFunction(PinnedName):
    """A function that trains one model, pinned once `digest` is set: that of its source, or of its pickle's bytes."""

    noun: ClassVar[str] = "training"

    @classmethod
    def parse(cls, text: str) -> TrainingFunction:
        name, _, digest = text.partition("@")
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
        if self.is_pickled:
            pinned = files.pin(self._file, known_digests)
            return TrainingFunction(f"{PICKLE}{pinned.path}", pinned.digest)
        return replace(self, digest=pin_factory(self._factory).digest)

    def named(self) -> TrainingFunction:
        """Return the function with only the last component of a path."""
        return TrainingFunction(f"{PICKLE}{Path(self._file.path).name}", self.digest) if self.is_pickled else self

    def paths(self) -> tuple[Path, ...]:
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
        content = files.read(self._file)
        try:
            function: Callable[[TrainingJob], Any] = pickle.loads(content)
        except Exception as error:  # modules that the user's function needs may be missing
            raise ValueError(f"the training function cannot be unpickled: {one_line(error)}") from error
        return function

    @property
    def _file(self) -> File:
        return File(self.name.removeprefix(PICKLE), self.digest)

    @property
    def _factory(self) -> Factory:
        return Factory.parse(str(self), TRAINING)


@dataclass(frozen=True, eq=False)
class TrainingJob:
    """One training, as a user's function receives it.

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

    def log(self, step: int | None = None, **metrics: float) -> None:
        """Show metrics of the training while it runs, such as `job.log(loss=0.21, step=3)`."""
        if self.send_metrics is not None:
            self.send_metrics({name: float(value) for name, value in metrics.items()}, -1 if step is None else step)
