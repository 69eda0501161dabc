"""The evidence of an answer about secrets and identifiers, which are ranked among others of their space."""

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

SURELY = 0.001  # p of all secrets together, at most, that shows that some are known


@dataclass(frozen=True)
class Evidence:
    """What the answer rests on.

    `found` is the summary row of how many secrets are found, whose p-value is that of any being known, and `beaten`
    that of the mean share of references that a secret beats, whose p-value is that of all secrets together; `memorised`
    and `reduced` are the same of effects that are reduced by the smallest that matters. `resolution` says whether one
    secret could be found. `control` is the row of the blind control of identifiers; None of secrets, which were drawn
    here. `tied` and `differing` say how far the numbers of an owner's table are answers; None where the model is asked
    here. `bound` and `spent` are the rows of epsilon from below and by the accountant; None where training was not
    private. `extraction` is how many come out; None where no model was asked to go on, or what it was asked for is not
    drawn evenly.
    """

    found: Row
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
        """Whether secrets are found, one by one or together, whatever the size of the effect."""
        return bool(self.found["p_value"] <= self.level or self.beaten["p_value"] <= SURELY)

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
    """The evidence in a summary; None if no secret was ranked."""
    assert isinstance(config.question, RankedQuestion)
    rows = index_rows(summary)
    found, beaten = first_row(rows, FOUND) or first_row(rows, IDENTIFIERS_FOUND), first_row(rows, BEATEN)
    if found is None or beaten is None:
        return None
    more = (first_row(rows, metric) for metric in (CONTROL, TIED, DIFFERING, AT_LEAST, SPENT))
    evidence = Evidence(found, beaten, config.level, config.negligible, *more)
    # What chance brings is known of what is drawn evenly alone.
    return replace(
        evidence,
        extraction=read_copies(rows) if evidence.is_even else None,
        memorised=first_row(rows, MEMORISED),
        reduced=first_row(rows, REDUCED),
        resolution=rank_resolution(config.question, config.level, found["n"]),
    )
