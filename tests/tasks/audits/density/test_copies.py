"""Exact copies are one observation of a density model, and are held out together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tasks.audits.density.config import KFold, Memorization, ModelTraining, SingleRows
from tasks.audits.density.log_densities import Folds, LeaveOneOut, LogDensities
from tasks.audits.density.trainings import trainings
from tasks.contract.job import Job
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.training.density import member_of
from tasks.training.density_config import DensityTraining, Row
from tests.tasks.audits.density import made_up

# The first five of these digits replace the next five.
COPIED = Memorization(
    data=pin(Dataset("digits#duplicated5")),
    training=ModelTraining(epochs=1, evaluation_interval=0),
    estimator=KFold(3),
    examples=30,
    repetitions=2,
)
PAIRS = [(row, row + 5) for row in range(5)]


def fits(config: Memorization) -> list[DensityTraining]:
    planned_trainings = trainings(config)
    assert planned_trainings is not None
    return [job.config for job in planned_trainings.fits if isinstance(job, Job)]


def test_copies_are_trained_on_or_held_out_together() -> None:
    images = load(COPIED.data)
    for training in fits(COPIED):
        rows = set(member_of(training, images).rows.tolist())
        assert all((first in rows) == (second in rows) for first, second in PAIRS)


def test_copies_are_one_observation() -> None:
    planned_trainings = trainings(COPIED)
    assert planned_trainings is not None
    assert isinstance(planned_trainings.models, Folds)
    assert planned_trainings.models.rows.tolist() == [*range(5), *range(10, 30)]
    folds = planned_trainings.models.fold_of(planned_trainings.models.partitions[0])
    fit = fits(COPIED)
    log_p = np.arange(30.0)
    tables = [
        made_up.table(training.held_out, training.seed, {1: log_p}, 1)  # type: ignore[arg-type]
        for training in fit
    ]
    (block,) = LogDensities(planned_trainings.models, tables).blocks(1)
    assert block.held_out[:, 0].tolist() == folds[planned_trainings.models.rows].tolist()
    assert np.array_equal(block.log_p[:, 0, 0], log_p[planned_trainings.models.rows])


def test_copies_of_left_out_row_are_left_out() -> None:
    config = replace(COPIED, estimator=SingleRows(25))
    planned_trainings = trainings(config)
    assert planned_trainings is not None
    assert isinstance(planned_trainings.models, LeaveOneOut)
    assert planned_trainings.models.left_out == (*range(5), *range(10, 30))
    training_without_row = next(training for training in fits(config) if training.held_out == Row(2))
    assert not {2, 7} & set(member_of(training_without_row, load(COPIED.data)).rows.tolist())


@pytest.mark.parametrize("fields", [{"data": pin(Dataset("digits"))}, {"estimator": KFold(3, evaluation_split="test")}])
def test_keys_do_not_change_without_copies(fields: dict[str, object]) -> None:
    config = replace(COPIED, **fields)  # type: ignore[arg-type]
    assert not any(training.joins_copies for training in fits(config))
