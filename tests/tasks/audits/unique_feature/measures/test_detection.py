from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.unique_feature.measures.canary_scores import CanaryScores, canary_scores
from tasks.audits.unique_feature.measures.curves import Curves, curve, curves
from tasks.audits.unique_feature.measures.detection import DETECTION, Detection, detection
from tasks.audits.unique_feature.measures.panels import Panels, panels
from tasks.audits.unique_feature.published import Repeated
from tasks.audits.unique_feature.summary import summary
from tasks.statistics import proportion
from tests.tasks.audits.unique_feature.made_up import family, pair

MEMBERS, CLASSES, LABEL = 41, 3, 1


def trained(canary: int, push: float) -> pa.Table:
    """A pair whose canary model favours member 0 by `push` standard deviations towards its label."""
    rng = np.random.default_rng(canary)
    twin = rng.normal(0, 1, (MEMBERS, CLASSES))
    model = twin + rng.normal(0, 0.2, (MEMBERS, CLASSES))
    model[0, LABEL] += push
    return family(canary, {"canary": model, "twin": twin}, LABEL, 1000 + canary)


def by_name(table: pa.Table) -> dict[tuple[str, str, int], dict[str, Any]]:
    return {(row["estimator"], row["model"], row["canary"]): row for row in table.to_pylist()}


def test_every_estimator_has_a_word_on_every_model() -> None:
    scores = canary_scores(CanaryScores(), [pair(c, 0.1, 0.02 * c, evaluation=e) for c in (1, 2) for e in (0, 1)])
    found = by_name(detection(Detection(), [trained(1, 9.0), trained(2, 9.0), scores]))
    ranks = ("rank of KL", "label-directed rank", "label-directed rank, label unknown", "paired family rank")
    expected = {"M", "M_w", "published t-test", "random against random", *ranks}
    assert {(name, model, c) for name in expected for model in ("canary", "twin") for c in (1, 2)} == found.keys()
    assert 1 / MEMBERS == found["label-directed rank", "canary", 1]["p_value"]
    assert found["label-directed rank", "canary", 1]["called"]
    assert 1 / MEMBERS == found["paired family rank", "canary", 2]["p_value"]
    # Asked about a member that neither model saw.
    assert 1 / MEMBERS < found["paired family rank", "twin", 2]["p_value"]
    assert 0.1 == pytest.approx(found["M", "canary", 1]["statistic"], abs=1e-6)
    assert found["M", "canary", 1]["p_value"] is None
    assert 0.0 == pytest.approx(found["random against random", "twin", 1]["statistic"], abs=1e-6)
    assert found["published t-test", "twin", 1]["called"]


def test_a_pair_that_lost_a_model_has_no_word() -> None:
    table = trained(1, 9.0)
    alone = table.filter(pa.compute.field("model") == "canary")
    assert 0 == detection(Detection(), [alone]).num_rows


def test_a_curve_has_the_rates_counted_by_hand() -> None:
    points = list(curve(np.array([5.0, 3.0, 1.0, 1.0]), np.array([4.0, 2.0, 1.0, 0.0])))
    assert [0.0, 0.25, 0.5, 0.75, 1.0] == [point["false_positive_rate"] for point in points]
    assert [0.25, 0.25, 0.5, 1.0, 1.0] == [point["detection_rate"] for point in points]
    expected = proportion(2, 4)
    assert (expected.low, expected.high, 4) == (points[2]["low"], points[2]["high"], points[2]["n"])


def test_a_score_that_nothing_moves_detects_what_chance_does() -> None:
    rows = [
        {"estimator": "M", "model": model, "canary": c, "seed": 0, "statistic": 0.5, "p_value": None, "called": None}
        for model in ("canary", "twin")
        for c in range(4)
    ]
    found = curves(Curves(), [pa.Table.from_pylist(rows, DETECTION)]).to_pylist()
    assert [(0.0, 0.0), (1.0, 1.0)] == [(row["false_positive_rate"], row["detection_rate"]) for row in found]


def test_more_models_see_what_one_does_not() -> None:
    inputs = [trained(canary, 1.2) for canary in range(60)]
    found = {(r["estimator"], r["model"], r["models"]): r for r in panels(Panels(1), inputs).to_pylist()}
    known = [found["label-directed rank", "canary", size] for size in (1, 5, 20)]
    assert [60, 12, 3] == [row["n"] for row in known]
    assert known[0]["detection_rate"] < 0.6
    assert 1.0 == known[2]["detection_rate"]
    assert found["label-directed rank", "twin", 1]["detection_rate"] < 0.15
    assert found["paired family rank", "canary", 1]["detection_rate"] > 0.9


def test_the_summary_says_what_each_estimator_detects_and_how_many_models_it_takes() -> None:
    families = [trained(canary, 2.0) for canary in range(20)]
    scores = canary_scores(CanaryScores(), [pair(canary, 0.1, 0.1) for canary in range(20)])
    detected = detection(Detection(), [*families, scores])
    table = summary(Repeated(), [detected, curves(Curves(), [detected]), panels(Panels(0), families)]).to_pylist()
    rates = {(row["metric"], row["setting"]): row for row in table}
    paired = rates["rate called memorised", '{"estimator": "paired family rank"}']
    assert paired["estimate"] > 0.9 > 0.3 > paired["null"]
    assert paired["p_value"] < 1e-4
    assert ("rate called memorised", '{"estimator": "M"}') not in rates  # no test
    at_level = rates["detection rate at 5 % false positives", '{"estimator": "M"}']
    assert 0.05 == at_level["null"]
    assert 20 == at_level["n"]
    several = rates["detection rate by number of models", '{"estimator": "label-directed rank", "models": 5}']
    assert (4, "panel of models") == (several["n"], several["unit"])
