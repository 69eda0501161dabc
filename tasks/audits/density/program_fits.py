"""One training by a user's program: it trains without the held-out rows and returns log p of every observation.

Its table is that of a density model with one epoch and without losses, so that all measures of log p read both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.contract.job import Inputs, Job, Work, task
from tasks.contract.ranges import AtLeast, Ranged
from tasks.contract.schemas import make_table
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.programs.config import Program, without_resources
from tasks.programs.row_training import name_work, train_on_rows
from tasks.training.density import FITTED, lists
from tasks.training.density_config import Fold, ReleasedFold, Row, examples, joined_copies, trained_on


@dataclass(frozen=True)
class ProgramFit(Ranged):
    """A training on the first `examples` training rows (0: all) except those `held_out`, which scores all of them."""

    program: Program
    data: Dataset
    held_out: Fold | ReleasedFold | Row | None = None
    seed: Annotated[int, AtLeast(0)] = 0
    examples: Annotated[int, AtLeast(0)] = 0
    joins_copies: bool = False
    """Whether exact copies are held out together."""


def fit_job(training: ProgramFit) -> Job:
    """Plan the training, with the resources that the program states."""
    program = training.program
    return Job(fit, replace(training, program=without_resources(program)), resources=program.resources)


def work(config: ProgramFit) -> Work:
    return name_work(config.program)


@task(version=1, name="density.program", trains=1, work=work)
def fit(config: ProgramFit, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - a training reads no tables
    """Train without the held-out rows and score all rows (FITTED, one epoch)."""
    images = load(config.data)
    count = examples(config, images)
    rows = trained_on(config, count, joined_copies(config, images))
    return fitted_table(config, train_on_rows(config.program, config.data, rows, np.arange(count), config.seed).score)


def fitted_table(config: ProgramFit, log_p: NDArray[np.float64]) -> pa.Table:
    """Return the table of a training with these log-likelihoods of all rows (FITTED, one epoch)."""
    fold = config.held_out if isinstance(config.held_out, Fold) else None
    privacy = config.program.privacy
    return make_table(
        FITTED,
        seed=config.seed,
        partition=fold and fold.partition,
        fold=fold and fold.number,
        row=config.held_out.row if isinstance(config.held_out, Row) else None,
        epoch=[1],
        train_loss=None,
        test_loss=None,
        epsilon=privacy and privacy.epsilon,
        log_p=lists([log_p.astype(np.float32)]),
        effective_samples=None,
        samples=None,
    )
