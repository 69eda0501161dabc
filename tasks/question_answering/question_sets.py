"""Questions that somebody else's model is asked: both parts of a set, on contexts as they are and corrupted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tasks.datasets.questions.question import Question, QuestionSet
from tasks.question_answering.corruption import DIGITS, Corruption

Form = Literal["squad", "drop", "records"]
Split = Literal["train", "validation"]
# The sets that are asked: the split of each, and whether its contexts are corrupted.
SETS: Mapping[str, tuple[Split, bool]] = {
    "train": ("train", False),
    "train-corrupted": ("train", True),
    "validation": ("validation", False),
    "validation-corrupted": ("validation", True),
}


@dataclass(frozen=True, eq=False)
class ProbeQuestions:
    """Questions of one set, and the format that they are written in. Their gold answers are told to nobody."""

    questions: Sequence[Question]
    form: Form


@dataclass(frozen=True)
class Selection:
    """The questions of a set that are asked: the first so many for training, and of those held out (0: all).

    With `numeric` only those of them whose first gold answer has a digit.
    """

    examples: int = 0
    held_out: int = 0
    numeric: bool = False

    def select(self, questions: QuestionSet) -> Mapping[Split, Sequence[Question]]:
        """The questions by split; ValueError where there are not so many, or none is numeric."""
        return {
            "train": self._select_split("examples", self.examples, questions.train),
            "validation": self._select_split("held_out", self.held_out, questions.validation),
        }

    def _select_split(self, name: str, count: int, questions: Sequence[Question]) -> list[Question]:
        if count > len(questions):
            raise ValueError(f"{name} is {count}; the data has {len(questions)} such questions")
        chosen = [question for question in questions[: count or None] if not self.numeric or is_numeric(question)]
        if not chosen:
            raise ValueError(f"none of the {name} has an answer with a digit, and numeric questions alone are asked")
        return chosen


ALL_QUESTIONS = Selection()


def is_numeric(question: Question) -> bool:
    """Whether the first gold answer has a digit."""
    return any(DIGITS.search(span) for span in question.golds[0])


def probe_sets(
    questions: QuestionSet, corruption: Corruption, selection: Selection = ALL_QUESTIONS
) -> Iterator[tuple[str, ProbeQuestions]]:
    """The names and questions of SETS."""
    parts = selection.select(questions)
    form: Form = "records" if questions.records else questions.scorer
    for name, (split, corrupted) in SETS.items():
        chosen = parts[split]
        yield (
            name,
            ProbeQuestions([corrupt_question(each, corruption) for each in chosen] if corrupted else chosen, form),
        )


def corrupt_question(question: Question, corruption: Corruption) -> Question:
    return replace(question, context=corruption.corrupt_context(question))
