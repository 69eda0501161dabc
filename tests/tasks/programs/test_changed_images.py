"""Pairs of models with and without a feature, trained by a program that reads {data}."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import orchestrator
from orchestrator.errors import SpecError

OFFLINE: dict[str, Any] = {"address": "none", "mlflow": "off", "report": False}
SETTINGS: dict[str, Any] = {"data": "digits", "probe": "photos", "examples": 60, "canaries": 5, "probes": 20}
READERS = "tests.tasks.programs.data_readers"
EVERY_MEASURE = "scores,family,ranks"


def run_pairs(store: Path, function: str, **settings: Any) -> Any:
    given = {"training": f"{READERS}:{function}", **SETTINGS, **settings}
    return orchestrator.run("unique_feature", store=store, **OFFLINE, **given)


def rows_of(run: Any) -> dict[tuple[str, str], Any]:
    return {(row["metric"], row["setting"]): row for row in run.table("summary").to_pylist()}


def test_remembered_feature_is_found_by_every_measure(tmp_path: Path) -> None:
    run = run_pairs(tmp_path, "remember_corners", returns="model", measures=EVERY_MEASURE)
    assert run.verdict.answer == "memorised"
    rows = rows_of(run)
    assert rows["M effect", "{}"]["low"] > 0
    assert rows["share of canaries called memorised", '{"false discovery rate": 0.05, "glyphs": 4457400}'][
        "estimate"
    ] == pytest.approx(1)
    assert rows["pixels read out", '{"drawn": false, "score": "pair"}']["estimate"] == pytest.approx(14)


def test_equal_models_are_not_accused_in_tiny_run(tmp_path: Path) -> None:
    run = run_pairs(tmp_path, "ignore_data", returns="model", measures=EVERY_MEASURE, scale="tiny")
    assert run.verdict.answer == "not assessable"
    assert rows_of(run)["M effect", "{}"]["estimate"] == 0


@pytest.mark.parametrize(
    ("function", "returns"),
    [("remember_corners_in_probabilities", "probabilities"), ("save_remembered_corners", "model")],
)
def test_every_result_gives_the_same_scores(tmp_path: Path, function: str, returns: str) -> None:
    few = {"canaries": 2, "family.count": 30}
    expected = rows_of(run_pairs(tmp_path, "remember_corners", returns="model", **few))
    rows = rows_of(run_pairs(tmp_path, function, returns=returns, **few))
    for metric in (("M effect", "{}"), ("M_w effect", '{"images": "train"}')):
        assert rows[metric]["estimate"] == pytest.approx(expected[metric]["estimate"], rel=1e-3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "returns is loss; it must be model or probabilities, since models are evaluated on other images"),
        ({"returns": "model", "data_format": "jsonl"}, "data_format is jsonl; it must be npz or folder or parquet for"),
        ({"returns": "model", "choice": "self-influence"}, "choice must be random, since self-influence needs gradien"),
    ],
)
def test_impossible_programs_are_refused(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        run_pairs(tmp_path, "remember_corners", **settings)
