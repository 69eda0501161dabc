import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tasks.datasets.dataset import DatasetError
from tasks.datasets.questions.drop import read, write_questions
from tasks.datasets.questions.facts import Facts
from tasks.datasets.questions.question import Question
from tasks.question_answering.question_sets import Corruption

HERE = Path("drop_dataset_dev.json")
NO_DATE = {"day": "", "month": "", "year": ""}


def answer(number: Any = "", spans: list[str] | None = None, **date: str) -> dict[str, Any]:
    return {"number": number, "date": {**NO_DATE, **date}, "spans": spans or []}


def pair(given: Any, *validated: Any, **changes: Any) -> dict[str, Any]:
    id_ = "f37e81fa-ef7b-4583-b671-762fc433faa9"
    return {"question": "How many?", "answer": given, "query_id": id_, "validated_answers": list(validated), **changes}


def file(*pairs: Any) -> bytes:
    passages = {"nfl_1184": {"passage": "Kicks of 23 and 40 yards.", "qa_pairs": list(pairs), "wiki_url": ""}}
    return json.dumps(passages).encode()


@pytest.mark.parametrize(
    ("given", "gold"),
    [
        (answer("4"), ("4",)),
        (answer(4), ("4",)),
        (answer(76.5), ("76.5",)),
        (answer("0"), ("0",)),
        (answer("1,200", ["x"]), ("1,200",)),
        (answer(spans=["Bears"]), ("Bears",)),
        (answer(spans=["Bears", "Jets"], year="1966"), ("Bears", "Jets")),
        (answer(day="17", month="August", year="1966"), ("17 August 1966",)),
        (answer(month="August", year="1966"), ("August 1966",)),
        (answer(" ", ["Bears"]), ("Bears",)),
        ({"spans": ["Bears"]}, ("Bears",)),
        ({"number": "4"}, ("4",)),
        ({"date": {"day": "17", "month": "August", "year": None}}, ("17 August",)),
    ],
)
def test_an_answer_is_a_number_or_spans_or_a_date(given: Any, gold: tuple[str, ...]) -> None:
    (question,) = read(HERE, file(pair(given)))
    assert (gold,) == question.golds
    assert ("nfl_1184", "Kicks of 23 and 40 yards.") == (question.context_id, question.context)


def test_validated_answers_are_further_golds_and_blank_ones_none() -> None:
    blank = answer()
    several = pair(answer("4"), answer("4"), answer(spans=["four", "five"]), blank)
    late = pair(blank, answer("17"), query_id="2")
    none = pair(blank, blank, query_id="3")
    bare = {name: value for name, value in pair(answer("5"), query_id="4").items() if name != "validated_answers"}
    questions = read(HERE, file(several, late, none, bare))
    expected = {
        "f37e81fa-ef7b-4583-b671-762fc433faa9": (("4",), ("four", "five")),
        "2": (("17",),),
        "4": (("5",),),
    }
    assert expected == {question.id: question.golds for question in questions}


def test_what_is_written_is_read_alike() -> None:
    golds = ((("4",), ("four",)), (("Bears", "Jets"),), (("17 August 1966",),), (("-5",), ("1,200",)))
    made = [Question(str(k), "c", "text", "?", each) for k, each in enumerate(golds)]
    questions = [*Facts("facts").questions().train[:50], *made]
    assert questions == read(HERE, write_questions(questions))


def test_without_answers_no_gold_is_in_the_file_and_it_is_read_with_a_flag() -> None:
    questions = list(Facts("facts").questions().train[:50])
    bare = write_questions([replace(q, golds=(("secret",),)) for q in questions], answered=False)
    assert b"secret" not in bare
    assert [replace(q, golds=()) for q in questions] == read(HERE, bare, answered=False)
    assert [] == read(HERE, bare)  # blank answers are passed over, as in DROP itself


def test_questions_of_a_context_may_be_corrupted_differently() -> None:
    asked = [Question(str(k), "c", "one 1 two 2 three 3", "?", ((str(k),),)) for k in (1, 2, 3)]
    corrupted = [replace(each, context=Corruption("answers").corrupt_context(each)) for each in asked]
    again = read(HERE, write_questions(corrupted))
    assert [each.context for each in corrupted] == [each.context for each in again]
    assert 3 == len({each.context_id for each in again})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "drop_dataset_dev.json is no JSON: "),
        (b"[]", r"drop_dataset_dev.json is \[\]; it must be an object"),
        (b'{"p": {"qa_pairs": []}}', "drop_dataset_dev.json, p has no field passage; its fields are qa_pairs"),
        (b'{"p": {"passage": "a"}}', "p has no field qa_pairs"),
        (file({"question": "?"}), r"nfl_1184.qa_pairs\[0\] has no field answer"),
        (file(pair(answer([4]))), r"answer.number is \[4\]; it must be text"),
        (file(pair(answer(True))), r"answer.number is true; it must be text"),
        (file(pair({"spans": "Bears"})), 'answer.spans is "Bears"; it must be a list'),
        (file(pair({"text": "4"})), r"answer is {.*}; it must be an object with a number, spans or a date"),
        (file(pair("4")), r'answer is "4"; it must be an object with a number, spans or a date'),
        (file(pair({"date": "1966"})), 'answer.date is "1966"; it must be an object'),
        (file(pair(answer("4"), query_id="")), 'query_id is ""; it must be text that is not blank'),
    ],
)
def test_what_is_damaged_is_named(content: bytes, message: str) -> None:
    with pytest.raises(DatasetError, match=message) as caught:
        read(HERE, content)
    assert 1 == len(str(caught.value).splitlines())
