from __future__ import annotations

import pytest

from orchestrator.spec import audits
from tasks.contract.objectives import Objectives


@pytest.fixture
def objectives() -> Objectives:
    tunable_objectives = audits.find("tunable").audit.objectives
    assert tunable_objectives is not None
    return tunable_objectives
