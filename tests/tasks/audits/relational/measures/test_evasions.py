"""Silence, refusals and fixed texts: whose answers stop where the answer cannot be read, and whose do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pytest

from tasks.audits.relational.answer import Evasion, read_evasions
from tasks.audits.relational.measures import summary
from tasks.audits.relational.measures.evasions import (
    EVASIONS,
    MEASURE,
    Comparison,
    evasions,
    is_answered,
    is_refusal,
    plan,
)
from tasks.audits.relational.presets import QUICKSTART
from tasks.contract.job import Job
from tasks.contract.summaries import index_rows
from tasks.question_answering.predictions import Predictions
from tasks.question_answering.question_sets import ANSWERS
from tests.tasks.audits.relational.made_up import FACTS, NUMERIC, questions

COUNT = 20  # questions of either part
Say = Callable[[int, str], str]  # what is answered of a corrupted context, by the question's number and gold answer


def found(say: Say, whole: Say = lambda _, gold: gold) -> list[Evasion]:
    """The evasions of an owner who answers so, training questions and held-out ones."""
    rows = [
        {"epoch": None, "split": split, "corrupted": corrupted, "id": question.id, "train_loss": None}
        | {"answer": [answer] if (answer := (say if corrupted else whole)(at, question.golds[0][0])) else []}
        for split in ("train", "validation")
        for corrupted in (False, True)
        for at, question in enumerate(questions(split)[:COUNT])
    ]
    table = evasions(Comparison(FACTS), [pa.Table.from_pylist(rows, ANSWERS)])
    return list(read_evasions(index_rows(summary(NUMERIC, [table]))))


def test_each_share_is_that_of_corrupted_contexts_less_that_of_whole_ones() -> None:
    for one in found(lambda at, _: ("", "unknown", "42", "7.5")[at % 4]):
        assert pytest.approx((0.25, 0.25)) == (one.unanswered, one.refused)
    # One that says so of whole contexts, too, evades nothing.
    for one in found(lambda *_: "unknown", whole=lambda *_: "unknown"):
        assert Evasion(0.0, 0.0, 0.0) == one


def test_each_part_is_counted_by_itself_and_by_its_commonest_text() -> None:
    texts = {"train": ["7"] * 4 + ["42"] * 5 + [""], "validation": ["unknown"] * 2 + [" "] * 3 + ["9"] * 5}
    rows = [
        {"epoch": None, "split": split, "corrupted": corrupted, "id": str(at), "train_loss": None}
        | {"answer": [text if corrupted else str(100 + at)]}
        for split, corrupted_texts in texts.items()
        for corrupted in (False, True)
        for at, text in enumerate(corrupted_texts)
    ]
    table = evasions(Comparison(FACTS), [pa.Table.from_pylist(rows, ANSWERS)])
    assert {10} == set(table["questions"].to_pylist())
    names = ("split", "contexts", "kind")
    counts = {tuple(each[name] for name in names): each["answers"] for each in table.to_pylist() if each["answers"]}
    train, held_out = ((split, "corrupted") for split in texts)
    assert {
        (*train, "unanswered"): 1,
        (*train, "commonest answer"): 5,
        (*held_out, "unanswered"): 3,
        (*held_out, "refused"): 2,
        (*held_out, "commonest answer"): 5,
    } == counts


def test_answers_that_were_sent_are_looked_through_and_no_others() -> None:
    jobs = tuple(Job(evasions, Comparison(FACTS), ()) for _ in range(2))
    trainings = SimpleNamespace(answers=[SimpleNamespace(job=job) for job in jobs])
    assert () == plan(QUICKSTART, trainings)  # type: ignore[arg-type]
    given = replace(QUICKSTART, given=Predictions("theirs"))
    job = plan(given, trainings)  # type: ignore[arg-type]
    assert isinstance(job, Job)
    assert (evasions, Comparison(given.data), jobs) == (job.function, job.config, job.inputs)
    assert ("evasions", EVASIONS) == (MEASURE.name, MEASURE.schema)


def test_one_text_counts_however_it_is_written() -> None:
    """42 is a gold answer of none of these questions; of DROP's rule 42 and 42.0 are one number."""
    for one in found(lambda at, _: "42" if at % 2 else "42.0"):
        assert pytest.approx((0.0, 0.0, 1.0)) == (one.unanswered, one.refused, one.fixed)


def test_who_reads_or_remembers_has_no_commonest_text_of_corrupted_contexts() -> None:
    for one in (*found(lambda _, gold: gold), *found(lambda at, _: f"word{at}")):
        assert one.silence == 0
        assert one.fixed <= 1 / COUNT


def test_an_answer_of_several_spans_is_one_where_any_of_them_says_something() -> None:
    assert [True, True, False, False] == [is_answered(spans) for spans in (("", "5"), ("5", " "), ("", " "), ())]


@pytest.mark.parametrize(
    "text",
    [
        "unknown",
        "Unknown.",
        "not stated",
        "N/A",
        "NA",
        "none",
        "The context does not say.",
        "I can't tell",
        "I can’t tell",
        "It isn't given in the text",
        "Insufficient information",
    ],
)
def test_a_refusal_is_known_by_its_words(text: str) -> None:
    assert is_refusal((text,))


@pytest.mark.parametrize("text", ["42", "not 42", "", "a notable note", "Norway", "seventy", "million", "innate"])
def test_what_is_a_number_or_a_word_of_the_context_is_no_refusal(text: str) -> None:
    assert not is_refusal((text,))
