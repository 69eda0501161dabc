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

# The first five of these digits stand there a second time in the place of the next five.
COPIED = Memorization(
    data=pin(Dataset("digits#duplicated5")),
    training=ModelTraining(epochs=1, evaluation_interval=0),
    estimator=KFold(3),
    examples=30,
    repetitions=2,
)
PAIRS = [(row, row + 5) for row in range(5)]


def fits(config: Memorization) -> list[DensityTraining]:
    planned = trainings(config)
    assert planned is not None
    return [job.config for job in planned.fits if isinstance(job, Job)]


def test_copies_are_trained_on_or_held_out_together() -> None:
    images = load(COPIED.data)
    for training in fits(COPIED):
        rows = set(member_of(training, images).rows.tolist())
        assert all((one in rows) == (other in rows) for one, other in PAIRS)


def test_copies_are_one_observation() -> None:
    planned = trainings(COPIED)
    assert planned is not None
    assert isinstance(planned.models, Folds)
    assert planned.models.rows.tolist() == [*range(5), *range(10, 30)]
    folds = planned.models.fold_of(planned.models.partitions[0])
    fit = fits(COPIED)
    log_p = np.arange(30.0)
    tables = [
        made_up.table(each.held_out, each.seed, {1: log_p}, 1)  # type: ignore[arg-type]
        for each in fit
    ]
    (block,) = LogDensities(planned.models, tables).blocks(1)
    assert block.held_out[:, 0].tolist() == folds[planned.models.rows].tolist()
    assert np.array_equal(block.log_p[:, 0, 0], log_p[planned.models.rows])


def test_without_a_row_its_copies_are_left_out_too() -> None:
    config = replace(COPIED, estimator=SingleRows(25))
    planned = trainings(config)
    assert planned is not None
    assert isinstance(planned.models, LeaveOneOut)
    assert planned.models.left_out == (*range(5), *range(10, 30))
    without = next(training for training in fits(config) if training.held_out == Row(2))
    assert not {2, 7} & set(member_of(without, load(COPIED.data)).rows.tolist())


@pytest.mark.parametrize("fields", [{"data": pin(Dataset("digits"))}, {"estimator": KFold(3, evaluation_split="test")}])
def test_keys_are_the_same_where_nothing_is_joined(fields: dict[str, object]) -> None:
    config = replace(COPIED, **fields)  # type: ignore[arg-type]
    assert not any(training.joins_copies for training in fits(config))
