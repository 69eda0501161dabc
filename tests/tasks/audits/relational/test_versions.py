"""What each task computes, beside its version: neither may change without the other.

A test here that fails says that stored results are no longer what the task would compute. If that is meant, raise the
task's version and write the new numbers below.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest

from tasks.audits.relational.config import About
from tasks.audits.relational.measures import summary
from tasks.audits.relational.measures.memorization import memorization
from tasks.audits.relational.measures.questions import Scoring, questions, score
from tasks.audits.relational.measures.repeats import repeats
from tasks.contract.job import NoSettings, marks
from tasks.external.blinded_questions import Blinding, ReadBlindedAnswers, key_table, read_blinded_answers
from tasks.language_models.fine_tuning import fine_tune
from tasks.language_models.fine_tuning_config import FineTuning
from tasks.language_models.language_model import LanguageModel
from tasks.question_answering.predictions import Predictions
from tasks.question_answering.question_sets import ANSWERS, DigitRemoval, Selection
from tests.support.fingerprint import TRAINED, total, version_test
from tests.tasks.audits.relational import made_up


@cache
def answers() -> pa.Table:
    """Answers of a model that says every third time what is right, every third time more, and else nothing."""
    rows = [
        {"epoch": epoch, "split": split, "corrupted": corrupted, "id": question.id, "train_loss": 0.5 * epoch}
        | {"answer": ([question.golds[0][0]], [f"{question.golds[0][0]} or so"], [])[(at + corrupted * at // 4) % 3]}
        for epoch in (1, 2)
        for split in ("train", "validation")
        for corrupted in (False, True)
        for at, question in enumerate(made_up.questions(split)[epoch : 40 - 10 * (split == "validation")])
    ]
    return pa.Table.from_pylist(rows, ANSWERS)


@cache
def of_score() -> pa.Table:
    return score(Scoring(made_up.FACTS, 1), [answers()])


@cache
def of_memorization() -> pa.Table:
    return made_up.measured(of_score(), resamples=100, seed=1)


def of_questions() -> pa.Table:
    return questions(NoSettings(), [of_score()])


def of_all() -> pa.Table:
    return summary(About("numeric", 1.0, "T5 on SQuAD"), [of_memorization()])


@cache
def of_training() -> pa.Table:
    config = FineTuning(made_up.FACTS, LanguageModel("tiny-t5#16x1"), examples=32, held_out=4, epochs=2, batch=8)
    return fine_tune(replace(config, length=128, answer_length=4, recorded=(1, 2)), [])


@cache
def sent() -> ReadBlindedAnswers:
    """Answers to blinded questions, those that were asked twice with two."""
    handed = Blinding(made_up.FACTS, Selection(6, 6), DigitRemoval(), order=3)
    folder = Path(tempfile.mkdtemp())
    said = {row["id"]: str(number) for number, row in enumerate(key_table(handed).to_pylist())}
    (folder / "answers.json").write_text(json.dumps(said))
    return ReadBlindedAnswers(Predictions(str(folder)).pin({}), handed)


test_a_task_computes_what_its_version_says = version_test(
    [
        (score, 2, of_score, 268, 2754.879699),
        (memorization, 1, of_memorization, 8, 614.2034431),
        (questions, 1, of_questions, 66, 296.0),
        (summary, 2, of_all, 25, 64.98895897038668),
    ]
)


def test_answers_to_blinded_questions_are_read_as_the_versions_say() -> None:
    answers, repeated = read_blinded_answers(sent(), ()), repeats(sent(), ())
    assert (marks(read_blinded_answers).version, marks(repeats).version) == (1, 1)
    assert [spans[0] for spans in answers["answer"].to_pylist()[:6]] == ["3", "12", "17", "19", "16", "4"]
    (row,) = repeated.to_pylist()
    assert (row["repeats"], row["differing"], row["key"][:16]) == (2, 2, "885aac9c2d6dd699")


@pytest.mark.trained
def test_a_fine_tuning_computes_what_its_version_says() -> None:
    table = of_training()
    assert (marks(fine_tune).version, table.num_rows) == (1, 2 * 2 * (32 + 4))
    assert pytest.approx(total(table), rel=TRAINED) == 913.249
