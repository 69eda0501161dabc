"""Whether a model has learnt its task: a summary row, and the first sentence of the answer if the model has not.

A model at chance level supports no conclusion, because neither a finding nor its absence says anything about training
that works. Every audit therefore writes a row that compares its models with the best constant answer, and every answer
about models at chance level begins with a sentence that says so. For a classifier or reader, the row contains its
accuracy; for a model of a distribution, such as a language model, the mean log-probability. The best constant answer is
the most common label for an accuracy, and a distribution that does not depend on the context for a log-probability.
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

ACCURACY = "accuracy of the models"
LOG_P = "mean log-probability by the models"
MODELS = "models"  # the default subject of a row


def accuracy_row(accuracy: Estimate, on: str, chance: float | None, unit: str, model_name: str = MODELS) -> Row:
    """Return the summary row of an accuracy on the items named by `on`.

    `chance` is the accuracy of the best constant answer. `model_name` names the model in the singular ("given model");
    the default refers to the models trained by the audit.
    """
    return row(ACCURACY, _row_setting(on, model_name), accuracy, unit, chance)


def log_p_row(log_p: float, constant: float, difference: Estimate, on: str, unit: str, model_name: str = MODELS) -> Row:
    """Return the summary row of a mean log-probability in nats.

    `constant` is the mean log-probability under the best constant distribution. Because both means vary with the items,
    the interval in the row is the interval of `difference` shifted by `constant`.
    """
    low = None if difference.low is None else constant + difference.low
    high = None if difference.high is None else constant + difference.high
    return row(LOG_P, _row_setting(on, model_name), Estimate(log_p, low, high, difference.n), unit, constant)


def _row_setting(on: str, model_name: str) -> dict[str, str]:
    if model_name == MODELS:
        return {"on": on}
    return {"on": on, "of": model_name}


def chance_accuracy(labels: NDArray[np.integer]) -> float:
    """Return the accuracy of the best constant answer: the share of the most common label."""
    return float(np.bincount(labels).max() / len(labels))


def commonest_share(answers: Iterable[Hashable]) -> float | None:
    """Return the share of the most common answer, for answers of any type, or None if there are no answers."""
    counts = Counter(answers)
    return max(counts.values()) / counts.total() if counts else None


def describe_unlearnt(summary: pa.Table) -> str:
    """Return sentences on the models that have not learnt their task.

    Returns an empty string if all models have learnt it, or if this is unknown.
    """
    rows = index_rows(summary)
    candidates = (*select_rows(rows, ACCURACY), *select_rows(rows, LOG_P))
    return " ".join(_unlearnt_sentence(row) for row in candidates if is_at_chance(row))


def _unlearnt_sentence(at_chance: Row) -> str:
    setting = read_setting(at_chance)
    model_name = setting.get("of", MODELS)
    if model_name == MODELS:
        start = f"The {MODELS} have not learnt their task"
        its = "their"
    else:
        start = f"The {model_name} has not learnt its task"
        its = "its"
    if at_chance["metric"] == ACCURACY:
        value = f"{its} accuracy on {setting['on']} is {_format_value(at_chance, 100, ' %')}"
        return f"{start}: {value}, and a constant answer reaches {100 * at_chance['null']:.3g} %."
    value = f"{its} mean log-probability of {setting['on']} is {_format_value(at_chance, 1, ' nats')}"
    return f"{start}: {value}, and that by a constant distribution is {at_chance['null']:.4g} nats."


def _format_value(estimate: Row, scale: float, unit: str) -> str:
    """Format the estimate, with its interval unless the sample is too small for one."""
    digits = ".3g" if scale > 1 else ".4g"
    printed = blank_weak_interval(estimate)
    value = f"{scale * printed['estimate']:{digits}}{unit}"
    if printed["low"] is None or printed["high"] is None:
        return value
    return f"{value} (95 % interval {scale * printed['low']:{digits}} to {scale * printed['high']:{digits}}{unit})"


def is_at_chance(skill: Row) -> bool:
    """Return whether the model is no better than the best constant answer.

    Compares the lower limit of the row with that of the constant answer, or the estimate if the row has no interval.
    """
    if skill["estimate"] is None or skill["null"] is None:
        return False
    low = blank_weak_interval(skill)["low"]
    return bool((skill["estimate"] if low is None else low) <= skill["null"])


def begin_unlearnt(sentence: str, answer: str, unlearnt: str) -> str:
    """Insert `unlearnt` after the answer in a verdict's sentence: `Memorised: The models have not learnt ...`."""
    lead = f"{answer.capitalize()}: "
    if not unlearnt:
        return sentence
    rest = sentence.removeprefix(lead)
    start = lead if sentence.startswith(lead) else ""
    return f"{start}{unlearnt} {rest[:1].upper()}{rest[1:]}"


def add_unlearnt(certificate: Certificate, unlearnt: str) -> Certificate:
    """Begin the first finding of the certificate with `unlearnt`."""
    if not unlearnt:
        return certificate
    first, *rest = certificate.findings
    return replace(certificate, findings=(replace(first, sentence=f"{unlearnt} {first.sentence}"), *rest))
