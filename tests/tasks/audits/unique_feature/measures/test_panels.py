"""How many models it takes: panels of models, each asked as one."""

from __future__ import annotations

import pyarrow as pa

from tasks.audits.unique_feature.measures.panels import Panels, panel_rate_rows, panels
from tests.tasks.audits.unique_feature.made_up import trained_family
from tests.tasks.summary_rows import by_name


def test_more_models_see_what_one_does_not() -> None:
    inputs = [trained_family(canary, 1.2) for canary in range(60)]
    found = {(r["estimator"], r["model"], r["models"]): r for r in panels(Panels(1), inputs).to_pylist()}
    known = [found["label-directed rank", "canary", size] for size in (1, 5, 20)]
    assert [60, 12, 3] == [row["n"] for row in known]
    assert known[0]["detection_rate"] < 0.6
    assert 1.0 == known[2]["detection_rate"]
    assert found["label-directed rank", "twin", 1]["detection_rate"] < 0.15
    assert found["paired family rank", "canary", 1]["detection_rate"] > 0.9


def test_panels_stand_beside_panels_of_as_many_twins() -> None:
    names = ("estimator", "model", "models", "detection_rate", "low", "high", "n")
    panels = [
        ("rank", "canary", 1, 0.2, 0.1, 0.4, 20),
        ("rank", "twin", 1, 0.04, 0.01, 0.1, 20),
        ("rank", "canary", 5, 0.6, 0.4, 0.8, 18),
        ("rank", "twin", 5, 0.06, 0.02, 0.2, 18),
        ("KL", "canary", 5, 0.5, 0.3, 0.7, 16),
    ]
    found = by_name(panel_rate_rows([dict(zip(names, panel, strict=True)) for panel in panels]))
    metric = "detection rate by number of models"
    assert {
        (metric, '{"estimator": "rank", "models": 1}'): [0.2, 0.1, 0.4, 20, "panel of models", 0.04, None, None],
        (metric, '{"estimator": "rank", "models": 5}'): [0.6, 0.4, 0.8, 18, "panel of models", 0.06, None, None],
        (metric, '{"estimator": "KL", "models": 5}'): [0.5, 0.3, 0.7, 16, "panel of models", None, None, None],
    } == found


def test_panels_of_canaries_that_share_a_seed_have_no_interval() -> None:
    inputs = [trained_family(canary, 1.2).set_column(2, "seed", pa.array([7] * 84)) for canary in range(6)]
    shared, apart = (
        panels(Panels(1), each).to_pylist() for each in (inputs, [trained_family(c, 1.2) for c in range(6)])
    )
    assert [{None}, False] == [{row["low"] for row in shared}, None in [row["low"] for row in apart]]
    assert [row["detection_rate"] for row in apart] == [row["detection_rate"] for row in shared]
