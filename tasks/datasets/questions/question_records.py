"""Questions as records of the user's own: a file of JSON Lines or Parquet.

{"id": "1", "context": "...", "question": "...", "answers": ["4", "four"], "split": "train"}

Each of `answers` is a right one; models are trained on the first. `split` is train or validation. Questions with one
`context_id` belong to one context; where there is none, the text of the context says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tasks.datasets.dataset import DatasetError
from tasks.datasets.questions.question import Question, QuestionSet, context_id
from tasks.datasets.records import Records

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        pa.field("context", pa.string(), nullable=False),
        pa.field("question", pa.string(), nullable=False),
        pa.field("answers", pa.list_(pa.string()), nullable=False),
        ("split", pa.string()),
        ("context_id", pa.string()),
    ]
)
SPLITS = ("train", "validation")


def question_set(records: Records, name: str) -> QuestionSet:
    """The questions of the data set of this name; DatasetError, naming the record, where they are not as above.

    Answers are scored as SQuAD's.
    """
    parts: dict[str, list[Question]] = {split: [] for split in SPLITS}
    for row in records.as_dicts():
        if row["split"] not in SPLITS:
            given = "no split" if row["split"] is None else f"the split {row['split']!r}"
            raise DatasetError(f"{name}: record {row['id']!r} has {given}; give each the split train or validation")
        parts[row["split"]].append(_question(row, name))
    lacking = [split for split, questions in parts.items() if not questions]
    if lacking:
        raise DatasetError(
            f"{name} has no record of the split {lacking[0]}; it needs questions that the model is trained on (train) "
            "and others that it never sees (validation)"
        )
    seen = {question.context_id for question in parts["train"]}
    shared = next((question.id for question in parts["validation"] if question.context_id in seen), None)
    if shared is not None:
        raise DatasetError(f"{name}: record {shared!r} of the split validation has a context of the split train, too")
    return QuestionSet(parts["train"], parts["validation"], "squad", records=True)


def records_of(questions: Sequence[Question]) -> Records:
    """The questions as such records, without their answers and split."""
    rows = [{"id": each.id, "context": each.context, "question": each.question} for each in questions]
    return Records(pa.Table.from_pylist(rows, pa.schema([SCHEMA.field(name) for name in rows[0]])))


def _question(row: dict[str, Any], name: str) -> Question:
    if not row["answers"] or any(answer is None or not answer.strip() for answer in row["answers"]):
        raise DatasetError(
            f"{name}: record {row['id']!r} has the answers {row['answers']!r:.80}; they must be a list of at least one "
            "text, and none of them blank"
        )
    id_ = row["context_id"] or context_id(row["context"])
    golds = tuple((answer,) for answer in dict.fromkeys(row["answers"]))
    return Question(row["id"], id_, row["context"], row["question"], golds)
