"""DROP's files: passages with questions, whose answers are a number, a date, or one or several spans.

{PASSAGE_ID: {"passage": ..., "qa_pairs": [{"question": ..., "answer": ANSWER, "query_id": ...,
                                            "validated_answers": [ANSWER, ...]}]}}
ANSWER: {"number": "4", "date": {"day": "", "month": "", "year": ""}, "spans": []}

Dua, Wang, Dasigi, Stanovsky, Singh & Gardner 2019, "DROP: a reading comprehension benchmark requiring discrete
reasoning over paragraphs".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from tasks.datasets.questions.json_value import JsonValue, parse_json
from tasks.datasets.questions.question import Answer, Question

RULE = "drop 1"
TRAIN, VALIDATION = "drop_dataset_train.json", "drop_dataset_dev.json"
NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
DATE = ("day", "month", "year")


def read(path: Path, content: bytes, answered: bool = True) -> list[Question]:
    """The questions of such a file; without `answered` their gold answers may be absent.

    The gold answers are the answer and those of the validation, as texts in the way of the official script: a date as
    "day month year". Without any but blank ones a question is passed over: DROP has a few. DatasetError, naming the
    entry, where the file is damaged.
    """
    return list(_questions(parse_json(path, content), answered))


def write_questions(questions: Sequence[Question], answered: bool = True) -> bytes:
    """Such a file, with a passage for each run of questions of one context; without `answered`, answers are blank."""
    passages: dict[str, Any] = {}
    for (id_, context), group in groupby(questions, lambda question: (question.context_id, question.context)):
        name = id_ if id_ not in passages else f"{id_}+{len(passages)}"
        passages[name] = {"passage": context, "qa_pairs": [_pair(each, answered) for each in group]}
    return json.dumps(passages, ensure_ascii=False).encode()


def _questions(whole: JsonValue, answered: bool) -> Iterator[Question]:
    for name, passage in whole.fields():
        context = passage.field("passage").text()
        for pair in passage.field("qa_pairs").elements():
            golds = _golds(pair)
            if golds or not answered:
                id_, question = pair.field("query_id").text(), pair.field("question").text(blank=True)
                yield Question(id_, name, context, question, golds)


def _golds(pair: JsonValue) -> tuple[Answer, ...]:
    """The answer and the validated ones, each once, without blank ones."""
    more = pair.field("validated_answers").elements() if pair.has("validated_answers") else []
    golds = [_gold(answer) for answer in (pair.field("answer"), *more)]
    return tuple(dict.fromkeys(gold for gold in golds if gold and gold[0]))


def _gold(answer: JsonValue) -> Answer:
    """The spans of an answer: its number, else its spans, else its date; none where all are blank."""
    number = answer.field("number") if answer.has("number") else None
    if number is not None:
        is_number = isinstance(number.value, int | float) and not isinstance(number.value, bool)
        text = str(number.value) if is_number else number.text(blank=True).strip()
        if text:
            return (text,)
    spans = answer.field("spans").elements() if answer.has("spans") else []
    if spans:
        return tuple(span.text(blank=True).strip() for span in spans)
    if answer.has("date"):
        date = {name: part.text(blank=True) for name, part in answer.field("date").fields() if part.value is not None}
        return (" ".join(" ".join(date.get(part, "") for part in DATE).split()),)
    if not isinstance(answer.value, Mapping) or not {"number", "spans", "date"} & answer.value.keys():
        raise answer.error("an object with a number, spans or a date")
    return ()


def _pair(question: Question, answered: bool) -> dict[str, Any]:
    answers = [_answer(gold) for gold in question.golds] if answered else [_answer(())]
    return {
        "question": question.question,
        "answer": answers[0],
        "query_id": question.id,
        "validated_answers": answers[1:],
    }


def _answer(gold: Answer) -> dict[str, Any]:
    number = gold[0] if len(gold) == 1 and NUMBER.fullmatch(gold[0]) else ""
    return {"number": number, "date": dict.fromkeys(DATE, ""), "spans": [] if number else list(gold)}
