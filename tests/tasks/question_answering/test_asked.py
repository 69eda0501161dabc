import pytest

from tasks.datasets.questions.question import Question, QuestionSet
from tasks.question_answering.corruption import Corruption
from tasks.question_answering.question_sets import ALL_QUESTIONS, SETS, Selection, probe_sets

TRAIN = [Question(str(k), "c", f"Ann has {k}.", "What?", (("Ann" if k % 2 else str(k),),)) for k in range(6)]
VALIDATION = [Question("v", "d", "Bo has 5.", "What?", (("5",), ("five",)))]
SET = QuestionSet(TRAIN, VALIDATION, "drop")


def test_both_parts_are_asked_on_clean_and_corrupted_contexts() -> None:
    sets = dict(probe_sets(SET, Corruption()))
    assert list(SETS) == list(sets)
    assert [q.context for q in TRAIN] == [q.context for q in sets["train"].questions]
    assert ["Ann has ."] * 6 == [q.context for q in sets["train-corrupted"].questions]
    assert ["Bo has ."] == [q.context for q in sets["validation-corrupted"].questions]
    assert [q.id for q in TRAIN] == [q.id for q in sets["train-corrupted"].questions]
    assert {"drop"} == {each.form for each in sets.values()}


def test_records_are_handed_out_as_records() -> None:
    own = QuestionSet(TRAIN, VALIDATION, "squad", records=True)
    assert {"records"} == {each.form for _, each in probe_sets(own, Corruption())}


def test_the_first_questions_are_asked_and_of_them_the_numeric_ones() -> None:
    assert (TRAIN, VALIDATION) == tuple(map(list, ALL_QUESTIONS.select(SET).values()))
    assert TRAIN[:3] == list(Selection(examples=3).select(SET)["train"])
    assert [TRAIN[0], TRAIN[2]] == list(Selection(examples=3, numeric=True).select(SET)["train"])


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (Selection(examples=7), "examples is 7; the data has 6 such questions"),
        (Selection(held_out=2), "held_out is 2; the data has 1 such questions"),
    ],
)
def test_more_questions_than_there_are_cannot_be_asked(selection: Selection, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        selection.select(SET)


def test_there_must_be_a_numeric_question_where_only_these_are_asked() -> None:
    words = QuestionSet([TRAIN[1]], VALIDATION, "squad")
    with pytest.raises(ValueError, match="none of the examples has an answer with a digit"):
        Selection(numeric=True).select(words)
