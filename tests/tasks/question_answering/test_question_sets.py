"""Corruption of contexts, and selection of questions."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.inspection.disclosure import Disclosure
from tasks.datasets.questions.question import Question, QuestionSet
from tasks.question_answering.question_sets import (
    ALL_QUESTIONS,
    SETS,
    AnswerRemoval,
    DigitRemoval,
    NameRemoval,
    PatternRemoval,
    Selection,
    probe_sets,
)

COUNTY = "In the county, 23.5% were under the age of 18, 7.8% from 18 to 24. The median age was 40 years."


def question_about(context: str, *golds: tuple[str, ...]) -> Question:
    return Question("1", "c", context, "How many?", golds or (("76.5",),))


def test_only_digits_are_removed() -> None:
    expected = "In the county, .% were under the age of , .% from  to . The median age was  years."
    assert expected == DigitRemoval().corrupt_context(question_about(COUNTY))
    assert DigitRemoval().corrupt_context(question_about("On February 6, 2016 .")) == "On February ,  ."


def test_digits_in_words_are_removed() -> None:
    assert DigitRemoval().corrupt_context(question_about("the 4th of four km²")) == "the th of four km²"


def test_names_are_removed_as_words_and_phrases() -> None:
    removal = NameRemoval(("Ann", "Ann Lee", "Rue (Nord)"), mask="[name]")
    expected = "[name] met [name], Anna and ann in [name]."
    assert expected == removal.corrupt_context(question_about("Ann Lee met Ann, Anna and ann in Rue (Nord)."))


def test_pattern_matches_become_the_literal_mask() -> None:
    removal = PatternRemoval(r"[A-Z]{2}-\d+", mask=r"\1")
    assert removal.corrupt_context(question_about("case AB-12 and CD-3")) == r"case \1 and \1"


def test_empty_matches_are_not_masked() -> None:
    assert PatternRemoval(r"\d*", mask="_").corrupt_context(question_about("a12b")) == "a_b"


def test_only_whole_gold_spans_are_removed() -> None:
    removal = AnswerRemoval(mask="_")
    question = question_about(
        "In 1966 the Cat had 6 lives, 6km of string, 6.5 mice, 1,6 and a catfish: cat!", ("6", "cat"), ("",)
    )
    assert (
        removal.corrupt_context(question) == "In 1966 the _ had _ lives, _km of string, 6.5 mice, 1,6 and a catfish: _!"
    )


def test_context_without_answer_is_unchanged() -> None:
    assert AnswerRemoval(mask="_").corrupt_context(question_about("abc", ("",))) == "abc"


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (NameRemoval, (), "names is empty; it must have at least one word or phrase"),
        (NameRemoval, ("A", " "), "names has ' '; each must be a word or a phrase"),
        (PatternRemoval, "", "pattern is empty; it must be a regular expression"),
        (PatternRemoval, "(", r"pattern is '\('; it must be a regular expression: "),
    ],
)
def test_fields_out_of_range_are_named(kind: Any, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(value)


def test_names_are_withheld() -> None:
    removal = NameRemoval(("Ann", "Bob", "Ann Lee"))
    assert Disclosure().public(removal).names == ("<3 letters>", "<3 letters (2)>", "<3 and 3 letters>")
    assert DigitRemoval() == Disclosure().public(DigitRemoval())


TRAIN = [Question(str(k), "c", f"Ann has {k}.", "What?", (("Ann" if k % 2 else str(k),),)) for k in range(6)]
VALIDATION = [Question("v", "d", "Bo has 5.", "What?", (("5",), ("five",)))]
SET = QuestionSet(TRAIN, VALIDATION, "drop")


def test_probe_sets_have_both_parts_and_contexts() -> None:
    sets = dict(probe_sets(SET, DigitRemoval()))
    assert list(SETS) == list(sets)
    assert [q.context for q in TRAIN] == [q.context for q in sets["train"].questions]
    assert [q.context for q in sets["train-corrupted"].questions] == ["Ann has ."] * 6
    assert [q.context for q in sets["validation-corrupted"].questions] == ["Bo has ."]
    assert [q.id for q in TRAIN] == [q.id for q in sets["train-corrupted"].questions]
    assert {probe_set.form for probe_set in sets.values()} == {"drop"}


def test_records_are_exported_as_records() -> None:
    records = QuestionSet(TRAIN, VALIDATION, "squad", records=True)
    assert {probe_set.form for _, probe_set in probe_sets(records, DigitRemoval())} == {"records"}


def test_selection_takes_first_numeric_questions() -> None:
    assert tuple(map(list, ALL_QUESTIONS.select(SET).values())) == (TRAIN, VALIDATION)
    assert TRAIN[:3] == list(Selection(examples=3).select(SET)["train"])
    assert [TRAIN[0], TRAIN[2]] == list(Selection(examples=3, numeric=True).select(SET)["train"])


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (Selection(examples=7), "examples is 7; the data has 6 such questions"),
        (Selection(held_out=2), "held_out is 2; the data has 1 such questions"),
    ],
)
def test_too_many_questions_are_refused(selection: Selection, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        selection.select(SET)


def test_numeric_selection_needs_a_numeric_question() -> None:
    words = QuestionSet([TRAIN[1]], VALIDATION, "squad")
    with pytest.raises(ValueError, match="examples: no question has a numeric answer"):
        Selection(numeric=True).select(words)
