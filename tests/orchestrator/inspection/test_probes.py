"""Probes for a model's owner, for audits with no probes or with several kinds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from orchestrator.errors import SpecError
from orchestrator.inspection.probes import hand_out
from orchestrator.spec import audits
from orchestrator.spec.specification import Spec
from tasks.contract.audit import Handout
from tasks.datasets.questions.question import Question, QuestionSet
from tasks.datasets.records import Records
from tasks.question_answering.question_sets import DigitRemoval, probe_sets


def test_audit_without_probes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toys_audit = audits.find("toys")
    silent = replace(toys_audit, audit=replace(toys_audit.audit, handout=None))
    monkeypatch.setattr("orchestrator.inspection.probes.find", lambda name: silent)
    with pytest.raises(SpecError, match="toys has no probes"):
        hand_out(Spec("toys"), tmp_path / "handed")
    assert not list(tmp_path.iterdir())


def test_images_and_records_are_not_exported_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probe_items: list[tuple[str, Any]] = [
        ("seen", np.zeros((1, 2, 2, 1), np.uint8)),
        ("read", Records(pa.table({"id": ["a"]}))),
    ]
    toys_audit = audits.find("toys")
    mixed = replace(toys_audit, audit=replace(toys_audit.audit, handout=Handout(lambda config: iter(probe_items))))
    monkeypatch.setattr("orchestrator.inspection.probes.find", lambda name: mixed)
    with pytest.raises(SpecError, match="toys: its probes are images and records; they must all be of one kind"):
        hand_out(Spec("toys"), tmp_path / "handed")
    assert not list(tmp_path.iterdir())


def test_questions_are_exported_in_their_sets_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = [Question("a", "c", "Ann has 4.", "How many?", (("4",),))]
    toys_audit = audits.find("toys")
    question_audit = replace(
        toys_audit,
        audit=replace(
            toys_audit.audit, handout=Handout(lambda _: probe_sets(QuestionSet(one, one, "drop"), DigitRemoval()))
        ),
    )
    monkeypatch.setattr("orchestrator.inspection.probes.find", lambda name: question_audit)
    exported = hand_out(Spec("toys"), tmp_path / "handed")
    sets = {"train": 1, "train-corrupted": 1, "validation": 1, "validation-corrupted": 1}
    assert exported == {"folder": str(tmp_path / "handed"), "questions": 4, "sets": sets}
    assert "c" in json.loads((tmp_path / "handed" / "questions" / "train.json").read_text())
