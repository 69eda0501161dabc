"""Answers that evade corrupted contexts: their shares in either part, and how large a memory they may hide."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tasks.audits.relational.measures.evasions import FEW_TEXTS, ONE_TEXT, OTHER_KIND, PARTS, RIGHT, UNANSWERED
from tasks.contract.summaries import Rows, p_in_words, row_name

# Of a part's answers to corrupted contexts:
MOST_OTHER_KIND = 0.95  # that are not of the kind of the reference answers; with 0.9, 5 of 32 trained readers had more
MOST_FIXED = 0.9  # that are one text, above its share of the reference answers; 32 trained readers reached 0.86
FEW_RIGHT = 0.005  # p-value below which a part has fewer right answers than the best constant
UNEVEN = 1.96  # standard errors by which one part may be evaded more than the other


@dataclass(frozen=True)
class Evasion:
    """Shares of a part's `questions`, by their answers to corrupted contexts.

    `other_kind` are not of the kind of the reference answers, the `unanswered` among them. `one_text` and `few_texts`
    are the shares of the commonest remaining answers, above their shares of the reference answers. `right` is a share
    of the answers of the kind, and `p_value` tests whether it is smaller than that of the best constant, `constant`.
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
        """The share that may hide a memory: answers of another kind, and a few texts instead of many."""
        return min(1.0, self.other_kind + max(0.0, self.few_texts))

    @property
    def has_few_right(self) -> bool:
        return self.p_value <= FEW_RIGHT


def read_evasions(rows: Rows) -> Iterator[Evasion]:
    """The evasions of both parts; none unless answers were sent."""
    for split in PARTS:
        shares = [rows.get(row_name(metric, split=split, contexts="corrupted")) for metric in SHARES]
        present = [each for each in shares if each is not None and each["estimate"] is not None]
        right = rows.get(row_name(RIGHT, split=split, contexts="corrupted"))
        if right is None or len(present) < len(SHARES):
            continue
        other_kind, unanswered, one_text, few_texts = (each["estimate"] for each in present)
        yield Evasion(
            questions=present[0]["n"],
            other_kind=other_kind,
            unanswered=unanswered,
            one_text=one_text,
            few_texts=few_texts,
            right=right["estimate"] or 0.0,  # without an answer of the kind there is no share
            constant=right["null"],
            p_value=right["p_value"],
        )


SHARES = (OTHER_KIND, UNANSWERED, ONE_TEXT, FEW_TEXTS)


def upper_limit(high: float, evasions: Sequence[Evasion]) -> float:
    """The upper limit of relational m if the evaded questions were answered as the others are.

    high / (1 - the larger evaded share), plus the difference if training questions are evaded significantly more often
    than held-out ones: an owner who recognises training questions may evade the remembered ones.
    """
    if not evasions:
        return high
    share = max(evasion.evaded for evasion in evasions)
    corrected = high / (1 - share) if share < 1 else math.inf
    return max(high, corrected) + _uneven_share(*evasions)


def _uneven_share(train: Evasion, held_out: Evasion) -> float:
    """The difference of the evaded shares; 0 unless that of training questions is UNEVEN standard errors larger."""
    difference = train.evaded - held_out.evaded
    variance = 0.0
    for part in (train, held_out):
        variance += part.evaded * (1 - part.evaded) / max(1, part.questions)
    return difference if difference > UNEVEN * math.sqrt(variance) else 0.0


def describe_other_kind(evasion: Evasion) -> str:
    """The share of answers of another kind, and the empty ones among them."""
    some = f"{100 * evasion.other_kind:.0f} % of the answers are not of the kind of the reference answers"
    if not evasion.unanswered:
        return some
    return f"{some} ({100 * evasion.unanswered:.0f} % are empty)"


def describe_few_right(evasion: Evasion) -> str:
    """The right answers of a part compared with those of the best constant."""
    answers = round(evasion.questions * (1 - evasion.other_kind))
    return (
        f"of {answers:,} answers to corrupted contexts {100 * evasion.right:.1f} % are right, fewer than the "
        f"{100 * evasion.constant:.1f} % of the best constant ({p_in_words(evasion.p_value)})"
    )
