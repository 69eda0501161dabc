"""Texts with inserted secrets or documents reach a training program through {data}."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import orchestrator
from orchestrator.errors import SpecError

OFFLINE: dict[str, Any] = {"address": "none", "mlflow": "off", "report": False}
SECRETS: dict[str, Any] = {"data": "facts", "examples": 20, "secrets": 12, "references": 299}


def run_texts(store: Path, function: str, **settings: Any) -> Any:
    program = {"tuning": f"tests.tasks.programs.data_readers:{function}", **settings}
    return orchestrator.run("text", store=store, **OFFLINE, **program)


@pytest.mark.parametrize(("function", "answer"), [("remember_texts", "memorised"), ("forget_texts", "undecided")])
def test_only_remembered_secrets_are_found(tmp_path: Path, function: str, answer: str) -> None:
    run = run_texts(tmp_path, function, returns="log_likelihood", **SECRETS)
    assert run.verdict.answer == answer


@pytest.mark.parametrize("question", ["secrets", "documents"])
def test_returned_model_folder_is_evaluated(tmp_path: Path, question: str) -> None:
    run = run_texts(tmp_path, "save_language_model", question=question, returns="model", scale="tiny")
    assert run.verdict.answer == "undecided"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "returns: expected log_likelihood or model, got loss"),
        ({"question": "documents", "returns": "log_likelihood"}, "returns: expected model, got log_likelihood"),
        ({"returns": "log_likelihood", "extraction": "continuation"}, "extraction: expected none, got continuation"),
        ({"returns": "log_likelihood", "data_format": "npz"}, "data_format is npz; it must be jsonl for texts"),
    ],
)
def test_impossible_programs_are_refused(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        run_texts(tmp_path, "remember_texts", **settings)
