from __future__ import annotations

import pytest

from orchestrator.spec import audits
from tasks.contract.objectives import Objectives


@pytest.fixture
def objectives() -> Objectives:
    found = audits.find("tunable").audit.objectives
    assert found is not None
    return found
