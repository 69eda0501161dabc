"""The curve of each estimator: detection rates by rates of false positives."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tasks.audits.unique_feature.measures.curves import Curves, curve, curves
from tasks.audits.unique_feature.measures.detection import DETECTION
from tasks.statistics import proportion


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
