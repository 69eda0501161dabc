"""Tables of each task, whose fingerprints a test compares with the version of the task."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import pyarrow as pa

from tasks.audits.relational.config import About
from tasks.audits.relational.measures import summary
from tasks.audits.relational.measures.memorization import memorization
from tasks.audits.relational.measures.questions import Scoring, questions, score
from tasks.audits.relational.measures.repeats import repeats
from tasks.contract.job import NoSettings
from tasks.external.blinded_questions import Blinding, ReadBlindedAnswers, key_table, read_blinded_answers
from tasks.language_models.fine_tuning import fine_tune
from tasks.language_models.fine_tuning_config import FineTuning
from tasks.language_models.language_model import LanguageModel
from tasks.question_answering.predictions import Predictions
from tasks.question_answering.question_sets import ANSWERS, DigitRemoval, Selection
from tests.support.fingerprint import TRAINED, Computed
from tests.tasks.audits.relational import made_up


@cache
def answers() -> pa.Table:
    """Return answers of a model: one third correct, one third with extra words, and one third empty."""
    rows = []
    for epoch in (1, 2):
        for split in ("train", "validation"):
            for corrupted in (False, True):
                for index, question in enumerate(made_up.questions(split)[epoch : 40 - 10 * (split == "validation")]):
                    rows.append(
                        {
                            "epoch": epoch,
                            "split": split,
                            "corrupted": corrupted,
                            "id": question.id,
                            "train_loss": 0.5 * epoch,
                        }
                        | {
                            "answer": ([question.golds[0][0]], [f"{question.golds[0][0]} or so"], [])[
                                (index + corrupted * index // 4) % 3
                            ]
                        }
                    )
    return pa.Table.from_pylist(rows, ANSWERS)


@cache
def score_table() -> pa.Table:
    return score(Scoring(made_up.FACTS, 1), [answers()])


@cache
def memorization_table() -> pa.Table:
    return made_up.memorization_of(score_table(), resamples=100, seed=1)


def question_table() -> pa.Table:
    return questions(NoSettings(), [score_table()])


def summary_table() -> pa.Table:
    return summary(About("numeric", 1.0, "T5 on SQuAD"), [memorization_table()])


@cache
def trained_table() -> pa.Table:
    config = FineTuning(made_up.FACTS, LanguageModel("tiny-t5#16x1"), examples=32, held_out=4, epochs=2, batch=8)
    return fine_tune(replace(config, length=128, answer_length=4, recorded=(1, 2)), [])


@cache
def returned_answers() -> ReadBlindedAnswers:
    """Return answers to blinded questions, with two answers to repeated ones."""
    handout = Blinding(made_up.FACTS, Selection(6, 6), DigitRemoval(), order=3)
    folder = Path(tempfile.mkdtemp())
    answers_by_id = {}
    for number, row in enumerate(key_table(handout).to_pylist()):
        answers_by_id[row["id"]] = str(number)
    (folder / "answers.json").write_text(json.dumps(answers_by_id))
    return ReadBlindedAnswers(Predictions(str(folder)).pin({}), handout)


def list_first_spans(table: pa.Table) -> list[str]:
    return [spans[0] for spans in table["answer"].to_pylist()[:6]]


TABLES = [
    Computed(score, score_table),
    Computed(memorization, memorization_table),
    Computed(questions, question_table),
    Computed(summary, summary_table),
    Computed(read_blinded_answers, lambda: read_blinded_answers(returned_answers(), ()), fingerprint=list_first_spans),
    Computed(repeats, lambda: repeats(returned_answers(), ()), fingerprint=pa.Table.to_pylist),
    Computed(fine_tune, trained_table, tolerance=TRAINED),
]
