"""An audit's answer in words, and what the answers mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Answer = str  # one or two words, which the audit declares
BELOW_RELEVANT_SIZE: Answer = "below the relevant size"
NOT_ASSESSABLE: Answer = "not assessable"
Tone = Literal["accused", "cleared", "open"]


@dataclass(frozen=True)
class Meaning:
    """The meaning of an answer in a few words, and whether it accuses the model, clears it, or leaves it open."""

    words: str
    tone: Tone = "open"


ANSWERS: Mapping[Answer, Meaning] = {
    "memorised": Meaning("the audit found that the models retain their training data", "accused"),
    "not detected": Meaning("no memory was found, and an effect of relevant size would have been detected", "cleared"),
    "forgotten": Meaning("the model behaves like one that was never trained on the data", "cleared"),
    "not forgotten": Meaning("the model still contains what it was trained on", "accused"),
    BELOW_RELEVANT_SIZE: Meaning("an effect of training is measurable, but it is smaller than the size that matters"),
    NOT_ASSESSABLE: Meaning("the evidence is unusable for the reason stated, so it supports no conclusion"),
    "undecided": Meaning("the evidence is not sufficient for an answer in either direction", "open"),
}


@dataclass(frozen=True)
class Verdict:
    """An audit's answer in words.

    `answer` is one of those that the audit declares, `sentence` the answer with its evidence in one sentence, `limits`
    what it does not say. `rows` are the (metric, setting) of the summary rows that carry it, the first one first.
    `published` is what the paper's own test or score says, which decides nothing; empty where that is not known.
    """

    answer: Answer
    sentence: str
    limits: str
    rows: tuple[tuple[str, str], ...]
    published: str = ""

    @property
    def limits_in_full(self) -> str:
        """What the paper's own test says and what the answer does not, as one text."""
        return " ".join(filter(None, (self.published, self.limits)))
