"""Question sets: both parts of a data set, on whole and on corrupted contexts, and the answers as a table.

Corruption removes part of a context, so that the answer can no longer be read from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Literal

import pyarrow as pa

from tasks.contract.ranges import Ranged
from tasks.datasets.features.kinds import word_pattern as letters
from tasks.datasets.questions.question import Question, QuestionSet
from tasks.worker.files import WITHHELD

DIGITS = re.compile(r"[0-9]")
# If a span begins or ends with a digit, it must not be part of a longer number; with a letter, not part of a longer
# word.
NUMBER_BEFORE = r"(?<![0-9])(?<![0-9][.,])"
NUMBER_AFTER = r"(?![0-9]|[.,][0-9])"
LETTER_BEFORE = r"(?<![^\W\d_])"
LETTER_AFTER = r"(?![^\W\d_])"


@dataclass(frozen=True)
class _Removal(Ranged):
    """A change to contexts that leaves questions unchanged."""

    @property
    def mask(self) -> str:
        """The text that replaces removed parts."""
        return ""

    def corrupt_context(self, question: Question) -> str:
        """Return the question's context without the removed parts."""
        return self.removal_pattern(question).sub(self.replacement, question.context)

    def removal_pattern(self, question: Question) -> re.Pattern[str]:
        """Return a regular expression that matches the parts of this question's context to remove."""
        raise NotImplementedError

    def replacement(self, match: re.Match[str]) -> str:
        return self.mask if match.group() else ""  # a pattern may also match between two characters


@dataclass(frozen=True)
class DigitRemoval(_Removal):
    """Removal of every digit, so that "23.5%" becomes ".%": Bombari et al. 2022, section 6.1."""

    tag: ClassVar[str] = "digits"

    def removal_pattern(self, question: Question) -> re.Pattern[str]:  # noqa: ARG002
        return DIGITS


@dataclass(frozen=True)
class NameRemoval(_Removal):
    """Removal of every whole word or phrase in a list."""

    tag: ClassVar[str] = "names"

    names: tuple[str, ...] = field(metadata={WITHHELD: letters})
    """Words and phrases, spelled as in the contexts."""
    mask: str = ""  # a field that replaces the property
    """Text that replaces the removed words and phrases."""

    def conflicts(self) -> Iterator[str]:
        if not self.names:
            yield "names is empty; it must have at least one word or phrase"
        blank = next((name for name in self.names if name != name.strip() or not name), None)
        if blank is not None:
            yield f"names has {blank!r}; each must be a word or a phrase without spaces at its ends"

    def removal_pattern(self, question: Question) -> re.Pattern[str]:  # noqa: ARG002
        return self._name_pattern

    @cached_property
    def _name_pattern(self) -> re.Pattern[str]:
        return _alternation([rf"(?<!\w){re.escape(name)}(?!\w)" for name in _longest_first(self.names)])


@dataclass(frozen=True)
class PatternRemoval(_Removal):
    """Removal of every match of a regular expression."""

    tag: ClassVar[str] = "pattern"

    pattern: str
    """Regular expression."""
    mask: str = ""  # a field that replaces the property
    """Text that replaces a match."""

    def conflicts(self) -> Iterator[str]:
        if not self.pattern:
            yield "pattern is empty; it must be a regular expression"
        try:
            re.compile(self.pattern)
        except re.error as error:
            yield f"pattern is {self.pattern!r}; it must be a regular expression: {error}"

    def removal_pattern(self, question: Question) -> re.Pattern[str]:  # noqa: ARG002
        return re.compile(self.pattern)


@dataclass(frozen=True)
class AnswerRemoval(_Removal):
    """Removal of every occurrence of a gold answer, whether in upper or lower case.

    Parts of longer words or numbers do not count as occurrences.
    """

    tag: ClassVar[str] = "answers"

    mask: str = ""  # a field that replaces the property
    """Text that replaces a removed answer."""

    def removal_pattern(self, question: Question) -> re.Pattern[str]:
        spans = {span.strip() for gold in question.golds for span in gold} - {""}
        return _alternation([_whole_span_pattern(span) for span in _longest_first(spans)], re.IGNORECASE)


Corruption = DigitRemoval | NameRemoval | PatternRemoval | AnswerRemoval


def _longest_first(texts: set[str] | tuple[str, ...]) -> list[str]:
    """Sort texts from longest to shortest, so that no text is hidden by a shorter prefix."""
    return sorted(texts, key=lambda text: (-len(text), text))


def _alternation(expressions: list[str], flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
    return re.compile("|".join(expressions), flags)


def _whole_span_pattern(span: str) -> str:
    """Return a pattern for a span that is not part of a longer number or word."""
    before = ""
    if span[0] in "0123456789":
        before = NUMBER_BEFORE
    elif span[0].isalpha():
        before = LETTER_BEFORE
    after = ""
    if span[-1] in "0123456789":
        after = NUMBER_AFTER
    elif span[-1].isalpha():
        after = LETTER_AFTER
    return f"{before}{re.escape(span)}{after}"


Form = Literal["squad", "drop", "records"]
Split = Literal["train", "validation"]
# The split of each set, and whether its contexts are corrupted.
SETS: Mapping[str, tuple[Split, bool]] = {
    "train": ("train", False),
    "train-corrupted": ("train", True),
    "validation": ("validation", False),
    "validation-corrupted": ("validation", True),
}


@dataclass(frozen=True, eq=False)
class ProbeQuestions:
    """The questions of one set and their file format. Their gold answers are never written."""

    questions: Sequence[Question]
    form: Form


@dataclass(frozen=True)
class Selection:
    """The selected questions: the first `examples` training questions and the first `held_out` held-out ones (0: all).

    With `numeric`, only questions whose first gold answer contains a digit are selected.
    """

    examples: int = 0
    held_out: int = 0
    numeric: bool = False

    def select(self, questions: QuestionSet) -> Mapping[Split, Sequence[Question]]:
        """Select the questions by split. Raises ValueError if there are too few, or no numeric ones."""
        return {
            "train": self._select_split("examples", self.examples, questions.train),
            "validation": self._select_split("held_out", self.held_out, questions.validation),
        }

    def _select_split(self, name: str, count: int, questions: Sequence[Question]) -> list[Question]:
        if count > len(questions):
            raise ValueError(f"{name} is {count}; the data has {len(questions)} such questions")
        selected = []
        for question in questions[: count or None]:
            if not self.numeric or is_numeric(question):
                selected.append(question)
        if not selected:
            raise ValueError(f"{name}: no question has a numeric answer, and numeric is true. Set numeric=false.")
        return selected


ALL_QUESTIONS = Selection()


def is_numeric(question: Question) -> bool:
    """Return whether the first gold answer contains a digit."""
    return any(DIGITS.search(span) for span in question.golds[0])


def probe_sets(
    questions: QuestionSet, corruption: Corruption, selection: Selection = ALL_QUESTIONS
) -> Iterator[tuple[str, ProbeQuestions]]:
    """Yield the name and questions of each of SETS."""
    parts = selection.select(questions)
    form: Form = "records" if questions.records else questions.scorer
    for name, (split, corrupted) in SETS.items():
        selected = parts[split]
        if corrupted:
            selected = [replace(question, context=corruption.corrupt_context(question)) for question in selected]
        yield name, ProbeQuestions(selected, form)


# One row per question, kind of context and evaluated epoch.
ANSWERS = pa.schema(
    [
        ("epoch", pa.int64()),  # 0: before training; null if the training is unknown
        ("split", pa.string()),  # train or validation
        ("corrupted", pa.bool_()),
        ("id", pa.string()),
        ("answer", pa.list_(pa.string())),  # the spans; empty without an answer
        ("train_loss", pa.float64()),  # nats per token in that epoch; null before training
    ]
)
