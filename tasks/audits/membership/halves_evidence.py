"""Evidence on halves of the records."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tasks.audits.membership.config import Halves, Membership
from tasks.audits.membership.measures.attacks import AUC
from tasks.audits.membership.measures.records import FOUND, MEMORISED
from tasks.audits.membership.power import record_resolution
from tasks.contract.power import Resolution
from tasks.contract.summaries import Name, Row, first_row, index_rows, names_of, select_rows
from tasks.contract.ties import TIED


@dataclass(frozen=True)
class HalvesEvidence:
    """Evidence for the answer, from rows of the summary.

    `found_records` is the number of records with an effect; its p-value tests that no record has one. `memorised` is
    the number of records whose effect exceeds the smallest relevant one. `attack` is the attack that may have the
    largest area under the curve. `resolution` states whether a single record could be detected. `tied` is the share of
    equal scores, or None if it is unknown.
    """

    found_records: Row
    memorised: Row
    attack: Row | None
    resolution: Resolution
    level: float
    negligible: float
    tied: Row | None = None

    @property
    def do_attacks_fail(self) -> bool:
        return self.attack is not None and bool(self.attack["high"] < 0.5 + self.negligible)

    @property
    def is_any_found(self) -> bool:
        return bool(self.found_records["p_value"] <= self.level)

    @property
    def is_any_memorised(self) -> bool:
        return bool(self.memorised["p_value"] <= self.level)

    @property
    def rows(self) -> tuple[Name, ...]:
        """Names (metric, setting) of the summary rows that the answer is based on."""
        return names_of(self.found_records, self.attack)


def read_halves_evidence(config: Membership, summary: pa.Table) -> HalvesEvidence | None:
    """Read the evidence from a summary. None if no record was tested."""
    question = config.question
    assert isinstance(question, Halves)
    rows = index_rows(summary)
    found_records = first_row(rows, FOUND)
    if found_records is None:
        return None
    areas = [row for row in select_rows(rows, AUC) if row["high"] is not None]
    return HalvesEvidence(
        found_records=found_records,
        memorised=first_row(rows, MEMORISED) or found_records,
        attack=max(areas, key=lambda row: row["high"], default=None),
        resolution=record_resolution(question, found_records["n"]),
        level=question.level,
        negligible=question.negligible,
        tied=first_row(rows, TIED),
    )
