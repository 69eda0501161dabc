"""The answers that audits can give, and what they mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tasks.contract.conditions import Condition

Answer = str  # one or two words, declared by the audit
BELOW_RELEVANT_SIZE: Answer = "below the relevant size"
NOT_ASSESSABLE: Answer = "not assessable"
DISTINGUISHABLE: Answer = "distinguishable"
Tone = Literal["accused", "cleared", "open"]


@dataclass(frozen=True)
class Meaning:
    """The meaning of an answer in a few words, and whether it accuses or clears the model.

    `implication` states in one sentence what the answer means for the people in the data. It is empty if nothing
    follows.
    """

    words: str
    tone: Tone = "open"
    implication: str = ""


ANSWERS: Mapping[Answer, Meaning] = {
    "memorised": Meaning("the audit found that the models retain some of their training data", "accused"),
    "not detected": Meaning("no memory was found, and an effect of relevant size would have been detected", "cleared"),
    "forgotten": Meaning("the model behaves like one that was never trained on the data", "cleared"),
    "not forgotten": Meaning("the model still contains what it was trained on", "accused"),
    BELOW_RELEVANT_SIZE: Meaning("an effect of training is measurable, but it is smaller than the size that matters"),
    NOT_ASSESSABLE: Meaning("the evidence is unusable for the reason stated, so it supports no conclusion"),
    "undecided": Meaning("the evidence is not sufficient for an answer in either direction", "open"),
}
COMMON_ANSWERS: tuple[Answer, ...] = ("undecided", NOT_ASSESSABLE)  # of every audit


def select_meanings(answers: Sequence[Answer], implications: Mapping[Answer, str]) -> dict[Answer, Meaning]:
    """The meanings of these answers of ANSWERS and of COMMON_ANSWERS, with the audit's own implications."""
    meanings = {}
    for answer in (*answers, *COMMON_ANSWERS):
        meanings[answer] = replace(ANSWERS[answer], implication=implications.get(answer, ""))
    return meanings


@dataclass(frozen=True)
class Verdict:
    """The answer of an audit in words.

    `answer` is one of those that the audit declares, `sentence` gives the answer and its evidence in one sentence, and
    `limits` states the conclusions that the answer does not support. `rows` contains the (metric, setting) keys of the
    summary rows that the answer is based on, the most important first. `items` are the parts of the sentence about
    single models or targets, if there are several; lists show them one below another. `published` is the result of the
    paper's own test or score, which does not affect the answer; it is empty if unknown. `conditions` must be true for
    the answer to hold.
    """

    answer: Answer
    sentence: str
    limits: str
    rows: tuple[tuple[str, str], ...]
    published: str = ""
    conditions: tuple[Condition, ...] = ()
    items: tuple[str, ...] = ()

    @property
    def paragraphs(self) -> tuple[str, ...]:
        """The sentence in paragraphs: what precedes the items, each item after a dash, and what follows them.

        One paragraph without items, and if the sentence was changed so that it no longer contains them.
        """
        rest = self.sentence
        parts = []
        for item in self.items:
            before, found, rest = rest.partition(item)
            if not found:
                return (self.sentence,)
            parts += [before.strip("; "), f"- {item}"]
        return tuple(part for part in (*parts, rest.lstrip(". ")) if part)

    @property
    def limits_in_full(self) -> str:
        """The result of the paper's test, the limits of the answer and its conditions, as one text."""
        conditions = [f"Condition: {condition.text}" for condition in self.conditions]
        return " ".join(filter(None, (self.published, self.limits, *conditions)))
