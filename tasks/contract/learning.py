"""Whether a model has learnt its task: a row of the summary, and the sentence that comes first if it is at chance.

A model at chance has nothing to show: neither a finding nor its absence says anything about a training that works. So
every audit writes a row of how well its models do beside the best constant answer, and every answer about models that
do no better begins with the sentence. A classifier or a reader has an accuracy, and a model of a distribution, such as
a language model, a mean log-probability. The best constant of an accuracy is the commonest label, that of a
log-probability a distribution that is the same whatever was read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.contract.certificate import Certificate
from tasks.contract.summaries import (
    Estimate,
    Row,
    blank_weak_interval,
    index_rows,
    read_setting,
    row,
    select_rows,
)

ACCURACY, LOG_P = "accuracy of the models", "mean log-probability by the models"
MODELS = "models"  # whose row it is, unless it says otherwise


def accuracy_row(accuracy: Estimate, on: str, chance: float | None, unit: str, of: str = MODELS) -> Row:
    """The summary row of an accuracy `on` some images or questions; `chance` is that of the best constant answer.

    `of` names the model in the singular ("given model"); without it the row is that of the models trained here.
    """
    return row(ACCURACY, _row_setting(on, of), accuracy, unit, chance)


def log_p_row(log_p: float, constant: float, difference: Estimate, on: str, unit: str, of: str = MODELS) -> Row:
    """The summary row of a mean log-probability in nats; `constant` is that of the best constant distribution.

    Both vary with the item, so the limits in the row are the constant plus those of the `difference`.
    """
    low, high = (None if end is None else constant + end for end in (difference.low, difference.high))
    return row(LOG_P, _row_setting(on, of), Estimate(log_p, low, high, difference.n), unit, constant)


def _row_setting(on: str, of: str) -> dict[str, str]:
    return {"on": on} if of == MODELS else {"on": on, "of": of}


def chance_accuracy(labels: NDArray[np.integer]) -> float:
    """The accuracy of the best constant answer: the share of the commonest label."""
    return float(np.bincount(labels).max() / len(labels))


def commonest_share(answers: Iterable[Hashable]) -> float | None:
    """The same of answers that are not numbered; None without any."""
    counts = Counter(answers)
    return max(counts.values()) / counts.total() if counts else None


def describe_unlearnt(summary: pa.Table) -> str:
    """Sentences on the models that have not learnt their task; empty if all have, or nothing is known."""
    rows = index_rows(summary)
    candidates = (*select_rows(rows, ACCURACY), *select_rows(rows, LOG_P))
    return " ".join(_unlearnt_sentence(each) for each in candidates if is_at_chance(each))


def _unlearnt_sentence(at_chance: Row) -> str:
    setting = read_setting(at_chance)
    whose = setting.get("of", MODELS)
    start, its = (
        (f"The {MODELS} have not learnt their task", "their")
        if whose == MODELS
        else (f"The {whose} has not learnt its task", "its")
    )
    if at_chance["metric"] == ACCURACY:
        value = f"{its} accuracy on {setting['on']} is {_format_value(at_chance, 100, ' %')}"
        return f"{start}: {value}, and a constant answer reaches {100 * at_chance['null']:.3g} %."
    value = f"{its} mean log-probability of {setting['on']} is {_format_value(at_chance, 1, ' nats')}"
    return f"{start}: {value}, and that by a constant distribution is {at_chance['null']:.4g} nats."


def _format_value(estimate: Row, scale: float, unit: str) -> str:
    """The estimate, with its interval if it has one that its sample can bear."""
    digits = ".3g" if scale > 1 else ".4g"
    shown = blank_weak_interval(estimate)
    value = f"{scale * shown['estimate']:{digits}}{unit}"
    if shown["low"] is None or shown["high"] is None:
        return value
    return f"{value} (95 % interval {scale * shown['low']:{digits}} to {scale * shown['high']:{digits}}{unit})"


def is_at_chance(skill: Row) -> bool:
    """Whether the lower limit of such a row is no better than the best constant; without a limit, the estimate."""
    if skill["estimate"] is None or skill["null"] is None:
        return False
    low = blank_weak_interval(skill)["low"]
    return bool((skill["estimate"] if low is None else low) <= skill["null"])


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
