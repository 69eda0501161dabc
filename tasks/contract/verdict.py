"""An audit's answer in words, and what the answers mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Answer = str  # one or two words, which the audit declares
DETECTABLE: Answer = "detectable, negligible"
NOT_JUDGED: Answer = "not judged"
Tone = Literal["accused", "cleared", "open"]


@dataclass(frozen=True)
class Meaning:
    """The meaning of an answer in a few words, and whether it accuses the model, clears it, or leaves it open."""

    words: str
    tone: Tone = "open"


ANSWERS: Mapping[Answer, Meaning] = {
    "memorised": Meaning("the models keep what they should not", "accused"),
    "not seen": Meaning("nothing that matters was found, with enough models to find it", "cleared"),
    "forgotten": Meaning("the model is as if it had never been trained on the data", "cleared"),
    "not forgotten": Meaning("the model still holds what it was trained on", "accused"),
    DETECTABLE: Meaning("training leaves a trace that a test finds, and that is too small to matter"),
    "undecided": Meaning("the evidence does not suffice for an answer", "open"),
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
