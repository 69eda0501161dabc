"""Questions about contexts and their gold answers, including questions in a user's record file.

{"id": "1", "context": "...", "question": "...", "answers": ["4", "four"], "split": "train"}

Every entry of `answers` is correct. Models are trained on the first. `split` is train or validation. Questions with the
same `context_id` share a context. Without `context_id`, a context is identified by its text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa

from tasks.datasets.dataset import DatasetError
from tasks.datasets.records import Records
from tasks.datasets.row_order import draw_group_order
from tasks.numerics import seeds

Scorer = Literal["squad", "drop"]
Answer = tuple[str, ...]  # the spans of one answer: one in SQuAD, several in DROP if the question asks for a list


@dataclass(frozen=True)
class Question:
    """A question about a context.

    `golds` are its correct answers, at least one. Models are trained on the first. Questions about the same context
    share its `context_id` and are not independent.
    """

    id: str
    context_id: str
    context: str
    question: str
    golds: tuple[Answer, ...]


@dataclass(frozen=True, eq=False)
class QuestionSet:
    """Training questions and held-out questions, with the rule for scoring answers.

    Ids differ across both parts, and no context is in both. With `records`, the questions come from a user's record
    file rather than from the format that the rule is named after.
    """

    train: Sequence[Question]
    validation: Sequence[Question]
    scorer: Scorer
    records: bool = False

    @cached_property
    def by_id(self) -> dict[str, Question]:
        result = {}
        for part in (self.train, self.validation):
            for question in part:
                result[question.id] = question
        return result


def redrawn(questions: QuestionSet, seed: int) -> QuestionSet:
    """Redistribute contexts at random, so that both parts have the same distribution.

    Contexts are added to the training part in random order until it has at least its original number of questions. The
    rest are held out. Raises ValueError if no context would be held out.
    """
    of_context: dict[str, list[Question]] = {}
    for question in questions.by_id.values():
        of_context.setdefault(question.context_id, []).append(question)
    names = list(of_context)
    order = [names[index] for index in seeds.generator(seed, "parts").permutation(len(names))]
    parts: tuple[list[Question], list[Question]] = ([], [])
    for name in order:
        parts[len(parts[0]) >= len(questions.train)].extend(of_context[name])
    if not parts[1]:
        raise ValueError(f"there are {len(names)} contexts, too few to hold some out at random")
    return replace(questions, train=parts[0], validation=parts[1])


def first_copies(questions: Sequence[Question]) -> list[str]:
    """Return, for each question, the id of the first one with the same context, text and answers."""
    first: dict[tuple[str, str, tuple[Answer, ...]], str] = {}
    copies = []
    for question in questions:
        copies.append(first.setdefault((question.context, question.question, question.golds), question.id))
    return copies


def shuffle_contexts(questions: Sequence[Question]) -> list[Question]:
    """Shuffle questions by context, since files are sorted or ordered by article.

    Contexts with the same text count as one context and get the id of the first.
    """
    ids: dict[str, str] = {}
    joined = []
    for question in questions:
        joined.append(replace(question, context_id=ids.setdefault(question.context, question.context_id)))
    order = draw_group_order([question.context_id for question in joined], "contexts")
    return [joined[position] for position in order]


def context_id(context: str) -> str:
    """Return an id for a context that has none: a hash of its text."""
    return hashlib.sha256(context.encode()).hexdigest()[:16]


RECORD_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        pa.field("context", pa.string(), nullable=False),
        pa.field("question", pa.string(), nullable=False),
        pa.field("answers", pa.list_(pa.string()), nullable=False),
        ("split", pa.string()),
        ("context_id", pa.string()),
    ]
)
RECORD_SPLITS = ("train", "validation")


def questions_of_records(records: Records, name: str) -> QuestionSet:
    """Return the questions in these records of the data set with this name.

    Answers are scored as in SQuAD. Raises DatasetError, naming the record, if a record is invalid.
    """
    parts: dict[str, list[Question]] = {split: [] for split in RECORD_SPLITS}
    for row in records.as_dicts():
        if row["split"] not in RECORD_SPLITS:
            if row["split"] is None:
                description = "no split"
            else:
                description = f"the split {row['split']!r}"
            raise DatasetError(f"{name}: record {row['id']!r} has {description}; set split to train or validation")
        parts[row["split"]].append(_question_of_record(row, name))
    parts = {split: shuffle_contexts(questions) for split, questions in parts.items()}
    lacking = [split for split, questions in parts.items() if not questions]
    if lacking:
        raise DatasetError(
            f"{name} has no record of the split {lacking[0]}; add questions that the model is trained on (train) and "
            "questions that it never sees (validation)"
        )
    training_contexts = {name for question in parts["train"] for name in (question.context_id, question.context)}
    shared = next(
        (
            question.id
            for question in parts["validation"]
            if {question.context_id, question.context} & training_contexts
        ),
        None,
    )
    if shared is not None:
        raise DatasetError(
            f"{name}: record {shared!r} of the split validation has a context that is also in the split train"
        )
    return QuestionSet(parts["train"], parts["validation"], "squad", records=True)


def records_of(questions: Sequence[Question]) -> Records:
    """Convert questions to records, without answers and splits."""
    rows = []
    for question in questions:
        rows.append({"id": question.id, "context": question.context, "question": question.question})
    return Records(pa.Table.from_pylist(rows, pa.schema([RECORD_SCHEMA.field(name) for name in rows[0]])))


def _question_of_record(row: dict[str, Any], name: str) -> Question:
    if not row["answers"] or any(answer is None or not answer.strip() for answer in row["answers"]):
        raise DatasetError(
            f"{name}: record {row['id']!r} has the answers {row['answers']!r:.80}; they must be a list of at least one "
            "text, without blank texts"
        )
    id_ = row["context_id"] or context_id(row["context"])
    golds = tuple((answer,) for answer in dict.fromkeys(row["answers"]))
    return Question(row["id"], id_, row["context"], row["question"], golds)
