"""Forgetting audits of a user's program, which trains on rows of D_Q and D_C and returns class probabilities."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from orchestrator.errors import SpecError
from orchestrator.spec.resolve import resolve_cells
from orchestrator.spec.specification import Spec
from tasks.audits.forgetting.audited import Given, Trained
from tasks.audits.forgetting.config import Forgetting, Scores
from tasks.audits.forgetting.data_sets import load_data_sets
from tasks.audits.forgetting.presets import tiny
from tasks.audits.forgetting.query_set import ControlSet, NamedImages, QuerySet
from tasks.audits.forgetting.target import Target
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import Part
from tasks.external.model_file import ModelFile
from tasks.programs.config import CommandTraining, FunctionTraining, Program
from tasks.programs.function import TrainingFunction
from tests.support.plans import compute_roots, planned
from tests.tasks.audits import row_programs

ROWS = Dataset("rows:400")
PROGRAM = FunctionTraining(
    function=TrainingFunction.parse(f"{row_programs.__name__}:classify"), returns="probabilities"
)
CONTROL = ControlSet(partial=(0.5,), permutations=199)


def audit(training: Any = PROGRAM, data: Dataset = ROWS, **settings: Any) -> Forgetting:
    audited = settings.pop("audited", Trained((Target(calibration=1.0), Target(query=1.0, calibration=1.0)), None))
    question = Scores(audited, training, replicates=3)
    query = QuerySet(data, 0, 260, CONTROL)
    return Forgetting(**{"query": query, "calibration": Part(data, 260, 140), "question": question, **settings})


def test_number_of_records_sets_both_data_sets() -> None:
    settings = {"training": f"{row_programs.__name__}:classify", "training.returns": "probabilities", "records": "400"}
    (cell,) = resolve_cells(Spec("forgetting", preset="quickstart", set=settings))
    assert cell.config.question.training == PROGRAM
    assert cell.config.query.data == cell.config.calibration.data == ROWS
    with pytest.raises(SpecError, match="records is 400 and calibration"):
        resolve_cells(Spec("forgetting", preset="quickstart", set={**settings, "calibration.data": "digits"}))


def test_program_takes_the_place_of_classifiers() -> None:
    (roots,) = planned("forgetting", [audit()])
    assert not {"fits", "examples"} & set(roots)  # no training accuracy, and no images
    tables = compute_roots(roots)
    clean, holding = tables["decisions"].to_pylist()
    assert holding["decision"] == "not forgotten"
    assert clean["decision"] in ("forgotten", "undecided")
    assert clean["accuracy"] > 0.5
    confidences = tables["confidences"]
    assert confidences["right"].null_count == 0  # the program returned all classes and their labels
    assert set(confidences["row"].to_pylist()) == set(range(260))


def test_models_are_trained_on_rows_of_their_sets() -> None:
    (roots,) = planned("forgetting", [audit()])
    rows = {}
    for ask in roots["confidences"]:
        (job,) = ask.inputs
        rows[ask.config.model.kind, ask.config.model.target] = set(job.config.share.rows(_images()).tolist())
    query = rows["query", None]
    assert len(query) == 130  # half is held back
    assert rows["calibration", None] == set(range(260, 400))
    assert rows["target", 1] == query | rows["calibration", None]
    assert len(rows["partial", 0] & query) == 65


def test_named_control_images_are_scored_too() -> None:
    control = replace(CONTROL, images=NamedImages(ROWS, 200, 60))
    config = audit(query=QuerySet(ROWS, 0, 200, control))
    (roots,) = planned("forgetting", [config])
    (job,) = roots["confidences"][0].inputs
    assert job.config.scored.rows(_images()).tolist() == list(range(260))


def _images() -> Any:
    from tasks.datasets.catalog import load, pin

    return load(pin(ROWS))


OTHER = Dataset("rows:500")
UNLEARNED = Trained((Target.parse("D_C+D_Q-fine-tuning"),), None)


@pytest.mark.parametrize(
    ("training", "audited", "problem"),
    [
        (replace(PROGRAM, returns="log_likelihood"), Trained((Target(query=1.0),), None), "probabilities, log_odds, "),
        (replace(PROGRAM, returns="samples"), Trained((Target(query=1.0),), None), "training.returns is samples"),
        (CommandTraining(command="train {data}"), Trained((Target(query=1.0),), None), r"placeholder \{data\}"),
        (PROGRAM, UNLEARNED, "unlearning must be retraining"),
    ],
)
def test_unusable_program_is_refused(training: Program, audited: Trained, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        audit(training, audited=audited)


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (audit(calibration=Part(OTHER, 260, 140)), "all parts must be rows of one data set, rows:400, and not of rows"),
        (audit(calibration=Part(ROWS, 100)), "in common"),
        (audit(Scores().training), "has only row numbers, which a training program"),
        (audit(audited=Given((ModelFile("model.pt"),))), "a given model needs images"),
    ],
)
def test_unusable_data_are_refused(config: Forgetting, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        load_data_sets(config)


def test_tiny_run_keeps_the_program_and_its_data() -> None:
    config = tiny(audit())
    assert isinstance(config.question, Scores)
    assert config.question.training == PROGRAM
    assert config.query.pool == Part(ROWS, 0, 120)
    assert config.calibration == Part(ROWS, 260, 120)
    assert config.question.replicates == 2


def test_loss_and_probability_give_equal_confidences() -> None:
    from tasks.audits.forgetting.measures.query_confidences import program_confidences
    from tasks.programs.returned import score_numbers

    p = np.array([0.01, 0.4, 0.999])
    by_probability = program_confidences(score_numbers(p, "probabilities", None, "x"))
    by_loss = program_confidences(score_numbers(-np.log(p), "loss", None, "x"))
    assert by_probability.values == pytest.approx(p, rel=1e-6)
    assert by_loss.values == pytest.approx(p, rel=1e-6)
