"""The evidence about secrets and identifiers, which are ranked among other candidates."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pyarrow as pa

from tasks.audits.text.config import Text
from tasks.audits.text.given.returned import DIFFERING
from tasks.audits.text.power import rank_resolution
from tasks.audits.text.question import RankedQuestion
from tasks.audits.text.reproduced import (
    Copies,
    read_copies,
)
from tasks.audits.text.secrets.ranks import (
    BEATEN,
    CONTROL,
    FOUND,
    IDENTIFIERS_FOUND,
    MEMORISED,
    REDUCED,
    UNEVEN,
)
from tasks.contract.epsilon_rows import AT_LEAST, SPENT
from tasks.contract.power import Resolution
from tasks.contract.summaries import Row, first_row, index_rows
from tasks.contract.ties import TIED

SURELY = 0.001  # significance level of the combined p-value of all secrets


@dataclass(frozen=True)
class Evidence:
    """Summary rows that the verdict is based on.

    `found_secrets` is the number of secrets that are found, with the smallest adjusted p-value, and `beaten` is the
    mean share of references that a secret outranks, with the combined p-value. `memorised` and `reduced` are the same
    numbers after the effects are reduced by the smallest relevant size. `resolution` states whether one secret could be
    found.

    `control` is the blind control of identifiers, or None for secrets. `tied` and `differing` report the defects of a
    returned table; they are None if the audit evaluates the model. `bound` and `spent` are the lower bound on epsilon
    and the accountant's epsilon; they are None unless training is private. `extraction` is the share that is
    reproduced. It is None if no model continued a text, or if identifiers are not uniformly random.
    """

    found_secrets: Row
    beaten: Row
    level: float
    negligible: float
    control: Row | None = None
    tied: Row | None = None
    differing: Row | None = None
    bound: Row | None = None
    spent: Row | None = None
    extraction: Copies | None = field(default=None, kw_only=True)
    memorised: Row | None = field(default=None, kw_only=True)
    reduced: Row | None = field(default=None, kw_only=True)
    resolution: Resolution | None = field(default=None, kw_only=True)

    @property
    def things(self) -> str:
        return "secrets" if self.control is None else "identifiers"

    @property
    def exceeds_promise(self) -> bool:
        return self.bound is not None and self.spent is not None and self.bound["estimate"] > self.spent["estimate"]

    @property
    def is_memorised(self) -> bool:
        return self.memorised is not None and bool(self.memorised["p_value"] <= self.level)

    @property
    def are_memorised_together(self) -> bool:
        return self.reduced is not None and bool(self.reduced["p_value"] <= SURELY)

    @property
    def is_detected(self) -> bool:
        """Whether secrets are found, individually or jointly, by an effect of any size."""
        return bool(self.found_secrets["p_value"] <= self.level or self.beaten["p_value"] <= SURELY)

    @property
    def share_is_negligible(self) -> bool:
        high = self.beaten["high"]
        return high is not None and bool(high < 0.5 + self.negligible)

    @property
    def finds_one(self) -> bool:
        return self.resolution is not None and self.resolution.finds_one

    @property
    def is_even(self) -> bool:
        return self.control is None or self.control["p_value"] > UNEVEN


def read_evidence(config: Text, summary: pa.Table) -> Evidence | None:
    """Read the evidence from a summary. Returns None if no secret was ranked."""
    assert isinstance(config.question, RankedQuestion)
    rows = index_rows(summary)
    found_row = first_row(rows, FOUND) or first_row(rows, IDENTIFIERS_FOUND)
    beaten = first_row(rows, BEATEN)
    if found_row is None or beaten is None:
        return None
    more = (first_row(rows, metric) for metric in (CONTROL, TIED, DIFFERING, AT_LEAST, SPENT))
    evidence = Evidence(found_row, beaten, config.level, config.negligible, *more)
    # The success rate of a guess is known only for uniformly random identifiers.
    return replace(
        evidence,
        extraction=read_copies(rows) if evidence.is_even else None,
        memorised=first_row(rows, MEMORISED),
        reduced=first_row(rows, REDUCED),
        resolution=rank_resolution(config.question, config.level, found_row["n"]),
    )
