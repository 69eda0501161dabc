import json
from pathlib import Path
from typing import Any

import pytest

from tasks.datasets.dataset import DatasetError
from tasks.datasets.questions.facts import Facts
from tasks.datasets.questions.squad import read, write_questions

HERE = Path("train-v1.1.json")
CONTEXT = "On February 6, 2016, one day before the Super Bowl, Beyoncé released a new single."


def asked(**changes: Any) -> dict[str, Any]:
    answers = [{"answer_start": 3, "text": "February 6, 2016"}]
    return {"answers": answers, "question": "What day?", "id": "56be85543aeaaa14008c9063", **changes}


def file(*qas: Any, **changes: Any) -> bytes:
    paragraph = {"context": CONTEXT, "qas": list(qas)}
    return json.dumps({"data": [{"title": "Beyoncé", "paragraphs": [paragraph]}], "version": "1.1", **changes}).encode()


def test_questions_are_read_with_their_context_and_golds() -> None:
    second = asked(id="2", answers=[{"answer_start": 3, "text": text} for text in ("February 6", "2016", "February 6")])
    first, other = read(HERE, file(asked(), second))
    assert ("56be85543aeaaa14008c9063", CONTEXT, "What day?") == (first.id, first.context, first.question)
    assert (("February 6, 2016",),) == first.golds
    assert (("February 6",), ("2016",)) == other.golds
    assert first.context_id == other.context_id


def test_what_is_written_is_read_alike() -> None:
    questions = list(Facts("facts-stated").questions().train[:50])
    again = read(HERE, write_questions(questions))
    assert [(q.id, q.context, q.question, q.golds) for q in questions] == [
        (q.id, q.context, q.question, q.golds) for q in again
    ]
    assert len({q.context_id for q in questions}) == len({q.context_id for q in again})
    (answer,) = json.loads(write_questions(questions))["data"][0]["paragraphs"][0]["qas"][0]["answers"]
    assert questions[0].context[answer["answer_start"] :].startswith(answer["text"])


def test_without_answers_no_gold_is_in_the_file_and_it_is_read_with_a_flag() -> None:
    questions = list(Facts("facts-stated").questions().train[:50])
    bare = write_questions(questions, answered=False)
    assert {()} == {question.golds for question in read(HERE, bare, answered=False)}
    assert [q.id for q in questions] == [q.id for q in read(HERE, bare, answered=False)]
    with pytest.raises(DatasetError, match="answers is \\[\\]; it must be a list of at least one answer"):
        read(HERE, bare)


def test_an_answer_that_is_not_in_its_context_cannot_be_written() -> None:
    (question,) = read(HERE, file(asked(id="7", answers=[{"answer_start": 0, "text": "March"}])))
    with pytest.raises(DatasetError, match="question '7' has an answer that is no piece of its context"):
        write_questions([question])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "train-v1.1.json is no JSON: "),
        (b"\xff\xfe", "train-v1.1.json is no text in UTF-8: "),
        (b"[" * 100_000, "train-v1.1.json is no JSON: "),
        (b"[]", r"train-v1.1.json is \[\]; it must be an object with the field data"),
        (b'{"version": "1.1"}', "train-v1.1.json has no field data; its fields are version"),
        (b'{"data": 4}', "train-v1.1.json, data is 4; it must be a list"),
        (file(3), r"data\[0\].paragraphs\[0\].qas\[0\] is 3; it must be an object with the field answers"),
        (file(asked(), {"id": "1"}), r"data\[0\].paragraphs\[0\].qas\[1\] has no field answers; its fields are id"),
        (file(asked(id=7)), r"qas\[0\].id is 7; it must be text that is not blank"),
        (file(asked(answers=[], is_impossible=True)), "SQuAD v1.1 has no unanswerable questions"),
        (file(asked(answers=[{"text": " "}])), r'answers\[0\].text is " "; it must be text that is not blank'),
        (file(asked(answers={"text": ["4"]})), r"qas\[0\].answers is {.*}; it must be a list"),
    ],
)
def test_what_is_damaged_is_named(content: bytes, message: str) -> None:
    with pytest.raises(DatasetError, match=message) as caught:
        read(HERE, content)
    assert 1 == len(str(caught.value).splitlines())
