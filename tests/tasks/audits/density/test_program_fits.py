"""Density audits of a user's program, which returns a log-likelihood of each row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from orchestrator.spec.resolve import resolve_cells
from orchestrator.spec.specification import Spec
from tasks.audits.density.answer import certificate, verdict
from tasks.audits.density.config import (
    Density,
    DuplicateMeasure,
    KFold,
    Memorization,
    ModelTraining,
    NearDuplicates,
    NeighbourMeasure,
    OutlierMeasure,
    ScoreMeasure,
    SingleRows,
)
from tasks.audits.density.log_densities import LogDensities
from tasks.audits.density.presets import tiny
from tasks.audits.density.program_fits import ProgramFit, fit, fitted_table
from tasks.audits.density.reassignment import p_values
from tasks.audits.density.tail import adjust_p_values
from tasks.audits.density.trainings import trainings
from tasks.contract.job import marks
from tasks.contract.resources import NO_RESOURCES, Resources
from tasks.datasets.dataset import Dataset
from tasks.programs.config import CommandTraining, FunctionTraining, Program, StatedPrivacy
from tasks.programs.function import TrainingFunction, TrainingJob
from tasks.programs.process import ProgramFailed
from tasks.programs.training import SEEDS
from tasks.training.density_config import trained_on
from tests.support.calibration import bounds
from tests.support.plans import compute_roots, pinned, planned
from tests.tasks.audits import row_programs

ALL_MEASURES = (ScoreMeasure(), OutlierMeasure(), NeighbourMeasure(), DuplicateMeasure())
ROWS = 24
Array = NDArray[np.float64]


def program(name: str, **settings: Any) -> FunctionTraining:
    function = TrainingFunction.parse(f"{row_programs.__name__}:{name}")
    return FunctionTraining(function=function, returns="log_likelihood", **settings)


def audit(training: Program, **settings: Any) -> Memorization:
    defaults = {"data": Dataset(f"rows:{ROWS}"), "estimator": KFold(4), "repetitions": 5, "measures": ALL_MEASURES}
    return Memorization(training=training, **{**defaults, **settings})


def called_rows(train: Callable[[TrainingJob], Array], seed: int) -> list[int]:
    """The rows that an audit of this program calls memorised."""
    (config,) = pinned("density", [Density(audit(program("remember"), seed=seed))])
    plan = trainings(config.question)
    assert plan is not None
    tables = []
    for job in plan.fits:
        rows = trained_on(job.config, ROWS)
        request = TrainingJob(rows, np.arange(ROWS), job.config.seed % SEEDS, Path(), Path())
        tables.append(fitted_table(job.config, train(request)))
    (block,) = LogDensities(plan.models, tables).blocks(1)
    p = p_values(block.log_p, block.held_out, 1023, np.random.default_rng(seed), negligible=0.1)
    return np.flatnonzero(adjust_p_values(p, False) <= 0.05).tolist()


def test_program_is_selected_by_short_names() -> None:
    settings = {"training": f"{row_programs.__name__}:remember", "training.returns": "log_likelihood", "records": ROWS}
    (cell,) = resolve_cells(Spec("density", set=settings))
    assert cell.config.question.training == program("remember")
    assert cell.config.question.data == Dataset(f"rows:{ROWS}")


@pytest.fixture(scope="module")
def tables() -> dict[str, pa.Table]:
    """The tables of an audit whose program remembers one row."""
    (roots,) = planned("density", [Density(audit(program("remember")))])
    return compute_roots(roots)


def test_program_takes_the_place_of_density_models(tables: dict[str, pa.Table]) -> None:
    assert set(tables) == {"scores", "distribution", "fits", "summary"}  # those that need no images or samples
    table = tables["scores"]
    assert np.flatnonzero(table["p_adjusted"].to_numpy() <= 0.05).tolist() == [row_programs.REMEMBERED]
    assert table["m_matched"][row_programs.REMEMBERED].as_py() > 15
    assert tables["fits"].num_rows == 20
    assert tables["fits"]["train_loss"].null_count == 20


def test_program_that_ignores_rows_memorises_nothing() -> None:
    false_alarms = sum(bool(called_rows(row_programs.ignore_rows, seed)) for seed in range(60))
    assert false_alarms <= bounds(0.05, 60)[1]
    assert called_rows(row_programs.ignore_rows_and_seed, 0) == []
    assert called_rows(row_programs.remember, 0) == [row_programs.REMEMBERED]


def test_answer_about_numbered_rows_names_records(tables: dict[str, pa.Table]) -> None:
    config = Density(audit(program("remember")))
    result = verdict(config, tables["summary"])
    page = certificate(config, tables["summary"], result)
    assert result.answer == "memorised"
    assert "one of 24 records became more than" in result.sentence
    assert "mage" not in f"{result}{page}"
    assert "a record" in str(page)
    assert not any("privacy.epsilon" in step for step in page.steps)  # a setting of Engram's own training


def test_rows_can_be_left_out_one_by_one() -> None:
    config = audit(program("remember"), estimator=SingleRows(3), repetitions=4, measures=(ScoreMeasure(),))
    (roots,) = planned("density", [Density(config)])
    tables = compute_roots(roots)
    assert tables["fits"].num_rows == 4 + 3 * 4
    assert tables["scores"].num_rows == 3


def test_measures_of_images_need_a_data_set() -> None:
    (roots,) = planned("density", [Density(audit(program("remember"), data=Dataset("digits"), examples=40))])
    assert set(roots) == {"scores", "distribution", "outliers", "duplicates", "fits", "summary"}


def test_key_ignores_resources_and_order_of_audits() -> None:
    fits = []
    for resources in (NO_RESOURCES, Resources(gpus=2)):
        (config,) = pinned("density", [Density(audit(program("remember", resources=resources)))])
        plan = trainings(config.question)
        assert plan is not None
        fits.append(plan.fits)
    assert [job.config for job in fits[0]] == [job.config for job in fits[1]]
    assert {job.resources for job in fits[1]} == {Resources(gpus=2)}
    assert {marks(job.function).name for job in fits[0]} == {"density.program"}


def test_model_is_no_log_likelihood() -> None:
    training = ProgramFit(program("return_model"), Dataset("rows:4"))
    with pytest.raises(ProgramFailed, match="return one log-likelihood per requested record"):
        fit(training, ())


@pytest.mark.parametrize(
    ("training", "settings", "problem"),
    [
        (replace(program("remember"), returns="probabilities"), {}, "training.returns is probabilities; it must be"),
        (replace(program("remember"), returns="model"), {}, "it must be log_likelihood, since"),
        (CommandTraining(command="train {data}", returns="log_likelihood"), {}, r"\{data\}; this audit changes no"),
        (program("remember"), {"estimator": KFold(4, evaluation_split="test")}, "evaluation_split is test and"),
    ],
)
def test_unusable_program_is_refused(training: Program, settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        audit(training, **settings)


@pytest.mark.parametrize(
    ("question", "problem"),
    [
        (Memorization(Dataset("rows:40"), ModelTraining()), "has only row numbers, which a training program"),
        (NearDuplicates(Dataset("rows:40")), "near duplicates are found in images"),
        (audit(program("remember"), examples=99), "examples is 99; it must be at most 24"),
    ],
)
def test_unusable_records_are_refused(question: Memorization | NearDuplicates, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        planned("density", [Density(question)])


def test_tiny_run_keeps_the_program_and_its_data() -> None:
    config = audit(program("remember", privacy=StatedPrivacy(3.0)), data=Dataset("rows:9000"))
    question = tiny(Density(config)).question
    assert isinstance(question, Memorization)
    assert (question.training, question.data) == (config.training, config.data)
    assert (question.examples, question.repetitions, question.models) == (120, 2, 3)
    assert question.guarantee is not None
    assert question.guarantee.epsilon == 3.0
