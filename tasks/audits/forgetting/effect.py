"""The number by which runs are compared: the share of D_Q held by the target that holds most."""

from __future__ import annotations

import pyarrow as pa

from tasks.audits.forgetting.config import Forgetting
from tasks.audits.forgetting.evidence_rows import HELD
from tasks.objectives import Objective
from tasks.summaries import Row


def largest_share(_config: Forgetting, summary: pa.Table) -> Row | None:
    """The row of the largest share that any target holds; None where no share is known."""
    shares = [row for row in summary.to_pylist() if row["metric"] == HELD and row["estimate"] is not None]
    return max(shares, key=lambda row: float(row["estimate"]), default=None)


EFFECT = Objective("largest share of D_Q held by a target", "share", "lower", largest_share)
