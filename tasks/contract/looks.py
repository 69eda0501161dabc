"""Repeated looks: the error rates of answers when the same models and data are evaluated repeatedly.

Each time that a user trains more canaries and evaluates again, there is another chance of a wrong answer. The run's
folder records which look at its question the run is, among the runs in its store (`orchestrator.run_folder.looks`):

- Clearing has an error of 5 % over all looks, of which look n may spend 5 % / 2^n. Look 1 uses the upper end of the
  95 % interval, as a single look does; look n uses the upper end of an interval with coverage 1 - 2 * 5 % / 2^n.
- Accusing by bets has a single error level, however many looks there are. Accusing by a rule that is made for one look
  adds the rule's error at each look, and the page states the sum.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from tasks.contract.certificate import Certificate, Finding
from tasks.contract.rules import Rules
from tasks.contract.summaries import PROBABILITY, Row
from tasks.contract.verdict import Answer, Meaning, Verdict

CLEARING_ERROR = 0.05  # error of clearing, over all looks
INTERVAL = "95 % interval"
ATTRIBUTE = b"look"  # metadata key in a summary's schema
_NUMBERS = r"at most (?:about )?(\d+(?:\.\d+)?)(?: or (\d+(?:\.\d+)?))?"
STATED = re.compile(rf"Of 100 [^.]*?{_NUMBERS}|{_NUMBERS} of 100 ")  # an error rate in the text of a case
SummedError = Callable[[Any, "Look"], "float | None"]


@dataclass(frozen=True)
class Look:
    """Which look at its question a run is, and the number of cells in its sweep.

    `streams` is the maximum number of separate training sequences. Runs that add training runs to earlier ones belong
    to one sequence, on which bets continue; runs with other seeds do not.
    """

    number: int = 1
    cells: int = 1
    streams: int = 1


FIRST = Look()


def clearing_level(number: int) -> float:
    """Return the share of CLEARING_ERROR that look `number` may spend: 2.5 % at look 1."""
    return float(CLEARING_ERROR / 2**number)


def coverage(number: int) -> float:
    """Return the coverage of the two-sided interval whose upper end clears at look `number`: 95 % at look 1."""
    return 1 - 2 * clearing_level(number)


def _format_coverage(number: int) -> str:
    """Format the coverage in per cent: `95`, `97.5`, `98.75`, ..."""
    return f"{100 * coverage(number):.6g}"


def attach_look(summary: pa.Table, look: Look) -> pa.Table:
    """Attach the look number to a summary and widen its intervals. A first look is returned unchanged."""
    if look.number == 1:
        return summary
    rows = [widen_interval(row, look.number) for row in summary.to_pylist()]
    widened = pa.Table.from_pylist(rows, summary.schema)
    return widened.replace_schema_metadata({**(summary.schema.metadata or {}), ATTRIBUTE: str(look.number).encode()})


def look_number(summary: pa.Table) -> int:
    """Return the look number attached to a summary."""
    return int((summary.schema.metadata or {}).get(ATTRIBUTE, b"1"))


def widen_interval(row: Row, number: int) -> Row:
    """Widen the 95 % interval of a row to the coverage of look `number`.

    Each side is multiplied by the ratio of Student's t quantiles with n - 1 degrees of freedom, which is at least the
    ratio for the normal distribution. The interval of a probability stays within [0, 1].
    """
    from scipy import stats  # slow to import, and most runs are a first look

    estimate = row["estimate"]
    low = row["low"]
    high = row["high"]
    if estimate is None or low is None or high is None:
        return row
    if row["n"] is not None and row["n"] > 1:
        sample = stats.t(row["n"] - 1)
    else:
        sample = stats.norm
    factor = float(sample.isf(clearing_level(number)) / sample.isf(clearing_level(1)))
    lower, upper = estimate - factor * (estimate - low), estimate + factor * (high - estimate)
    if PROBABILITY.match(row["metric"] or "") and low >= 0 and high <= 1:
        lower, upper = max(0.0, lower), min(1.0, upper)
    return {**row, "low": lower, "high": upper}


def summed_error(look: Look, stated: float | None, over_looks: SummedError | None, config: Any) -> float | None:
    """Return an upper limit on the number of false accusations in 100 audits of models without memory.

    The limit covers all looks and cells; it is None if the rules state no error. `stated` is the number for one look.
    `over_looks(config, look)` is the number over all looks, for an audit that bets.
    """
    of_looks = None if over_looks is None else over_looks(config, look)
    if of_looks is None and stated is not None:
        of_looks = stated * look.number
    return None if of_looks is None else min(100.0, of_looks * look.cells)


def stated_error(rules: Rules[Any] | None, config: Any, answers: Mapping[Answer, Meaning]) -> float | None:
    """Return the largest number of false accusations in 100 audits that the rules state, or None if they state none."""
    if rules is None:
        return None
    numbers = rules.numbers(config)
    error_rates = list[float]()
    for case in rules.applicable_cases(config):
        if case.answer not in answers or answers[case.answer].tone != "accused":
            continue
        for match in STATED.finditer(case.error.format_map(numbers)):
            error_rates.append(max(float(number) for number in match.groups() if number))
    return max(error_rates, default=None)


def describe_look(look: Look, error: float | None, subject: str) -> str:
    """Describe the look and the summed error in a sentence.

    Returns an empty string for a first look outside a sweep.
    """
    if look == FIRST:
        return ""
    judged = "audits" if look.cells == 1 else "sweeps"
    if look.number == 1:
        position = f"one of {look.cells} cells of a sweep"
        over = "cells"
    elif look.cells == 1:
        position = f"look {look.number} at {subject}"
        over = "looks"
    else:
        position = f"look {look.number} at {subject}, in a sweep of {look.cells} cells"
        over = "looks and cells"
    if error is None:
        return f"This is {position}. The errors of all {over} add up."
    return (
        f"This is {position}. Over all {over}, at most {error:g} of 100 such {judged} would accuse a model without "
        "memory."
    )


def _relabel(text: str, number: int) -> str:
    """Replace the stated coverage of intervals in a text by the coverage at this look."""
    if number > 1:
        return text.replace(INTERVAL, f"{_format_coverage(number)} % interval")
    return text


def add_look(verdict: Verdict, number: int, description: str) -> Verdict:
    """Add the interval coverage and the description of the look to a verdict, unless it is the first look."""
    if number == 1:
        return verdict
    return replace(
        verdict, sentence=f"{_relabel(verdict.sentence, number)} {description}", limits=_relabel(verdict.limits, number)
    )


def certify_look(certificate: Certificate, look: Look, description: str) -> Certificate:
    """Add the look, the summed error and the interval coverage to a certificate."""
    if not description:
        return certificate
    number = look.number
    spent = ""
    if number > 1:
        spent = f" Intervals have a coverage of {_format_coverage(number)} %."
    return replace(
        certificate,
        findings=tuple(_relabel_finding(finding, number) for finding in certificate.findings),
        rule=_relabel(certificate.rule, number),
        error=f"{certificate.error} {description}{spent}".strip(),
        beyond=_relabel(certificate.beyond, number),
    )


def _relabel_finding(finding: Finding, number: int) -> Finding:
    if finding.line is None:
        line = finding.line
    else:
        line = replace(finding.line, coverage=100 * coverage(number))
    return replace(finding, sentence=_relabel(finding.sentence, number), line=line)
