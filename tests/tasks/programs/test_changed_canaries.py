"""Canaries with other labels or images reach a training program through {data}."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import orchestrator
from orchestrator.errors import SpecError

OFFLINE: dict[str, Any] = {"address": "none", "mlflow": "off", "report": False}
SETTINGS: dict[str, Any] = {
    "question": "canaries",
    "data": "digits",
    "examples": 60,
    "canaries": 20,
    "models": 4,
}


@pytest.mark.parametrize(
    ("function", "changed", "answer"),
    [
        ("memorise", {"mislabelled": True}, "memorised"),
        ("memorise", {"canary_images": "noise"}, "memorised"),
        ("ignore", {"mislabelled": True}, "undecided"),
    ],
)
def test_only_memorised_canaries_are_found(tmp_path: Path, function: str, changed: dict[str, Any], answer: str) -> None:
    settings = {**SETTINGS, **changed, "training": f"tests.tasks.programs.data_readers:{function}"}
    run = orchestrator.run("membership", store=tmp_path, returns="log_odds", **OFFLINE, **settings)
    assert run.verdict is not None
    assert run.verdict.answer == answer


def test_command_without_data_is_refused(tmp_path: Path) -> None:
    settings = {**SETTINGS, "mislabelled": True, "training.command": "train {rows}", "code": "pyproject.toml"}
    with pytest.raises(SpecError, match=r"command has no \{data\}: this audit changes records"):
        orchestrator.run("membership", store=tmp_path, **OFFLINE, **settings)
