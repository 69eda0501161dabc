"""Of every estimator: how often it calls, at what rate it detects, and how many models that takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tasks.audits.unique_feature.measures.curves import at_five_percent
from tasks.audits.unique_feature.measures.detection import called
from tasks.audits.unique_feature.measures.panels import by_number
from tests.tasks.summary_rows import by_name, with_wilson


def said(model: str, calls: Sequence[bool | None], estimator: str = "test") -> list[dict[str, Any]]:
    about = {"estimator": estimator, "model": model}
    return [about | {"canary": at // 2, "seed": at % 2, "called": call} for at, call in enumerate(calls)]


def test_models_called_memorised_are_counted_beside_their_twins_pair_by_pair() -> None:
    canary, twin = [True, True, True, True, False], [False, False, False, True, True]
    rows = said("canary", canary) + said("twin", twin)[::-1]
    expected = [*with_wilson(4, 5), "training", 0.4, 5 / 16, None]  # of 4 pairs that differ 3 or 4 this way
    assert expected == pytest.approx(by_name(called(rows))["rate called memorised", '{"estimator": "test"}'])


def test_a_model_without_its_twin_is_not_counted() -> None:
    rows = said("canary", [True, False, True]) + said("twin", [False, False])
    expected = [*with_wilson(1, 2), "training", 0.0, 0.5, None]
    assert expected == pytest.approx(by_name(called(rows))["rate called memorised", '{"estimator": "test"}'])


def test_an_estimator_that_is_no_test_calls_nothing() -> None:
    rows = said("canary", [True, None], "M") + said("twin", [False, None], "M") + said("canary", [True], "alone")
    assert {} == by_name(called(rows))


def test_the_detection_rate_is_the_best_at_which_at_most_five_percent_are_called_wrongly() -> None:
    names = ("estimator", "false_positive_rate", "detection_rate", "low", "high", "n")
    points = [
        ("M", 0.0, 0.1, 0.01, 0.2, 40),
        ("M", 0.05, 0.3, 0.2, 0.5, 40),
        ("M", 0.051, 0.9, 0.8, 0.95, 40),
        ("rank", 0.0, 0.7, 0.6, 0.8, 30),
        ("rank", 0.04, 0.6, 0.5, 0.75, 30),
    ]
    found = by_name(at_five_percent([dict(zip(names, point, strict=True)) for point in points]))
    metric = "detection rate at 5 % false positives"
    assert {
        (metric, '{"estimator": "M"}'): [0.3, 0.2, 0.5, 40, "training", 0.05, None, None],
        (metric, '{"estimator": "rank"}'): [0.7, 0.6, 0.8, 30, "training", 0.05, None, None],
    } == found


def test_panels_stand_beside_panels_of_as_many_twins() -> None:
    names = ("estimator", "model", "models", "detection_rate", "low", "high", "n")
    panels = [
        ("rank", "canary", 1, 0.2, 0.1, 0.4, 20),
        ("rank", "twin", 1, 0.04, 0.01, 0.1, 20),
        ("rank", "canary", 5, 0.6, 0.4, 0.8, 18),
        ("rank", "twin", 5, 0.06, 0.02, 0.2, 18),
        ("KL", "canary", 5, 0.5, 0.3, 0.7, 16),
    ]
    found = by_name(by_number([dict(zip(names, panel, strict=True)) for panel in panels]))
    metric = "detection rate by number of models"
    assert {
        (metric, '{"estimator": "rank", "models": 1}'): [0.2, 0.1, 0.4, 20, "panel of models", 0.04, None, None],
        (metric, '{"estimator": "rank", "models": 5}'): [0.6, 0.4, 0.8, 18, "panel of models", 0.06, None, None],
        (metric, '{"estimator": "KL", "models": 5}'): [0.5, 0.3, 0.7, 16, "panel of models", None, None, None],
    } == found
