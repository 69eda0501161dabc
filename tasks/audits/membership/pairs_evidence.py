"""Evidence on pairs of models: the largest evidence over pairs, and the records found."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tasks.audits.membership.config import Membership
from tasks.audits.membership.measures.pairs import LARGEST, LEVEL
from tasks.audits.membership.measures.records import FOUND
from tasks.contract.summaries import Name, Row, first_row, index_rows, names_of, read_setting
from tasks.contract.ties import TIED
from tasks.numerics import betting


@dataclass(frozen=True)
class PairsEvidence:
    """Evidence for the answer, from rows of the summary.

    `largest` is the largest mean evidence over records after any pair, and `found_records` the number of records found
    after the last pair. `tied` is the share of equal scores, or None if it is unknown.
    """

    largest: Row
    found_records: Row | None = None
    tied: Row | None = None

    @property
    def level(self) -> float:
        return float(read_setting(self.largest)[LEVEL])

    @property
    def is_decided(self) -> bool:
        return betting.is_decided(self.largest["estimate"], self.level)

    @property
    def rows(self) -> tuple[Name, ...]:
        """Names (metric, setting) of the summary rows that the answer is based on."""
        return names_of(self.largest, self.found_records)


def read_pairs_evidence(_config: Membership, summary: pa.Table) -> PairsEvidence | None:
    """Read the evidence from a summary. None if no pair was compared."""
    rows = index_rows(summary)
    largest = first_row(rows, LARGEST)
    if largest is None:
        return None
    return PairsEvidence(largest, first_row(rows, FOUND), first_row(rows, TIED))
