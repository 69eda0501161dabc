"""The trainings that a config plans, and the trainings that each table reads."""

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


def fits(plan_roots: Roots) -> list[DensityTraining]:
    jobs = plan_roots["fits"]
    assert isinstance(jobs, tuple)
    return [job.config for job in jobs]


def job_of(plan_roots: Roots, name: str) -> Job:
    job = plan_roots[name]
    assert isinstance(job, Job)
    return job


def test_folds_plan_one_model_of_all_data() -> None:
    plan_roots = plan(Density(FOLDS))
    assert len(fits(plan_roots)) == 2 * 3 + 1
    assert len(job_of(plan_roots, "scores").inputs) == 2 * 3
    (config_of_all_data,) = [config for config in fits(plan_roots) if config.held_out is None]
    assert config_of_all_data.recorded == ()
    assert config_of_all_data.drawn == 360


def test_single_rows_plan_equal_numbers_with_and_without() -> None:
    plan_roots = plan(Density(ALONE))
    assert 2 + 2 * 2 == len(fits(plan_roots)) == len(job_of(plan_roots, "scores").inputs)
    rows = []
    for config in fits(plan_roots):
        if isinstance(config.held_out, Row):
            rows.append(config.held_out.row)
    assert [rows.count(row) for row in sorted(set(rows))] == [2, 2]
    assert all(config.drawn == 0 for config in fits(plan_roots))


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        (ScoreMeasure(), set()),
        (OutlierMeasure(), {"outliers"}),
        (NeighbourMeasure(), {"neighbours", "ratios"}),
        (DuplicateMeasure(), {"duplicates"}),
    ],
)
def test_measures_add_their_own_tables(measure: Measured, expected: set[str]) -> None:
    common_tables = {"scores", "learning", "distribution", "losses", "fits", "summary"}
    assert common_tables | expected == set(plan(Density(replace(FOLDS, measures=(measure,)))))


@pytest.mark.parametrize(
    ("question", "expected"),
    [(KernelDensity(), {"kernel", "points"}), (NearDuplicates(DIGITS, 30), {"duplicates"})],
)
def test_untrained_questions_plan_no_trainings(question: Question, expected: set[str]) -> None:
    assert expected | {"summary"} == set(plan(Density(question)))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"examples": 1438}, "examples is 1438; it must be at most 1437, the number of training images"),
        ({"estimator": KFold(31)}, "folds is 31; it must be at most 30, the number of observations"),
        ({"estimator": KFold(361, evaluation_split="test"), "examples": 0}, "folds is 361; it must be at most 360"),
        ({"estimator": SingleRows(31)}, "held_out_rows is 31; it must be at most 30, the number of observations"),
    ],
    ids=str,
)
def test_sizes_beyond_the_data_are_refused(fields: Mapping[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan(Density(replace(FOLDS, **fields)))  # type: ignore[arg-type]


def test_links_end_at_evaluation_epochs() -> None:
    training = ModelTraining(epochs=5, evaluation_interval=2)
    linked = plan(Density(replace(FOLDS, training=replace(training, privacy=LinkedTraining(2)))))
    jobs = job_of(linked, "scores").inputs[:3]
    assert [(job.config.epochs, job.config.recorded) for job in jobs] == [(2, (2,)), (4, (4,)), (5, (5,))]
    assert [job.after for job in jobs] == [None, jobs[0], jobs[1]]
    unbroken = job_of(plan(Density(replace(FOLDS, training=training))), "scores").inputs[0].config
    assert unbroken == replace(jobs[-1].config, recorded=(2, 4, 5))
