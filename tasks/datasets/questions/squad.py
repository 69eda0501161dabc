"""SQuAD v1.1's files: articles of paragraphs with questions, each with one gold answer or several.

{"version": "1.1", "data": [{"title": ..., "paragraphs": [{"context": ..., "qas": [
    {"id": ..., "question": ..., "answers": [{"text": ..., "answer_start": ...}]}]}]}]}

Rajpurkar, Zhang, Lopyrev & Liang 2016, "SQuAD: 100,000+ questions for machine comprehension of text".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from tasks.datasets.dataset import DatasetError
from tasks.datasets.questions.json_value import JsonValue, parse_json
from tasks.datasets.questions.question import Answer, Question, context_id

RULE = "squad v1.1 1"
TRAIN, VALIDATION = "train-v1.1.json", "dev-v1.1.json"
VERSION = "1.1"


def read(path: Path, content: bytes, answered: bool = True) -> list[Question]:
    """The questions of such a file; without `answered` their gold answers may be absent.

    DatasetError, naming the entry, where the file is damaged or has a question without an answer, as SQuAD 2.0 has.
    """
    return list(_questions(parse_json(path, content), answered))


def write_questions(questions: Sequence[Question], answered: bool = True) -> bytes:
    """Such a file, with an article for each run of questions of one context; without `answered`, `answers` is empty.

    DatasetError where an answer of several spans, or one that is not in its context, has no place in the format.
    """
    articles = [
        {"title": title, "paragraphs": [{"context": context, "qas": [_entry(each, answered) for each in group]}]}
        for (title, context), group in groupby(questions, lambda question: (question.context_id, question.context))
    ]
    return json.dumps({"data": articles, "version": VERSION}, ensure_ascii=False).encode()


def _questions(whole: JsonValue, answered: bool) -> Iterator[Question]:
    for article in whole.field("data").elements():
        for paragraph in article.field("paragraphs").elements():
            context = paragraph.field("context").text()
            id_ = context_id(context)
            for asked in paragraph.field("qas").elements():
                golds = _golds(asked.field("answers"), answered)
                yield Question(asked.field("id").text(), id_, context, asked.field("question").text(blank=True), golds)


def _golds(answers: JsonValue, answered: bool) -> tuple[Answer, ...]:
    golds = tuple(dict.fromkeys((answer.field("text").text(),) for answer in answers.elements()))
    if answered and not golds:
        raise answers.error("a list of at least one answer: SQuAD v1.1 has no unanswerable questions")
    return golds


def _entry(question: Question, answered: bool) -> dict[str, Any]:
    answers = [_answer(question, gold) for gold in question.golds] if answered else []
    return {"answers": answers, "question": question.question, "id": question.id}


def _answer(question: Question, gold: Answer) -> dict[str, Any]:
    start = question.context.find(gold[0]) if len(gold) == 1 else -1
    if start < 0:
        raise DatasetError(f"question {question.id!r} has an answer that is no piece of its context, as SQuAD's are")
    return {"answer_start": start, "text": gold[0]}
