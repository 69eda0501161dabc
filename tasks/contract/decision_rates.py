"""Measured decision rates of each audit on subjects whose true state is known.

`studies/decision_rates.py` measures the counts and writes the file; the page in `docs` and the certificates show them.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from tasks.contract.alternatives import tag_of
from tasks.contract.certificate import Certificate
from tasks.numerics.statistics import exact_interval

FILE = Path(__file__).with_suffix(".csv")
COUNTS = ("accused", "cleared", "undecided", "not_assessable")


@dataclass(frozen=True)
class DecisionRate:
    """How many audits of one kind of subject gave each answer."""

    audit: str
    question: str  # tag of the question that was studied; empty if the audit has no questions
    evidence: str  # trained models or simulated scores
    is_innocent: bool
    subject: str
    accused: int
    cleared: int
    undecided: int
    not_assessable: int
    seeds: str
    date: str

    @property
    def audits(self) -> int:
        return self.accused + self.cleared + self.undecided + self.not_assessable


@cache
def read_rates(path: Path = FILE) -> tuple[DecisionRate, ...]:
    """Return the measured rates in file order."""
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(_read_row(row) for row in csv.DictReader(file))


def _read_row(row: dict[str, str]) -> DecisionRate:
    accused, cleared, undecided, not_assessable = (int(row[name]) for name in COUNTS)
    return DecisionRate(
        row["audit"],
        row["question"],
        row["evidence"],
        row["is_innocent"] == "True",
        row["subject"],
        accused,
        cleared,
        undecided,
        not_assessable,
        row["seeds"],
        row["date"],
    )


def write_rates(rates: Sequence[DecisionRate], path: Path = FILE) -> None:
    """Replace the contents of the file with these rates."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(DecisionRate)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(rate) for rate in rates)


def describe_rates(audit: str, question: str = "") -> str:
    """Describe the measured rates of this audit in plain language, or return an empty string if the question has none.

    Quotes the first study of the audit: its innocent subject, and its subject with the largest amount of memorisation.
    """
    all_rates = []
    for rate in read_rates():
        if (rate.audit, rate.question) == (audit, question):
            all_rates.append(rate)
    if not all_rates:
        return ""
    rates = [rate for rate in all_rates if rate.evidence == all_rates[0].evidence]
    innocent = next(rate for rate in rates if rate.is_innocent)
    holder = [rate for rate in rates if not rate.is_innocent][-1]
    kind = "" if innocent.evidence.startswith("trained") else "simulated "
    return (
        f"As a check, we ran this audit on {innocent.audits} {kind}cases without memorisation ({innocent.subject}): "
        f"{_list_outcomes(innocent, 'false alarm')}. On {holder.audits} {kind}cases with memorisation "
        f"({holder.subject}): {_list_outcomes(holder, 'detected')}."
    )


def _list_outcomes(rate: DecisionRate, accused: str) -> str:
    """Format the outcomes: `19 detected, 1 undecided`. Leaves out answers that did not occur, except for the first."""
    plural = "s" if rate.is_innocent and rate.accused != 1 else ""
    outcomes = [f"{rate.accused} {accused}{plural}"]
    for count, answer in ((rate.undecided, "undecided (too little evidence)"), (rate.not_assessable, "not assessable")):
        if count:
            outcomes.append(f"{count} {answer}")
    if rate.cleared and not rate.is_innocent:
        outcomes.append(f"{rate.cleared} missed")
    return ", ".join(outcomes)


def count_of(count: int, audits: int) -> str:
    """Format a count and its exact 95 % interval (Clopper & Pearson 1934): `0 of 20 audits (0 to 17 %)`."""
    low, high = exact_interval(count, audits)
    return f"{count} of {audits} audits ({100 * low:.0f} to {100 * high:.0f} %)"


def format_share(low: float, high: float) -> str:
    """Format an interval of shares in per cent: `[0, 17]`."""
    return f"[{100 * low:.0f}, {100 * high:.0f}]"


def add_rates(certificate: Certificate, audit: str, config: Any) -> Certificate:
    """Append the audit's measured rates, for the question of this configuration, to the certificate's second page."""
    question = getattr(config, "question", None)
    measured = describe_rates(audit, "" if question is None else tag_of(type(question)))
    return replace(certificate, other_errors=f"{certificate.other_errors} {measured}".strip())
