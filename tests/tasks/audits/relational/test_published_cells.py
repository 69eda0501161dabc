"""Runs with published numbers, and the consistency of these numbers."""

from __future__ import annotations

import pytest

from tasks.audits.relational import AUDIT
from tasks.audits.relational.config import Linear, Relational, Trained
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
from tests.support.settings import with_settings


def test_private_trainings_differ_only_in_privacy() -> None:
    plain, *private = AUDIT.cells("private")
    assert len(private) == len(EPSILONS)
    assert {with_settings(config, privacy=LinkedTraining()) for config in private} == {plain}


COLUMNS = [(name, cell) for of_model in TABLE_2.values() for name, cell in of_model.items()]


@pytest.mark.parametrize(("name", "cell"), COLUMNS)
def test_printed_m_follows_from_printed_r(name: tuple[str, str], cell: PublishedNumbers) -> None:
    difference = cell.r_train - cell.r_validation
    assert cell.m == pytest.approx(difference, abs=1e-9 if cell.m != 0.042 else 0.0011)
    assert all(0 <= value <= 1 for value in cell[:-1])
    assert name[1] in ("exact_match", "f1")


def test_published_numbers_are_found_by_column() -> None:
    numbers = published_numbers("NumNet+ on DROP", "all", "exact_match")
    assert PublishedNumbers(0.799, 0.786, 0.358, 0.315, 0.042) == numbers
    assert published_numbers("NumNet+ on DROP", "numeric", "exact_match") is None
    assert published_numbers("", "all", "exact_match") is None


@pytest.mark.parametrize(
    "config",
    [
        TABLE_2_SQUAD,
        with_settings(
            TABLE_2_SQUAD, epochs=3, evaluation_interval=0, link=0, replicates=2, seed=4, resamples=9, negligible=0.1
        ),
        with_settings(TABLE_2_SQUAD, data=Dataset("squad", "0f")),
        with_settings(TABLE_2_SQUAD, model=LanguageModel("hub:t5-small", digest="0f")),
    ],
)
def test_run_reproduces_column_with_same_settings(config: Relational) -> None:
    assert printed_cell(config.question) == "T5 on SQuAD"


def test_drop_predictions_are_compared_with_numnet() -> None:
    elsewhere = with_settings(TABLE_2_DROP, predictions=Predictions("elsewhere", "a" * 64))
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
        with_settings(TABLE_2_SQUAD, predictions=Predictions("answered")),
        Relational(Linear()),
    ],
)
def test_other_settings_have_no_published_numbers(config: Relational) -> None:
    assert printed_cell(config.question) == ""


def test_only_table_2_presets_have_published_numbers() -> None:
    cells = {}
    for name, cell in PRESETS.items():
        cells[name] = cell if isinstance(cell, tuple) else (cell,)
    presets_with_numbers = set()
    for name, configs in cells.items():
        if any(printed_cell(config.question) for config in configs):
            presets_with_numbers.add(name)
    # table 1's T5 on SQuAD is table 2's
    assert presets_with_numbers == {"table1", "table2_squad", "table2_drop"}
