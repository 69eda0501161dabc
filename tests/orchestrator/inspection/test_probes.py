"""Pictures for a model's owner, where an audit has none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.errors import SpecError
from orchestrator.inspection.probes import hand_out
from orchestrator.spec import audits
from orchestrator.spec.specification import Spec


def test_an_audit_without_pictures_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = audits.find("toys")
    silent = replace(found, audit=replace(found.audit, probes=None))
    monkeypatch.setattr("orchestrator.inspection.probes.find", lambda name: silent)
    with pytest.raises(SpecError, match="toys has no pictures to hand out"):
        hand_out(Spec("toys"), tmp_path / "handed")
    assert not list(tmp_path.iterdir())
