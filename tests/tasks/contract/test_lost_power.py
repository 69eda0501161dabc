"""Every audit that bounds epsilon by one run warns before training if delta leaves its bets without power."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.audits.membership import AUDIT as MEMBERSHIP
from tasks.audits.membership.config import Canaries, Halves, Membership
from tasks.audits.text import AUDIT as TEXT
from tasks.contract.audit import Audit
from tasks.datasets.dataset import Dataset
from tasks.models.catalog import Network
from tasks.training.classifier_config import ClassifierTraining
from tasks.training.privacy_config import DifferentialPrivacy
from tasks.training.recipe import Privacy
from tests.tasks.audits.text.made_up import configure


def coins(models: int = 1, privacy: Privacy | None = None) -> Membership:
    question = Canaries(models=models, canaries=400, examples=1000)
    return Membership(question, ClassifierTraining(Network("mlp1"), privacy=privacy))


SECRETS = configure(
    secrets=100, pairs=4, privacy=DifferentialPrivacy(4.0, delta=1e-3), repetitions=(1,), references=9999
)


@pytest.mark.parametrize(
    ("audit", "config", "warning"),
    [
        (MEMBERSHIP, coins(), ""),
        (MEMBERSHIP, coins(privacy=Privacy(4.0, delta=1e-3)), "400 canaries over all models"),
        (MEMBERSHIP, coins(8, Privacy(4.0, delta=1e-4)), "3,200 canaries"),
        (MEMBERSHIP, coins(50), "20,000 canaries over all models at privacy.delta=1e-05"),
        (MEMBERSHIP, Membership(Halves(Dataset("digits"), 400)), ""),
        (TEXT, SECRETS, "400 secrets over all models at privacy.delta=0.001"),
        (TEXT, configure(SECRETS, privacy=DifferentialPrivacy(4.0)), ""),
        (TEXT, configure(SECRETS, privacy=None), ""),
        (TEXT, configure(SECRETS, documents=20), ""),
    ],
)
def test_lost_power_is_noted(audit: Audit, config: Any, warning: str) -> None:
    assert audit.notes is not None
    notes = list(audit.notes(config))
    assert len(notes) == bool(warning)
    assert all(warning in note for note in notes)
