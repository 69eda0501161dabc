"""Evidence on the loss of one model."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tasks.audits.membership.config import Membership
from tasks.audits.membership.measures.attacks import AUC, KINDS
from tasks.audits.membership.measures.calibrated import FOUND_MEMBERS
from tasks.audits.membership.measures.loss import BLIND
from tasks.contract.summaries import Name, Row, first_row, index_rows, names_of, read_setting, select_rows
from tasks.contract.ties import most_tied
from tasks.external.split_audit import BLIND_LEVEL


@dataclass(frozen=True)
class LossEvidence:
    """Evidence on one model, from rows of the summary.

    area: the area under the curve of the loss, compared with the references if there are any. loss_area: that of the
    loss alone, in addition. found_members: the members whose training can be recognised individually; None without
    references. blind: the area of the blind control, which never uses the model. rate, false_rate: the true- and the
    false-positive rate at the lowest nominal rate; None if there are too few non-members. tied: the share of equal
    scores.
    """

    area: Row
    loss_area: Row | None
    found_members: Row | None
    blind: Row
    rate: Row | None
    false_rate: Row | None
    tied: Row | None

    @property
    def members(self) -> int:
        count: int = read_setting(self.blind)["members"]
        return count

    @property
    def non_members(self) -> int:
        count: int = read_setting(self.blind)["non-members"]
        return count

    @property
    def are_sets_alike(self) -> bool:
        """Whether the blind control fails to distinguish the members from the non-members."""
        return bool(self.blind["p_value"] > BLIND_LEVEL)

    @property
    def is_separated(self) -> bool:
        """Whether the scores distinguish the sets better than the data alone might."""
        return bool(self.area["low"] > max(0.5, self.blind["high"]))

    @property
    def rows(self) -> tuple[Name, ...]:
        return names_of(self.area, self.found_members, self.loss_area, self.blind, self.rate, self.false_rate)

    @property
    def references(self) -> int:
        """The number of reference models; 0 without."""
        count: int = read_setting(self.area).get("references", 0)
        return count


def read_loss_evidence(_config: Membership, summary: pa.Table) -> LossEvidence | None:
    """Read the evidence from a summary. Returns None if nothing was scored."""
    rows = index_rows(summary)
    areas = select_rows(rows, AUC)  # of the comparison with references first
    blind = first_row(rows, BLIND)
    if not areas or blind is None:
        return None
    loss_area = areas[1] if len(areas) > 1 else None
    rate = next(iter(select_rows(rows, KINDS["TPR"])), None)
    false_rate = next(iter(select_rows(rows, KINDS["FPR"])), None)
    found_members = first_row(rows, FOUND_MEMBERS)
    return LossEvidence(areas[0], loss_area, found_members, blind, rate, false_rate, most_tied(rows))
