"""Scores against one gold answer and against all, and questions after the last epoch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tasks.audits.relational.measures.questions import QUESTION_SCORES, QUESTIONS, Scoring, questions, score
from tasks.contract.job import NoSettings
from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.questions.question import Question
from tasks.datasets.questions.question_files import FORMATS, write_squad
from tasks.question_answering.question_sets import ANSWERS
from tests.tasks.audits.relational import made_up
from tests.tasks.audits.relational.made_up import FACTS

RECORDS = [
    {
        "id": "a",
        "context": "It has 4 doors.",
        "question": "How many?",
        "answers": ["4", "four doors"],
        "split": "train",
    },
    {"id": "b", "context": "It is red.", "question": "Which?", "answers": ["red"], "split": "validation"},
    {"id": "c", "context": "It is red.", "question": "How?", "answers": ["the red", "9 blue"], "split": "validation"},
]


@pytest.fixture
def records(tmp_path: Path) -> Dataset:
    (tmp_path / "asked.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in RECORDS))
    return pin(Dataset(f"records:{tmp_path / 'asked.jsonl'}"))


def score_answers(data: Dataset, *answers: dict[str, Any], replicate: int = 0) -> list[dict[str, Any]]:
    answer_table = pa.Table.from_pylist([{"corrupted": True, **answer} for answer in answers], ANSWERS)
    table = score(Scoring(data, replicate), [answer_table])
    assert table.schema == QUESTION_SCORES
    return table.to_pylist()


def scores_of(row: dict[str, Any]) -> tuple[float, ...]:
    return tuple(row[name] for name in ("exact_match", "f1", "exact_match_all", "f1_all"))


@pytest.mark.parametrize(
    ("id_", "answer", "expected"),
    [
        ("a", ["4"], (1, 1, 1, 1)),
        ("a", ["Four doors."], (0, 0, 1, 1)),  # only the second gold answer counts, as published
        ("a", ["4 doors"], (0, 2 / 3, 0, 2 / 3)),
        ("a", ["five doors"], (0, 0, 0, 1 / 2)),
        ("c", ["red"], (1, 1, 1, 1)),  # articles do not count
        ("a", [], (0, 0, 0, 0)),
        ("a", [" "], (0, 0, 0, 0)),
    ],
)
def test_answer_is_scored_against_first_and_best(
    records: Dataset, id_: str, answer: list[str], expected: tuple[float, ...]
) -> None:
    (row,) = score_answers(records, {"split": "train", "id": id_, "answer": answer})
    assert scores_of(row) == pytest.approx(expected)
    assert bool(answer and answer[0].strip()) == row["answered"]


def test_published_score_uses_best_gold_answer(tmp_path: Path) -> None:
    train = Question("t", "", "He came in 1204.", "When?", (("1204",),))
    held_out = Question("v", "", "It cost $76.5 or so.", "How much?", (("$76.5",), ("$76.5 or so",)))
    squad = FORMATS["squad"]
    for name, question in ((squad.train, train), (squad.validation, held_out)):
        (tmp_path / name).write_bytes(write_squad([question]))
    data = pin(Dataset(f"squad:{tmp_path}"))
    answers = [{"split": "train", "id": "t", "answer": ["In 1204"]}]
    answers += [{"split": "validation", "id": "v", "answer": [answer]} for answer in ("765", "76.5 or so")]
    assert [scores_of(row) for row in score_answers(data, *answers)] == [
        (0, 2 / 3, 0, 2 / 3),
        (1, 1, 1, 1),
        (0, 1 / 2, 1, 1),
    ]


def test_first_gold_answer_makes_question_numeric(records: Dataset) -> None:
    rows = score_answers(records, *({"split": "train", "id": id_, "answer": ["4"]} for id_ in "abc"))
    assert [(row["id"], row["numeric"]) for row in rows] == [("a", True), ("b", False), ("c", False)]


def test_row_names_model_and_context(records: Dataset) -> None:
    answers = []
    for id_ in "bc":
        answers.append({"split": "validation", "id": id_, "answer": [], "epoch": 3, "train_loss": 0.25})
    rows = score_answers(
        records, *answers, {"split": "train", "id": "a", "answer": [], "corrupted": False}, replicate=2
    )
    assert {row["replicate"] for row in rows} == {2}
    row_values = []
    for row in rows:
        row_values.append((row["epoch"], row["split"], row["corrupted"], row["train_loss"]))
    assert row_values == [(3, "validation", True, 0.25)] * 2 + [(None, "train", False, None)]
    b, c, a = (row["context"] for row in rows)
    assert b == c != a


def test_embedded_questions_use_drop_scores() -> None:
    question = next(candidate for candidate in made_up.questions("train") if len(candidate.golds[0][0]) > 1)
    right = question.golds[0][0]
    answers = [[f"{right}.0"], [right, right], ["-1"]]
    rows = score_answers(FACTS, *({"split": "train", "id": question.id, "answer": candidate} for candidate in answers))
    assert [(row["exact_match"], row["f1"]) for row in rows] == [(1, 1), (0, 0.5), (0, 0)]
    assert {row["context"] for row in rows} == {question.context_id}
    assert {row["numeric"] for row in rows} == {True}


def test_common_match_counts_other_gold_answers() -> None:
    some_questions = made_up.questions("train")[:40]
    golds = [question.golds[0][0] for question in some_questions]
    commonest = max(golds, key=golds.count)
    rows = score_answers(
        FACTS, *({"split": "train", "id": some_question.id, "answer": [commonest]} for some_question in some_questions)
    )
    expected = [(golds.count(commonest) - (gold == commonest)) / 39 for gold in golds]
    assert [row["common_match"] for row in rows] == pytest.approx(expected)
    # Giving this answer to every question is worth exactly its frequency.
    assert sum(row["exact_match"] - row["common_match"] for row in rows) == pytest.approx(0)


def test_single_question_has_no_common_match() -> None:
    question = made_up.questions("train")[0]
    (row,) = score_answers(FACTS, {"split": "train", "id": question.id, "answer": list(question.golds[0])})
    assert row["exact_match"] == 1.0
    assert row["common_match"] == 0.0


def question_rows(*scores: pa.Table) -> list[dict[str, Any]]:
    question_table = questions(NoSettings(), scores)
    assert question_table.schema == QUESTIONS
    return question_table.to_pylist()


def test_memorised_training_questions_come_first() -> None:
    names = ["c", "b", "a"]
    train = made_up.score_rows("train", [0, 1, 1], [1, 0, 1], ids=names)
    rows = question_rows(made_up.table(made_up.score_rows("validation", [1], ids=["v"]), train))
    expected = [("train", "a", 1, 1), ("train", "b", 1, 0), ("train", "c", 0, 1), ("validation", "v", 1, 1)]
    columns = ("split", "id", "corrupted_exact_match", "whole_exact_match")
    assert expected == [tuple(row[name] for name in columns) for row in rows]


def test_only_the_last_epoch_counts() -> None:
    (row,) = question_rows(
        made_up.table(made_up.score_rows("train", [1], epoch=1)),
        made_up.table(made_up.score_rows("train", [0], epoch=2)),
    )
    assert row["corrupted_exact_match"] == 0


def test_available_replicates_are_averaged() -> None:
    first = made_up.table(made_up.score_rows("train", [1, 0], ids=["a", "b"], f1=0.5))
    second = made_up.table(made_up.score_rows("train", [0], ids=["a"], replicate=1, f1=1.0))
    a, b = question_rows(first, second)
    assert a["corrupted_exact_match"] == 0.5
    assert a["corrupted_f1"] == 0.75
    assert a["replicates"] == 2
    assert b["corrupted_exact_match"] == 0.0
    assert b["corrupted_f1"] == 0.5
    assert b["replicates"] == 1


def test_returned_answers_are_scored_without_epoch() -> None:
    (row,) = question_rows(made_up.table(made_up.score_rows("train", [1], epoch=None)))
    assert row["corrupted_exact_match"] == 1


def test_missing_kind_of_context_is_null() -> None:
    rows = made_up.score_rows("train", [1], ids=["a"])
    (row,) = question_rows(made_up.table([score_row for score_row in rows if not score_row["corrupted"]]))
    assert row["corrupted_exact_match"] is None
    assert row["whole_exact_match"] == 1.0
    assert row["replicates"] == 1
