"""Questions about contexts, with their gold answers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from tasks import seeds

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


def redrawn(questions: QuestionSet, seed: int) -> QuestionSet:
    """The same questions with the contexts of each part drawn at random: both parts are then drawn alike.

    Contexts, in an order by chance, go to training until it has at least as many questions as before; the others are
    held out. ValueError where none would be.
    """
    of_context: dict[str, list[Question]] = {}
    for question in questions.by_id.values():
        of_context.setdefault(question.context_id, []).append(question)
    names = list(of_context)
    order = [names[place] for place in seeds.generator(seed, "parts").permutation(len(names))]
    parts: tuple[list[Question], list[Question]] = ([], [])
    for name in order:
        parts[len(parts[0]) >= len(questions.train)].extend(of_context[name])
    if not parts[1]:
        raise ValueError(f"there are {len(names)} contexts; too few to hold some out by chance")
    return replace(questions, train=parts[0], validation=parts[1])


def context_id(context: str) -> str:
    """The id of a context that has none of its own: a hash of its text."""
    return hashlib.sha256(context.encode()).hexdigest()[:16]
