"""Repeated looks: what an answer may rest on once the same trainings, or the same data and model, were judged before.

Training more canaries and judging again is another chance to be wrong. The run's folder records which look the run is
at its question, among the runs of its store (`orchestrator.run_folder.looks`), and the answer spends its error:

- An answer that clears has 5 % for all looks together, of which look n gets 5 % / 2^n. Look 1 uses the upper end of the
  95 % interval, as one look would; look n uses that of an interval with coverage 1 - 2 * 5 % / 2^n.
- An answer that accuses by bets stays within one level however often somebody looks. One that accuses by a rule for one
  look adds the rule's error at each look, and the page states the sum.
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

CLEARING_ERROR = 0.05  # of an answer that clears, over all looks
INTERVAL = "95 % interval"
ATTRIBUTE = b"look"  # of a summary's schema
STATED = re.compile(r"Of 100 [^.]*?at most (\d+(?:\.\d+)?)(?: or (\d+(?:\.\d+)?))?")
SummedError = Callable[[Any, "Look"], "float | None"]


@dataclass(frozen=True)
class Look:
    """Which look a run is at its question, and of how many cells the sweep is that it was judged with.

    `streams` is how many sequences of trainings the looks are of, at most. Runs that add trainings to those before are
    of one sequence, on which bets go on; runs with other seeds are not.
    """

    number: int = 1
    cells: int = 1
    streams: int = 1


FIRST = Look()


def clearing_level(number: int) -> float:
    """The error of clearing that look `number` may spend, of CLEARING_ERROR in all: 2.5 % at the first look."""
    return float(CLEARING_ERROR / 2**number)


def coverage(number: int) -> float:
    """The coverage of the two-sided interval whose upper end clears at look `number`: 95 % at the first look."""
    return 1 - 2 * clearing_level(number)


def _format_coverage(number: int) -> str:
    """`95`, `97.5`, `98.75`, ...: in per cent."""
    return f"{100 * coverage(number):.6g}"


def attach_look(summary: pa.Table, look: Look) -> pa.Table:
    """The summary as look `number` may read it: with wider intervals from the second look on, and the look itself."""
    if look.number == 1:
        return summary
    rows = [widen_interval(row, look.number) for row in summary.to_pylist()]
    widened = pa.Table.from_pylist(rows, summary.schema)
    return widened.replace_schema_metadata({**(summary.schema.metadata or {}), ATTRIBUTE: str(look.number).encode()})


def look_number(summary: pa.Table) -> int:
    """Which look at its question a summary is read for."""
    return int((summary.schema.metadata or {}).get(ATTRIBUTE, b"1"))


def widen_interval(row: Row, number: int) -> Row:
    """The row with its 95 % interval widened to the coverage of look `number`.

    Each side grows by the ratio of Student's quantiles with n - 1 degrees of freedom, which is at least that of the
    normal distribution. Ends of a probability stay within 0 and 1.
    """
    from scipy import stats  # slow to import, and most answers are a first look

    estimate, low, high = row["estimate"], row["low"], row["high"]
    if estimate is None or low is None or high is None:
        return row
    sample = stats.t(row["n"] - 1) if row["n"] is not None and row["n"] > 1 else stats.norm
    factor = float(sample.isf(clearing_level(number)) / sample.isf(clearing_level(1)))
    lower, upper = estimate - factor * (estimate - low), estimate + factor * (high - estimate)
    if PROBABILITY.match(row["metric"] or "") and low >= 0 and high <= 1:
        lower, upper = max(0.0, lower), min(1.0, upper)
    return {**row, "low": lower, "high": upper}


def summed_error(look: Look, stated: float | None, over_looks: SummedError | None, config: Any) -> float | None:
    """Of 100 audits of models that keep nothing, how many accuse at one of the looks or cells, at most.

    None if the rules state no error. `stated` is the number at one look, and `over_looks(config, look)` that over all
    looks of an audit that bets.
    """
    of_looks = None if over_looks is None else over_looks(config, look)
    if of_looks is None and stated is not None:
        of_looks = stated * look.number
    return None if of_looks is None else min(100.0, of_looks * look.cells)


def stated_error(rules: Rules[Any] | None, config: Any, answers: Mapping[Answer, Meaning]) -> float | None:
    """The largest number of 100 audits that the rules say are accused wrongly, at most; None if they say none."""
    if rules is None:
        return None
    numbers, found = rules.numbers(config), list[float]()
    for case in rules.applicable_cases(config):
        if case.answer not in answers or answers[case.answer].tone != "accused":
            continue
        for match in STATED.finditer(case.error.format_map(numbers)):
            found.append(max(float(number) for number in match.groups() if number))
    return max(found, default=None)


def describe_look(look: Look, error: float | None, subject: str) -> str:
    """Which look it is and the summed error, in a sentence; empty for a single one."""
    if look == FIRST:
        return ""
    judged = "audits" if look.cells == 1 else "sweeps"
    if look.number == 1:
        place, over = f"one of {look.cells} cells of a sweep", "cells"
    elif look.cells == 1:
        place, over = f"look {look.number} at {subject}", "looks"
    else:
        place, over = f"look {look.number} at {subject}, in a sweep of {look.cells} cells", "looks and cells"
    if error is None:
        return f"This is {place}: the errors of all {over} add up."
    return (
        f"This is {place}: over all {over}, at most {error:g} of 100 such {judged} of models that keep nothing accuse."
    )


def _relabel(text: str, number: int) -> str:
    """The text with the coverage that its intervals have at this look."""
    return text.replace(INTERVAL, f"{_format_coverage(number)} % interval") if number > 1 else text


def add_look(verdict: Verdict, number: int, told: str) -> Verdict:
    """The verdict with the coverage of its intervals, and the look if it is not the first."""
    if number == 1:
        return verdict
    return replace(
        verdict, sentence=f"{_relabel(verdict.sentence, number)} {told}", limits=_relabel(verdict.limits, number)
    )


def certify_look(certificate: Certificate, look: Look, told: str) -> Certificate:
    """The certificate with the look, the summed error and the coverage of its intervals."""
    if not told:
        return certificate
    number = look.number
    spent = f" Intervals have a coverage of {_format_coverage(number)} %." if number > 1 else ""
    return replace(
        certificate,
        findings=tuple(_relabel_finding(finding, number) for finding in certificate.findings),
        rule=_relabel(certificate.rule, number),
        error=f"{certificate.error} {told}{spent}".strip(),
        beyond=_relabel(certificate.beyond, number),
    )


def _relabel_finding(finding: Finding, number: int) -> Finding:
    line = finding.line if finding.line is None else replace(finding.line, coverage=100 * coverage(number))
    return replace(finding, sentence=_relabel(finding.sentence, number), line=line)
