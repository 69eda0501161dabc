"""What the paper prints, and which runs repeat it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tasks.audits.relational.config import Relational
from tasks.audits.relational.presets import PRESETS, TABLE_2_DROP, TABLE_2_SQUAD
from tasks.audits.relational.published import TABLE_2, PublishedNumbers, printed_cell, published_numbers
from tasks.datasets.dataset import Dataset
from tasks.language_models.language_model import LanguageModel
from tasks.question_answering.predictions import Predictions
from tasks.question_answering.question_sets import Corruption
from tasks.training.recipe import Privacy

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
        replace(TABLE_2_SQUAD, epochs=3, every=0, link=0, replicates=2, seed=4, resamples=9, negligible=0.1),
        replace(TABLE_2_SQUAD, data=Dataset("squad", "0f"), measures=("answers", "linear")),
        replace(TABLE_2_SQUAD, model=replace(TABLE_2_SQUAD.model, digest="0f")),
    ],
)
def test_a_run_repeats_the_column_whose_data_and_training_it_has(config: Relational) -> None:
    assert "T5 on SQuAD" == printed_cell(config)


def test_whoevers_predictions_on_drop_are_given_stand_beside_those_of_numnet() -> None:
    assert "NumNet+ on DROP" == printed_cell(replace(TABLE_2_DROP, given=Predictions("elsewhere", "a" * 64)))
    assert "" == printed_cell(replace(TABLE_2_DROP, given=None))


@pytest.mark.parametrize(
    "config",
    [
        replace(TABLE_2_SQUAD, batch=64),
        replace(TABLE_2_SQUAD, learning_rate=1e-4),
        replace(TABLE_2_SQUAD, numeric=False),
        replace(TABLE_2_SQUAD, examples=1000),
        replace(TABLE_2_SQUAD, adaptation="lora"),
        replace(TABLE_2_SQUAD, relation="redrawn"),
        replace(TABLE_2_SQUAD, split="drawn"),
        replace(TABLE_2_SQUAD, model=LanguageModel("hub:t5-base")),
        replace(TABLE_2_SQUAD, data=Dataset("facts-stated")),
        replace(TABLE_2_SQUAD, corruption=Corruption("answers")),
        replace(TABLE_2_SQUAD, privacy=Privacy(3.0), link=0),
        replace(TABLE_2_SQUAD, given=Predictions("answered")),
        Relational(measures=("linear",)),
    ],
)
def test_another_training_or_other_questions_repeat_nothing(config: Relational) -> None:
    assert "" == printed_cell(config)


def test_of_the_presets_those_of_table_2_have_numbers_beside_them() -> None:
    cells = {name: cell if isinstance(cell, tuple) else (cell,) for name, cell in PRESETS.items()}
    found = {name for name, configs in cells.items() if any(printed_cell(config) for config in configs)}
    assert {"table1", "table2_squad", "table2_drop"} == found  # table 1's T5 on SQuAD is table 2's
