"""Evidence on canaries: a lower bound on epsilon, and the accountant's epsilon."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tasks.audits.membership.config import Membership
from tasks.contract.epsilon_rows import AT_LEAST, SPENT
from tasks.contract.summaries import Name, Row, first_row, index_rows, names_of
from tasks.contract.ties import most_tied


@dataclass(frozen=True)
class CanaryEvidence:
    """Evidence for the answer, from rows of the summary.

    `bound` is the decisive lower bound on epsilon, and `spent` the accountant's epsilon, or None if training was not
    private. `tied` is the share of equal scores, or None if unknown.
    """

    bound: Row
    spent: Row | None
    tied: Row | None = None

    @property
    def exceeds_promise(self) -> bool:
        return self.spent is not None and bool(self.bound["estimate"] > self.spent["estimate"])

    @property
    def rows(self) -> tuple[Name, ...]:
        """Names (metric, setting) of the summary rows that the answer is based on."""
        return names_of(self.bound, self.spent)


def read_canary_evidence(_config: Membership, summary: pa.Table) -> CanaryEvidence | None:
    """Read the evidence from a summary. None if no canary was scored."""
    rows = index_rows(summary)
    bound = first_row(rows, AT_LEAST)  # the decisive bound comes first
    if bound is None:
        return None
    return CanaryEvidence(bound, first_row(rows, SPENT), most_tied(rows))
