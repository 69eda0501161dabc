"""Answers that evade questions on corrupted contexts: how many there are, and how much memory they can hide."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tasks.audits.relational.measures.evasions import FEW_TEXTS, ONE_TEXT, OTHER_KIND, PARTS, RIGHT, UNANSWERED
from tasks.contract.summaries import Rows, p_in_words, row_name

# Each of these is a share of the answers to the corrupted contexts of one part.
MOST_OTHER_KIND = 0.95  # not of the kind of the reference answers; 5 of 32 trained readers exceeded 0.9
MOST_FIXED = 0.9  # the most common text, minus its share of the reference answers; 32 trained readers reached 0.86
FEW_RIGHT = 0.005  # p-value below which a part has fewer correct answers than the best constant answer
UNEVEN = 1.96  # tolerated difference between the parts, in standard errors


@dataclass(frozen=True)
class Evasion:
    """How the `questions` of one part were answered on corrupted contexts, as shares.

    `other_kind` counts answers that are not of the kind of the reference answers, including the `unanswered` ones.
    `one_text` and `few_texts` are the shares of the most common remaining answers minus their shares of the reference
    answers. `right` is the share of correct answers among answers of the right kind. `p_value` tests whether `right` is
    smaller than `constant`, the accuracy of the best constant answer.
    """

    questions: int
    other_kind: float = 0.0
    unanswered: float = 0.0
    one_text: float = 0.0
    few_texts: float = 0.0
    right: float = 0.0
    constant: float = 0.0
    p_value: float = 1.0

    @property
    def evaded(self) -> float:
        """Share of answers that can hide memory: answers of another kind plus the excess of the most common texts."""
        return min(1.0, self.other_kind + max(0.0, self.few_texts))

    @property
    def has_few_right(self) -> bool:
        return self.p_value <= FEW_RIGHT


def read_evasions(rows: Rows) -> Iterator[Evasion]:
    """Yield the evasions of both parts. Yields nothing unless answers were returned."""
    for split in PARTS:
        shares = []
        for metric in SHARES:
            shares.append(rows.get(row_name(metric, split=split, contexts="corrupted")))
        present = [row for row in shares if row is not None and row["estimate"] is not None]
        right = rows.get(row_name(RIGHT, split=split, contexts="corrupted"))
        if right is None or len(present) < len(SHARES):
            continue
        other_kind, unanswered, one_text, few_texts = (row["estimate"] for row in present)
        yield Evasion(
            questions=present[0]["n"],
            other_kind=other_kind,
            unanswered=unanswered,
            one_text=one_text,
            few_texts=few_texts,
            right=right["estimate"] or 0.0,  # None if no answer is of the right kind
            constant=right["null"],
            p_value=right["p_value"],
        )


SHARES = (OTHER_KIND, UNANSWERED, ONE_TEXT, FEW_TEXTS)


def upper_limit(high: float, evasions: Sequence[Evasion]) -> float:
    """Return an upper limit of relational m, assuming that evaded questions would have been answered like the others.

    The limit is high / (1 - the larger evaded share). If training questions are evaded significantly more often than
    held-out ones, the difference of the two shares is added, because an owner who recognises training questions may
    evade those that the system remembers.
    """
    if not evasions:
        return high
    share = max(evasion.evaded for evasion in evasions)
    corrected = high / (1 - share) if share < 1 else math.inf
    return max(high, corrected) + _uneven_share(*evasions)


def _uneven_share(train: Evasion, held_out: Evasion) -> float:
    """Return the difference of the evaded shares, or 0 if it is at most UNEVEN standard errors."""
    difference = train.evaded - held_out.evaded
    variance = 0.0
    for part in (train, held_out):
        variance += part.evaded * (1 - part.evaded) / max(1, part.questions)
    return difference if difference > UNEVEN * math.sqrt(variance) else 0.0


def describe_other_kind(evasion: Evasion) -> str:
    """Describe the share of answers of another kind, and how many of them are empty."""
    sentence = f"{100 * evasion.other_kind:.0f} % of the answers are not of the kind of the reference answers"
    if not evasion.unanswered:
        return sentence
    return f"{sentence} ({100 * evasion.unanswered:.0f} % are empty)"


def describe_few_right(evasion: Evasion) -> str:
    """Compare the share of correct answers in a part with the accuracy of the best constant answer."""
    answers = round(evasion.questions * (1 - evasion.other_kind))
    return (
        f"{100 * evasion.right:.1f} % of {answers:,} answers to corrupted contexts are correct, fewer than the "
        f"{100 * evasion.constant:.1f} % of the best constant answer ({p_in_words(evasion.p_value)})"
    )
