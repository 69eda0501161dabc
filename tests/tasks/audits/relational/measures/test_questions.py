"""Every question after the last epoch."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tasks.audits.relational.measures.questions import QUESTIONS, NoSettings, questions
from tests.tasks.audits.relational.made_up import scored, table


def found(*scores: pa.Table) -> list[dict[str, Any]]:
    told = questions(NoSettings(), scores)
    assert QUESTIONS == told.schema
    return told.to_pylist()


def test_questions_answered_without_their_context_come_first_training_ones_before_held_out_ones() -> None:
    names = ["c", "b", "a"]
    train = scored("train", [0, 1, 1], [1, 0, 1], ids=names)
    rows = found(table(scored("validation", [1], ids=["v"]), train))
    expected = [("train", "a", 1, 1), ("train", "b", 1, 0), ("train", "c", 0, 1), ("validation", "v", 1, 1)]
    kept = ("split", "id", "corrupted_exact_match", "whole_exact_match")
    assert expected == [tuple(row[name] for name in kept) for row in rows]


def test_the_last_epoch_alone_counts() -> None:
    (row,) = found(table(scored("train", [1], epoch=1)), table(scored("train", [0], epoch=2)))
    assert 0 == row["corrupted_exact_match"]


def test_replicates_are_averaged_and_counted_whichever_there_are() -> None:
    first = table(scored("train", [1, 0], ids=["a", "b"], f1=0.5))
    second = table(scored("train", [0], ids=["a"], replicate=1, f1=1.0))
    a, b = found(first, second)
    assert (0.5, 0.75, 2) == (a["corrupted_exact_match"], a["corrupted_f1"], a["replicates"])
    assert (0.0, 0.5, 1) == (b["corrupted_exact_match"], b["corrupted_f1"], b["replicates"])


def test_given_answers_are_of_no_epoch() -> None:
    (row,) = found(table(scored("train", [1], epoch=None)))
    assert 1 == row["corrupted_exact_match"]


def test_a_question_that_was_asked_on_one_kind_of_context_has_nulls_for_the_other() -> None:
    rows = scored("train", [1], ids=["a"])
    (row,) = found(table([each for each in rows if not each["corrupted"]]))
    assert (None, 1.0, 1) == (row["corrupted_exact_match"], row["whole_exact_match"], row["replicates"])
