"""Every preset plans what it says, at full size and at tiny scale, and the numbers that the paper prints of them."""

from __future__ import annotations

from functools import partial

import pytest

from tasks.audits.relational import AUDIT
from tasks.audits.relational.config import Answers, Linear, Relational, Trained
from tasks.audits.relational.presets import (
    EPSILONS,
    PRESETS,
    TABLE_2,
    TABLE_2_DROP,
    TABLE_2_SQUAD,
    PublishedNumbers,
    printed_cell,
    published_numbers,
)
from tasks.datasets.dataset import Dataset
from tasks.language_models.language_model import LanguageModel
from tasks.question_answering.predictions import Predictions
from tasks.question_answering.question_sets import AnswerRemoval
from tasks.training.privacy_config import DifferentialPrivacy, LinkedTraining
from tests.support import plans
from tests.support.plans import calls
from tests.support.settings import with_settings

ANSWERS = {"memorization", "commonest_answers", "questions", "scores", "summary"}
LINEAR = {"linear_curves", "linear_recovery", "summary"}
# Those whose data and models are embedded, or that need none.
HERE = ("quickstart", "null", "stated", "smoke", "figure1", "figure5", "linear-null", "linear-private", "private")
planned = partial(plans.planned, "relational")


def trained_on(config: Relational) -> tuple[Answers, Trained]:
    """The questions of a config whose models are trained here, and how they are trained."""
    assert isinstance(config.question, Answers)
    assert isinstance(config.question.system, Trained)
    return config.question, config.question.system


@pytest.mark.parametrize(
    ("preset", "links"), [("quickstart", 2 * 4), ("null", 2 * 4), ("stated", 2 * 4), ("smoke", 2 * 2)]
)
def test_every_link_of_every_replicate_is_trained_and_scored(preset: str, links: int) -> None:
    found = calls(planned(AUDIT.cells(preset)))
    assert links == found["language_models.fine_tune"] == found["relational.score"]
    assert 1 == found["relational.memorization"] == found["relational.questions"] == found["relational.summary"]


@pytest.mark.parametrize(
    ("preset", "epochs", "model", "data"),
    [
        ("table1", 30, "hub:t5-small", "drop"),
        ("table1", 20, "hub:t5-small", "squad"),
        ("table2_squad", 20, "hub:t5-small", "squad"),
        ("figure2", 30, "hub:t5-small", "drop"),
        ("figure3", 100, "hub:t5-small", "drop"),
        ("figure4", 40, "hub:t5-base", "drop"),
    ],
)
def test_the_papers_trainings_have_its_models_data_and_epochs(preset: str, epochs: int, model: str, data: str) -> None:
    cells = [trained_on(cell) for cell in AUDIT.cells(preset)]
    ((question, system),) = [cell for cell in cells if cell[0].data.name == data]
    tuning, reading = system.tuning, system.reading
    assert (tuning.epochs, reading.model.name, question.numeric) == (epochs, model, data == "squad")
    assert (tuning.batch, tuning.learning_rate, reading.length) == (128, 1e-3, 512)
    assert system.recorded == ((epochs,) if preset == "table1" else tuple(range(epochs + 1)))


def test_the_linear_figures_train_no_language_model() -> None:
    expected = {"linear_memorization.curves": 1, "linear_memorization.recovery": 1, "relational.summary": 1}
    for preset, sizes in (("figure1", ((1000, 1000),)), ("linear-null", ((1000, 300),))):
        (config,) = AUDIT.cells(preset)
        assert config.question == Linear(sizes)
        assert expected == calls(planned([config]))
    both = calls(planned(AUDIT.cells("figure5")))
    assert tuple(both[name] for name in sorted(expected)) == (2, 2, 1)
    # Figure 1 is one of the two panels of figure 5.
    assert calls(planned([*AUDIT.cells("figure1"), *AUDIT.cells("figure5")]))["linear_memorization.curves"] == 2


def test_private_trainings_are_one_job_for_each_epsilon() -> None:
    plain, *trained = AUDIT.cells("private")
    private = [trained_on(config)[1].tuning.guarantee for config in trained]
    assert [privacy and privacy.epsilon for privacy in private] == list(EPSILONS)
    assert {with_settings(config, privacy=LinkedTraining()) for config in trained} == {plain}
    assert calls(planned(AUDIT.cells("linear-private"))) == {"linear_memorization.private": 1, "relational.summary": 1}
    assert calls(planned(trained))["language_models.fine_tune"] == len(EPSILONS)


def test_the_null_differs_from_the_quickstart_in_what_is_trained_on_alone() -> None:
    both = calls(planned([*AUDIT.cells("quickstart"), *AUDIT.cells("null")]))
    assert both["language_models.fine_tune"] == 2 * 2 * 4
    (quick,), (null,) = AUDIT.cells("quickstart"), AUDIT.cells("null")
    assert [trained_on(config)[1].relation for config in (quick, null)] == ["kept", "redrawn"]


@pytest.mark.parametrize("preset", HERE)
def test_every_preset_keeps_its_tables_at_tiny_scale(preset: str) -> None:
    configs = AUDIT.cells(preset)
    for full, small in zip(planned(configs), planned([AUDIT.tiny(config) for config in configs]), strict=True):
        assert set(full) == set(small)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_has_its_tables(preset: str) -> None:
    for config, roots in zip(
        AUDIT.cells(preset), planned([AUDIT.tiny(config) for config in AUDIT.cells(preset)]), strict=True
    ):
        expected = {"answers": ANSWERS, "linear": LINEAR, "private": {"linear_private", "summary"}}
        assert set(roots) == expected[config.question.tag]


COLUMNS = [(name, cell) for of_model in TABLE_2.values() for name, cell in of_model.items()]


@pytest.mark.parametrize(("name", "cell"), COLUMNS)
def test_every_printed_m_follows_from_the_printed_r_but_one_that_is_rounded(
    name: tuple[str, str], cell: PublishedNumbers
) -> None:
    difference = cell.r_train - cell.r_validation
    assert pytest.approx(difference, abs=1e-9 if cell.m != 0.042 else 0.0011) == cell.m
    assert all(0 <= value <= 1 for value in cell[:-1])
    assert name[1] in ("exact_match", "f1")


def test_numbers_are_known_by_the_column_the_questions_and_the_score() -> None:
    found = published_numbers("NumNet+ on DROP", "all", "exact_match")
    assert PublishedNumbers(0.799, 0.786, 0.358, 0.315, 0.042) == found
    assert published_numbers("NumNet+ on DROP", "numeric", "exact_match") is None
    assert published_numbers("", "all", "exact_match") is None


@pytest.mark.parametrize(
    "config",
    [
        TABLE_2_SQUAD,
        with_settings(TABLE_2_SQUAD, epochs=3, every=0, link=0, replicates=2, seed=4, resamples=9, negligible=0.1),
        with_settings(TABLE_2_SQUAD, data=Dataset("squad", "0f")),
        with_settings(TABLE_2_SQUAD, model=LanguageModel("hub:t5-small", digest="0f")),
    ],
)
def test_a_run_repeats_the_column_whose_data_and_training_it_has(config: Relational) -> None:
    assert printed_cell(config.question) == "T5 on SQuAD"


def test_whoevers_predictions_on_drop_are_given_stand_beside_those_of_numnet() -> None:
    elsewhere = with_settings(TABLE_2_DROP, given=Predictions("elsewhere", "a" * 64))
    assert printed_cell(elsewhere.question) == "NumNet+ on DROP"
    assert printed_cell(with_settings(TABLE_2_DROP, system=Trained()).question) == ""


@pytest.mark.parametrize(
    "config",
    [
        with_settings(TABLE_2_SQUAD, batch=64),
        with_settings(TABLE_2_SQUAD, learning_rate=1e-4),
        with_settings(TABLE_2_SQUAD, numeric=False),
        with_settings(TABLE_2_SQUAD, examples=1000),
        with_settings(TABLE_2_SQUAD, adaptation="lora"),
        with_settings(TABLE_2_SQUAD, relation="redrawn"),
        with_settings(TABLE_2_SQUAD, split="drawn"),
        with_settings(TABLE_2_SQUAD, model=LanguageModel("hub:t5-base")),
        with_settings(TABLE_2_SQUAD, data=Dataset("facts-stated")),
        with_settings(TABLE_2_SQUAD, corruption=AnswerRemoval()),
        with_settings(TABLE_2_SQUAD, privacy=DifferentialPrivacy(3.0)),
        with_settings(TABLE_2_SQUAD, given=Predictions("answered")),
        Relational(Linear()),
    ],
)
def test_another_training_or_other_questions_repeat_nothing(config: Relational) -> None:
    assert printed_cell(config.question) == ""


def test_of_the_presets_those_of_table_2_have_numbers_beside_them() -> None:
    cells = {name: cell if isinstance(cell, tuple) else (cell,) for name, cell in PRESETS.items()}
    found = {name for name, configs in cells.items() if any(printed_cell(config.question) for config in configs)}
    assert {"table1", "table2_squad", "table2_drop"} == found  # table 1's T5 on SQuAD is table 2's
