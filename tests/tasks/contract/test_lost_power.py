"""Every audit that bounds epsilon by one run warns before any work if delta leaves its bets without power."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tasks.audits.membership import AUDIT as MEMBERSHIP
from tasks.audits.membership import Membership
from tasks.audits.text import AUDIT as TEXT
from tasks.contract.audit import Audit
from tasks.datasets.dataset import Dataset
from tasks.training.recipe import Privacy
from tests.tasks.audits.text.made_up import configured

CANARIES = Membership(models=1, canaries=400, examples=1000)
SECRETS = configured(secrets=100, pairs=4, privacy=Privacy(4.0, delta=1e-3), repetitions=(1,), references=9999)


@pytest.mark.parametrize(
    ("audit", "config", "warning"),
    [
        (MEMBERSHIP, CANARIES, ""),
        (MEMBERSHIP, replace(CANARIES, privacy=Privacy(4.0, delta=1e-3)), "400 canaries over all models"),
        (MEMBERSHIP, replace(CANARIES, models=8, privacy=Privacy(4.0, delta=1e-4)), "3,200 canaries"),
        (MEMBERSHIP, replace(CANARIES, models=50), "20,000 canaries over all models at privacy.delta=1e-05"),
        (MEMBERSHIP, Membership(data=Dataset("digits"), examples=400), ""),
        (TEXT, SECRETS, "400 secrets over all models at privacy.delta=0.001"),
        (TEXT, configured(SECRETS, privacy=Privacy(4.0)), ""),
        (TEXT, configured(SECRETS, privacy=None), ""),
        (TEXT, configured(SECRETS, documents=20), ""),
    ],
)
def test_lost_power_is_noted(audit: Audit, config: Any, warning: str) -> None:
    assert audit.notes is not None
    notes = list(audit.notes(config))
    assert len(notes) == bool(warning)
    assert all(warning in note for note in notes)
