"""Which trainings a config plans, and which of them each table reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tasks.audits.density import plan
from tasks.audits.density.config import (
    Density,
    DuplicateMeasure,
    KernelDensity,
    KFold,
    Measured,
    Memorization,
    ModelTraining,
    NearDuplicates,
    NeighbourMeasure,
    OutlierMeasure,
    Question,
    ScoreMeasure,
    SingleRows,
)
from tasks.contract.job import Job, Roots
from tasks.training.density_config import DensityTraining, Row
from tasks.training.privacy_config import LinkedTraining
from tests.tasks.audits.density.made_up import DIGITS

FOLDS = Memorization(
    DIGITS, ModelTraining(epochs=4, evaluation_interval=2), estimator=KFold(3), repetitions=2, examples=30, samples=4
)
ALONE = replace(FOLDS, estimator=SingleRows(2))


def fits(planned: Roots) -> list[DensityTraining]:
    found = planned["fits"]
    assert isinstance(found, tuple)
    return [job.config for job in found]


def one(planned: Roots, name: str) -> Job:
    found = planned[name]
    assert isinstance(found, Job)
    return found


def test_of_folds_there_is_a_training_of_all_data_too_which_has_no_score() -> None:
    planned = plan(Density(FOLDS))
    assert len(fits(planned)) == 2 * 3 + 1
    assert len(one(planned, "scores").inputs) == 2 * 3
    (whole,) = [config for config in fits(planned) if config.held_out is None]
    assert (whole.recorded, whole.drawn) == ((), 360)


def test_by_leaving_one_out_as_many_are_trained_with_each_row_as_without_it() -> None:
    planned = plan(Density(ALONE))
    assert 2 + 2 * 2 == len(fits(planned)) == len(one(planned, "scores").inputs)
    rows = [config.held_out.row for config in fits(planned) if isinstance(config.held_out, Row)]
    assert [rows.count(row) for row in sorted(set(rows))] == [2, 2]
    assert all(config.drawn == 0 for config in fits(planned))


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        (ScoreMeasure(), set()),
        (OutlierMeasure(), {"outliers"}),
        (NeighbourMeasure(), {"neighbours", "ratios"}),
        (DuplicateMeasure(), {"duplicates"}),
    ],
)
def test_what_is_looked_at_beside_the_scores_comes_with_them(measure: Measured, expected: set[str]) -> None:
    scored = {"scores", "learning", "distribution", "losses", "fits", "summary"}
    assert scored | expected == set(plan(Density(replace(FOLDS, measures=(measure,)))))


@pytest.mark.parametrize(
    ("question", "expected"),
    [(KernelDensity(), {"kernel", "points"}), (NearDuplicates(DIGITS, 30), {"duplicates"})],
)
def test_what_needs_no_training_plans_none(question: Question, expected: set[str]) -> None:
    assert expected | {"summary"} == set(plan(Density(question)))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"examples": 1438}, "examples is 1438; it must be at most 1437, the number of training images"),
        ({"estimator": KFold(31)}, "folds is 31; it must be at most 30, the number of observations"),
        ({"estimator": KFold(361, evaluation_split="test"), "examples": 0}, "folds is 361; it must be at most 360"),
        ({"estimator": SingleRows(31)}, "held_out_rows is 31; it must be at most 30, the number of observations"),
    ],
    ids=str,
)
def test_more_than_the_data_have_is_refused(changed: Mapping[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan(Density(replace(FOLDS, **changed)))  # type: ignore[arg-type]


def test_links_end_at_every_so_many_epochs_and_are_asked_at_their_own() -> None:
    training = ModelTraining(epochs=5, evaluation_interval=2)
    linked = plan(Density(replace(FOLDS, training=replace(training, privacy=LinkedTraining(2)))))
    found = one(linked, "scores").inputs[:3]
    assert [(job.config.epochs, job.config.recorded) for job in found] == [(2, (2,)), (4, (4,)), (5, (5,))]
    assert [None, found[0], found[1]] == [job.after for job in found]
    unbroken = one(plan(Density(replace(FOLDS, training=training))), "scores").inputs[0].config
    assert unbroken == replace(found[-1].config, recorded=(2, 4, 5))
