from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.unique_feature.pairs.canary_scores import canary_scores
from tasks.audits.unique_feature.pairs.detection import (
    DETECTION,
    call_rates,
    curve,
    curves,
    detection,
    detection_rates,
)
from tasks.audits.unique_feature.pairs.panels import Panels, panels
from tasks.contract.job import NoSettings
from tasks.numerics.statistics import proportion
from tests.tasks.audits.unique_feature.made_up import pair, summary_rows, trained_family
from tests.tasks.summary_rows import by_name as rows_by_name
from tests.tasks.summary_rows import with_wilson

MEMBERS = 41


def rows_by_model(table: pa.Table) -> dict[tuple[str, str, int], dict[str, Any]]:
    result = {}
    for row in table.to_pylist():
        result[(row["estimator"], row["model"], row["canary"])] = row
    return result


def test_estimators_judge_every_model() -> None:
    scores = canary_scores(NoSettings(), [pair(c, 0.1, 0.02 * c, evaluation=e) for c in (1, 2) for e in (0, 1)])
    judgements = rows_by_model(detection(NoSettings(), [trained_family(1, 9.0), trained_family(2, 9.0), scores]))
    ranks = ("rank of KL", "label-directed rank", "label-directed rank, label unknown", "paired family rank")
    expected = {"M", "M_w", "published t-test", "random against random", *ranks}
    assert {(name, model, c) for name in expected for model in ("canary", "twin") for c in (1, 2)} == judgements.keys()
    assert judgements["label-directed rank", "canary", 1]["p_value"] == 1 / MEMBERS
    assert judgements["label-directed rank", "canary", 1]["called"]
    assert judgements["paired family rank", "canary", 2]["p_value"] == 1 / MEMBERS
    # Evaluated on a member that neither model saw.
    assert judgements["paired family rank", "twin", 2]["p_value"] > 1 / MEMBERS
    assert pytest.approx(judgements["M", "canary", 1]["statistic"], abs=1e-6) == 0.1
    assert judgements["M", "canary", 1]["p_value"] is None
    assert pytest.approx(judgements["random against random", "twin", 1]["statistic"], abs=1e-6) == 0.0
    assert judgements["published t-test", "twin", 1]["called"]


def test_incomplete_pair_has_no_judgement() -> None:
    table = trained_family(1, 9.0)
    canary_only = table.filter(pa.compute.field("model") == "canary")
    assert detection(NoSettings(), [canary_only]).num_rows == 0


def test_summary_has_detection_rates_and_panel_sizes() -> None:
    families = [trained_family(canary, 2.0) for canary in range(20)]
    scores = canary_scores(NoSettings(), [pair(canary, 0.1, 0.1) for canary in range(20)])
    detected = detection(NoSettings(), [*families, scores])
    rates = summary_rows([detected, panels(Panels(0), families)])
    family_rank_rate = rates["rate called memorised", '{"estimator": "paired family rank"}']
    assert family_rank_rate["estimate"] > 0.9 > 0.3 > family_rank_rate["null"]
    assert family_rank_rate["p_value"] < 1e-4
    assert ("rate called memorised", '{"estimator": "M"}') not in rates  # no test
    at_level = rates["detection rate at 5 % false positives", '{"estimator": "M"}']
    assert at_level["n"] == 20
    assert at_level["unit"] == "canary"
    panel_rate = rates["detection rate by number of models", '{"estimator": "label-directed rank", "models": 5}']
    assert panel_rate["n"] == 4
    assert panel_rate["unit"] == "panel of models"


def call_rows(model: str, calls: Sequence[bool | None], estimator: str = "test") -> list[dict[str, Any]]:
    about = {"estimator": estimator, "model": model}
    result = []
    for canary, call in enumerate(calls):
        result.append(about | {"canary": canary, "seed": 100 + canary, "called": call})
    return result


def test_calls_are_compared_with_twins_by_pair() -> None:
    canary = [True, True, True, True, False]
    control = [False, False, False, True, True]
    rows = call_rows("canary", canary) + call_rows("twin", control)[::-1]
    expected = [*with_wilson(4, 5), "training", 0.4, 5 / 16, None]  # of 4 differing pairs, 3 or 4 in this direction
    assert expected == pytest.approx(rows_by_name(call_rates(rows))["rate called memorised", '{"estimator": "test"}'])


def test_shared_canary_or_seed_has_no_interval() -> None:
    rows = call_rows("canary", [True, True, False]) + call_rows("twin", [False, False, True])
    for name in ("canary", "seed"):
        (rate_row,) = call_rates([row | ({name: 7} if row["canary"] < 2 else {}) for row in rows])
        assert rate_row["estimate"] == pytest.approx(2 / 3)
        assert rate_row["low"] is None
        assert rate_row["p_value"] is None
        assert rate_row["n"] == 3


def test_model_without_twin_is_not_counted() -> None:
    rows = call_rows("canary", [True, False, True]) + call_rows("twin", [False, False])
    expected = [*with_wilson(1, 2), "training", 0.0, 0.5, None]
    assert expected == pytest.approx(rows_by_name(call_rates(rows))["rate called memorised", '{"estimator": "test"}'])


def test_estimator_without_test_calls_nothing() -> None:
    rows = (
        call_rows("canary", [True, None], "M")
        + call_rows("twin", [False, None], "M")
        + call_rows("canary", [True], "alone")
    )
    assert rows_by_name(call_rates(rows)) == {}


def statistic_rows(canary: Sequence[Sequence[float]], control: Sequence[Sequence[float]]) -> list[dict[str, Any]]:
    """Statistics of one estimator: one for each canary and training seed."""
    result = []
    for model, canaries in (("canary", canary), ("twin", control)):
        for number, seeds in enumerate(canaries):
            for seed, value in enumerate(seeds):
                result.append(
                    {"estimator": "M", "model": model, "canary": number, "seed": 10 * number + seed, "statistic": value}
                )
    return result


def test_threshold_comes_from_other_canaries_twins() -> None:
    # With 20 canaries, the threshold is the largest of the 19 other canaries' control models: p = 1 / 20. Control
    # model 3 is the largest of all, so canary 3 is compared with 18 and the others with 30; control model 3 itself
    # exceeds all others.
    control = [[float(number)] for number in range(20)]
    control[3] = [30.0]
    canary = [[25.0] if number in (3, 4) else [0.5] for number in range(20)]
    summary_rows = rows_by_name(detection_rates(statistic_rows(canary, control)))
    setting = "detection rate at 5 % false positives", '{"estimator": "M"}'
    assert summary_rows[setting] == pytest.approx([*with_wilson(1, 20), "canary", 1 / 20, None, None])
    assert rows_by_name(detection_rates(statistic_rows(canary[:19], control[:19]))) == {}


def test_detections_of_one_seed_have_no_interval() -> None:
    statistic_rows_of_canaries = statistic_rows([[9.0]] * 20, [[float(number)] for number in range(20)])
    (row,) = detection_rates([statistic_row | {"seed": 1} for statistic_row in statistic_rows_of_canaries])
    assert row["low"] is None
    assert row["high"] is None
    assert row["n"] == 20


def test_seeds_of_a_canary_are_one_unit() -> None:
    control = [[float(number), float(number) + 0.5] for number in range(20)]
    canary = [[99.0, 0.1 * (number % 2)] for number in range(20)]
    (row,) = detection_rates(statistic_rows(canary, control))
    assert row["estimate"] == 0.5
    assert row["n"] == 20
    assert row["unit"] == "canary"
    assert row["null"] == 0.05


def test_detection_without_memory_is_five_percent() -> None:
    # Both models of a pair share their seed's part of the score, as real trainings do.
    rng = np.random.default_rng(3)
    rates = []
    covered = 0
    nulls = 300
    for _ in range(nulls):
        canary, control = (rng.normal(0, 1, 40) + 0.6 * rng.normal(0, 1, (2, 40))).tolist()
        (row,) = detection_rates(statistic_rows([[v] for v in canary], [[v] for v in control]))
        rates.append(row["estimate"])
        covered += row["low"] <= 0.05 <= row["high"]
    assert np.mean(rates) == pytest.approx(0.05, abs=0.01)
    assert covered / nulls >= 0.9


def test_curve_agrees_with_hand_count() -> None:
    points = list(curve(np.array([5.0, 3.0, 1.0, 1.0]), np.array([4.0, 2.0, 1.0, 0.0])))
    assert [point["false_positive_rate"] for point in points] == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert [point["detection_rate"] for point in points] == [0.25, 0.25, 0.5, 1.0, 1.0]
    expected = proportion(2, 4)
    assert points[2]["low"] == expected.low
    assert points[2]["high"] == expected.high
    assert points[2]["n"] == 4


def test_constant_score_detects_at_chance() -> None:
    rows = []
    for model in ("canary", "twin"):
        for c in range(4):
            rows.append(
                {
                    "estimator": "M",
                    "model": model,
                    "canary": c,
                    "seed": 0,
                    "statistic": 0.5,
                    "p_value": None,
                    "called": None,
                }
            )
    curve_rows = curves(NoSettings(), [pa.Table.from_pylist(rows, DETECTION)]).to_pylist()
    assert [(row["false_positive_rate"], row["detection_rate"]) for row in curve_rows] == [(0.0, 0.0), (1.0, 1.0)]
