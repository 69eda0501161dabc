"""The bench of large campaigns: a campaign with dying workers and lost results finishes and is counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import scale


def test_campaign_finishes_on_a_virtual_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, share in {"DIES": 0.02, "RAISES": 0.02, "DAMAGED": 0.05, "NODE_SECONDS": 600.0}.items():
        monkeypatch.setattr(scale, name, share)
    measured = scale.drive(2 * scale.PER_CONDITION, 16, 0, tmp_path)
    assert measured.jobs == 2 * scale.PER_CONDITION + 1
    assert all(seconds > 0 for seconds in measured.phases.values())
    assert all(measured.figures[name] > 0 for name in ("failed", "lost and sent again", "found missing"))
