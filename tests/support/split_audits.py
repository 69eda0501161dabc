"""The loss attack and its blind control on objects in memory, without a run."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tasks.audits.membership import AUDIT
from tasks.audits.membership.config import About, Membership
from tasks.audits.membership.loss_config import LossAttack
from tasks.audits.membership.measures import summary
from tasks.contract.verdict import Verdict
from tasks.external.audit_inputs import read_sets
from tasks.external.split_audit import BATCH, SplitAudit, evaluate, score_sets


def score(model: Any, members: Any, non_members: Any, batch: int = BATCH, seed: int = 0) -> pa.Table:
    """The scores of both sets (SCORES)."""
    return score_sets(*read_sets(members, non_members), model, batch, seed)[0]


def audit_sets(model: Any, members: Any, non_members: Any, batch: int = BATCH, seed: int = 0) -> SplitAudit:
    return evaluate(score(model, members, non_members, batch, seed))


def verdict_of(scores: pa.Table) -> Verdict:
    """The verdict of an audit with these scores."""
    assert AUDIT.verdict is not None
    return AUDIT.verdict(Membership(LossAttack()), summary(About(), [scores]))
