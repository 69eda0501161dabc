"""Evidence on a given model."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pyarrow as pa

from tasks.audits.membership.config import Membership
from tasks.audits.membership.given_config import GivenModel, ReturnedTable
from tasks.audits.membership.measures.given import APART, DIFFERING, DISTANCE, FOUND_GIVEN, LEAD, POWER
from tasks.audits.membership.power import record_resolution
from tasks.audits.membership.thresholds import ENOUGH_POWER, MOST_DIFFERING, UNLIKE, WIDER
from tasks.contract.power import Resolution
from tasks.contract.summaries import Row, first_row, index_rows, read_setting
from tasks.contract.ties import most_tied
from tasks.external.causes import REPEATS, unlike_causes
from tasks.external.split_audit import BLIND_LEVEL

# Expected distance from uniform ranks, per image, if normal scores have WIDER times the variance. It is the integral
# over u of (Phi(Phi^-1(u) / sqrt(WIDER)) - u)^2.
WIDER_DISTANCE = (
    1 / 12
    + (math.asin(1 / (1 + WIDER)) - 2 * math.asin(1 / math.sqrt(2 * (1 + WIDER)))) / (2 * math.pi)
)  # fmt: skip
CAUSES = unlike_causes("some of the non-members")


@dataclass(frozen=True)
class GivenEvidence:
    """Evidence for the answer, from rows of the summary. A missing row is None.

    lead: how much higher the given model ranks the records than the non-members.
    found_records: records that are identified individually.
    distance: the given model compared with the models trained here, on the `images` non-members.
    power: the share of the models trained here that the lead would identify.
    differing: the share of repeated images with two answers.
    apart: how well the records and the non-members can be distinguished without a model.
    tied: the share of equal scores, of the given model or of those trained here, whichever is larger.
    """

    lead: Row | None
    found_records: Row | None
    distance: Row | None
    power: Row | None
    differing: Row | None
    apart: Row | None
    images: int
    level: float
    is_sent: bool
    resolution: Resolution | None = None
    tied: Row | None = None

    @property
    def rows(self) -> tuple[Row, ...]:
        candidates = (self.lead, self.found_records, self.distance, self.power, self.differing, self.apart)
        return tuple(row for row in candidates if row is not None)

    @property
    def has_references(self) -> bool:
        return self.lead is not None and self.found_records is not None and self.distance is not None

    @property
    def is_alike(self) -> bool:
        """Whether the model could be one of those trained here, or one trained in the same way on other records."""
        if self.distance is None:
            return False
        farthest = (self.distance["null"] or 0.0) + self.images * WIDER_DISTANCE
        return bool(self.distance["p_value"] > UNLIKE or self.distance["estimate"] <= farthest)

    @property
    def are_sets_alike(self) -> bool:
        """Whether the blind control fails to distinguish the records from the non-members."""
        return self.apart is None or self.apart["p_value"] > BLIND_LEVEL

    @property
    def is_steady(self) -> bool:
        """Whether repeated images received the same answer."""
        return self.differing is None or self.differing["estimate"] <= MOST_DIFFERING

    @property
    def has_power(self) -> bool:
        """Whether the audit would detect a model trained on half of the records, and a single memorised record."""
        finds_half = self.power is not None and self.power["low"] >= ENOUGH_POWER
        return finds_half and self.resolution is not None and self.resolution.finds_one

    @property
    def likely_causes(self) -> str:
        """Likely causes why the model cannot be compared, as a phrase."""
        return CAUSES if self.is_steady else REPEATS


def read_given_evidence(config: Membership, summary: pa.Table) -> GivenEvidence:
    """Read the evidence from a summary."""
    question = config.question
    assert isinstance(question, GivenModel)
    rows = index_rows(summary)
    records = question.records
    apart = first_row(rows, APART)
    images = records.non_member_examples or records.examples
    if apart is not None:
        images = read_setting(apart)["others"]
    found_records = first_row(rows, FOUND_GIVEN)
    resolution = None
    if found_records is not None:
        resolution = record_resolution(question, found_records["n"])
    return GivenEvidence(
        lead=first_row(rows, LEAD),
        found_records=found_records,
        distance=first_row(rows, DISTANCE),
        power=first_row(rows, POWER),
        differing=first_row(rows, DIFFERING),
        apart=apart,
        images=images,
        level=question.level,
        is_sent=isinstance(question.source, ReturnedTable),
        resolution=resolution,
        tied=most_tied(rows),
    )
