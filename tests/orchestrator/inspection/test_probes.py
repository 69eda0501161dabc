"""Probes for a model's owner, where an audit has none, or some of several kinds."""

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


def test_an_audit_without_pictures_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = audits.find("toys")
    silent = replace(found, audit=replace(found.audit, handout=None))
    monkeypatch.setattr("orchestrator.inspection.probes.find", lambda name: silent)
    with pytest.raises(SpecError, match="toys has no probes"):
        hand_out(Spec("toys"), tmp_path / "handed")
    assert not list(tmp_path.iterdir())


def test_pictures_and_records_are_not_handed_out_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both: list[tuple[str, Any]] = [
        ("seen", np.zeros((1, 2, 2, 1), np.uint8)),
        ("read", Records(pa.table({"id": ["a"]}))),
    ]
    found = audits.find("toys")
    mixed = replace(found, audit=replace(found.audit, handout=Handout(lambda config: iter(both))))
    monkeypatch.setattr("orchestrator.inspection.probes.find", lambda name: mixed)
    with pytest.raises(SpecError, match="toys: its probes are images and records; they must all be of one kind"):
        hand_out(Spec("toys"), tmp_path / "handed")
    assert not list(tmp_path.iterdir())


def test_questions_are_handed_out_in_the_format_of_their_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = [Question("a", "c", "Ann has 4.", "How many?", (("4",),))]
    found = audits.find("toys")
    asking = replace(
        found,
        audit=replace(
            found.audit, handout=Handout(lambda _: probe_sets(QuestionSet(one, one, "drop"), DigitRemoval()))
        ),
    )
    monkeypatch.setattr("orchestrator.inspection.probes.find", lambda name: asking)
    written = hand_out(Spec("toys"), tmp_path / "handed")
    sets = {"train": 1, "train-corrupted": 1, "validation": 1, "validation-corrupted": 1}
    assert {"folder": str(tmp_path / "handed"), "questions": 4, "sets": sets} == written
    assert "c" in json.loads((tmp_path / "handed" / "questions" / "train.json").read_text())
