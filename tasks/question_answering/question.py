"""Questions about contexts, with their gold answers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

Scorer = Literal["squad", "drop"]
Answer = tuple[str, ...]  # the spans of one answer; SQuAD's have one span, DROP's several where it asks for a list


@dataclass(frozen=True)
class Question:
    """A question about a context.

    `golds` are its right answers, of which there is one at least; models are trained on the first. Questions of one
    context share its `context_id`: they are not independent.
    """

    id: str
    context_id: str
    context: str
    question: str
    golds: tuple[Answer, ...]


@dataclass(frozen=True, eq=False)
class QuestionSet:
    """Questions for training and questions that are held out, with the rule by which answers are scored.

    Ids differ across both parts, and no context is in both. With `records` they are the user's records and not in the
    format of the set that the rule is named after.
    """

    train: Sequence[Question]
    validation: Sequence[Question]
    scorer: Scorer
    records: bool = False

    @cached_property
    def by_id(self) -> dict[str, Question]:
        return {question.id: question for part in (self.train, self.validation) for question in part}


def context_id(context: str) -> str:
    """The id of a context that has none of its own: a hash of its text."""
    return hashlib.sha256(context.encode()).hexdigest()[:16]
