"""Whole runs of unique_feature whose jobs fail in part."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import orchestrator
from tasks.audits.unique_feature.measures import latents, learning_curve, panels

SMALL = {"scale": "tiny", "canaries": 3, "examples": 60, "epochs": 1, "probes": 20}
MEASURES = "scores,family,course,latents"


def failing_once(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> None:
    """Have the first call of this function fail, and with it the job that calls it."""
    function: Callable[..., Any] = getattr(module, name)
    calls: list[object] = []

    def fails(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 1:
            raise ValueError(f"{name} fails")
        return function(*arguments)

    monkeypatch.setattr(module, name, fails)


def test_the_summary_goes_without_the_jobs_that_failed_where_that_is_tolerated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in ((learning_curve, "begin_curve"), (latents, "model_latents"), (panels, "panel_p_values")):
        failing_once(monkeypatch, module, name)
    asked = {"store": tmp_path, "address": "none", "mlflow": "off", "report": False}
    run = orchestrator.run("unique_feature", preset="smoke", measures=MEASURES, tolerate=3, **asked, **SMALL)  # type: ignore[arg-type]
    failed = sorted(task for _, task, _ in run.failures)
    assert ["unique_feature.course", "unique_feature.latents", "unique_feature.panels"] == failed
    rows = {(row["metric"], row["setting"]): row for row in run.table("summary").to_pylist()}
    assert 3 == rows["M effect", "{}"]["n"]
    assert 3 == rows["rate called memorised", '{"estimator": "label-directed rank"}']["n"]
    # The pair whose training could not be followed, or whose units could not be asked, is left out.
    assert 2 == rows["M effect", '{"epoch": "kept"}']["n"]
    assert 2 == rows["units of the feature", '{"layer": "dense2"}']["n"]
    assert "detection rate by number of models" not in {metric for metric, _ in rows}


def test_a_narrow_network_without_its_canarys_neighbours_goes_through_every_measure(tmp_path: Path) -> None:
    asked = {"store": tmp_path, "address": "none", "mlflow": "off", "report": False}
    changed = {"width": 0.1, "neighbours_left_out": 5, "one_seed": True}
    run = orchestrator.run("unique_feature", preset="smoke", measures=f"ranks,{MEASURES}", **asked, **SMALL, **changed)  # type: ignore[arg-type]
    rows = {(row["metric"], row["setting"]): row for row in run.table("summary").to_pylist()}
    assert 3 == len({row["canary"] for row in run.table("canary_scores").to_pylist()})
    assert {26, 13} == {row["units"] for row in run.table("latents").to_pylist()}
    assert rows["validation accuracy", '{"model": "canary"}']["estimate"] > 0
    scores = {row["score"] for row in run.table("exact_ranks").to_pylist()}
    assert {"pair", "weight change"} <= scores
