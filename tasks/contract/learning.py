"""Whether a model has learnt its task: the accuracy in a summary, and the sentence that comes first if it is at chance.

A model at chance has nothing to show: neither a finding nor its absence says anything of a training that works. An
audit that knows its models' accuracy writes `accuracy_row`, and every answer about them then begins with the sentence.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.contract.certificate import Certificate
from tasks.contract.summaries import Estimate, Row, index_rows, row, select_rows

ACCURACY = "accuracy of the models"


def accuracy_row(accuracy: Estimate, on: str, chance: float | None, unit: str) -> Row:
    """The summary row of the models' accuracy on some images or questions; `chance` is that of the best constant."""
    return row(ACCURACY, {"on": on}, accuracy, unit, chance)


def chance_accuracy(labels: NDArray[np.int64]) -> float:
    """The accuracy of the best constant answer: the share of the commonest label."""
    return float(np.bincount(labels).max() / len(labels))


def describe_unlearnt(summary: pa.Table) -> str:
    """That the models have not learnt their task, a sentence; empty if they have, or nothing is known of it."""
    for each in select_rows(index_rows(summary), ACCURACY):
        if is_at_chance(each):
            return (
                f"The models have not learnt their task: their accuracy is {100 * each['estimate']:.3g} %, and a "
                f"constant answer reaches {100 * each['null']:.3g} %."
            )
    return ""


def is_at_chance(accuracy: Row) -> bool:
    """Whether the lower limit of an accuracy, or the accuracy if it has none, is no better than a constant answer."""
    if accuracy["estimate"] is None or accuracy["null"] is None:
        return False
    low = accuracy["estimate"] if accuracy["low"] is None else accuracy["low"]
    return bool(low <= accuracy["null"])


def begin_unlearnt(sentence: str, answer: str, unlearnt: str) -> str:
    """The sentence of a verdict with `unlearnt` after its answer: `Memorised: The models have not learnt ...`."""
    lead = f"{answer.capitalize()}: "
    if not unlearnt:
        return sentence
    rest = sentence.removeprefix(lead)
    start = lead if sentence.startswith(lead) else ""
    return f"{start}{unlearnt} {rest[:1].upper()}{rest[1:]}"


def add_unlearnt(certificate: Certificate, unlearnt: str) -> Certificate:
    """The certificate whose first finding begins with it."""
    if not unlearnt:
        return certificate
    first, *rest = certificate.findings
    return replace(certificate, findings=(replace(first, sentence=f"{unlearnt} {first.sentence}"), *rest))
