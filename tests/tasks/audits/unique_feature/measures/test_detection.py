from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from tasks.audits.unique_feature.measures.canary_scores import CanaryScores, canary_scores
from tasks.audits.unique_feature.measures.curves import Curves, curves
from tasks.audits.unique_feature.measures.detection import Detection, called, detection
from tasks.audits.unique_feature.measures.panels import Panels, panels
from tests.tasks.audits.unique_feature.made_up import pair, summary_rows, trained_family
from tests.tasks.summary_rows import by_name as rows_by_name
from tests.tasks.summary_rows import with_wilson

MEMBERS = 41


def by_name(table: pa.Table) -> dict[tuple[str, str, int], dict[str, Any]]:
    return {(row["estimator"], row["model"], row["canary"]): row for row in table.to_pylist()}


def test_every_estimator_has_a_word_on_every_model() -> None:
    scores = canary_scores(CanaryScores(), [pair(c, 0.1, 0.02 * c, evaluation=e) for c in (1, 2) for e in (0, 1)])
    found = by_name(detection(Detection(), [trained_family(1, 9.0), trained_family(2, 9.0), scores]))
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
    table = trained_family(1, 9.0)
    alone = table.filter(pa.compute.field("model") == "canary")
    assert 0 == detection(Detection(), [alone]).num_rows


def test_the_summary_says_what_each_estimator_detects_and_how_many_models_it_takes() -> None:
    families = [trained_family(canary, 2.0) for canary in range(20)]
    scores = canary_scores(CanaryScores(), [pair(canary, 0.1, 0.1) for canary in range(20)])
    detected = detection(Detection(), [*families, scores])
    rates = summary_rows([detected, curves(Curves(), [detected]), panels(Panels(0), families)])
    paired = rates["rate called memorised", '{"estimator": "paired family rank"}']
    assert paired["estimate"] > 0.9 > 0.3 > paired["null"]
    assert paired["p_value"] < 1e-4
    assert ("rate called memorised", '{"estimator": "M"}') not in rates  # no test
    at_level = rates["detection rate at 5 % false positives", '{"estimator": "M"}']
    assert 0.05 == at_level["null"]
    assert 20 == at_level["n"]
    several = rates["detection rate by number of models", '{"estimator": "label-directed rank", "models": 5}']
    assert (4, "panel of models") == (several["n"], several["unit"])


def words(model: str, calls: Sequence[bool | None], estimator: str = "test") -> list[dict[str, Any]]:
    about = {"estimator": estimator, "model": model}
    return [about | {"canary": at // 2, "seed": at % 2, "called": call} for at, call in enumerate(calls)]


def test_models_called_memorised_are_counted_beside_their_twins_pair_by_pair() -> None:
    canary, twin = [True, True, True, True, False], [False, False, False, True, True]
    rows = words("canary", canary) + words("twin", twin)[::-1]
    expected = [*with_wilson(4, 5), "training", 0.4, 5 / 16, None]  # of 4 pairs that differ 3 or 4 this way
    assert expected == pytest.approx(rows_by_name(called(rows))["rate called memorised", '{"estimator": "test"}'])


def test_a_model_without_its_twin_is_not_counted() -> None:
    rows = words("canary", [True, False, True]) + words("twin", [False, False])
    expected = [*with_wilson(1, 2), "training", 0.0, 0.5, None]
    assert expected == pytest.approx(rows_by_name(called(rows))["rate called memorised", '{"estimator": "test"}'])


def test_an_estimator_that_is_no_test_calls_nothing() -> None:
    rows = words("canary", [True, None], "M") + words("twin", [False, None], "M") + words("canary", [True], "alone")
    assert {} == rows_by_name(called(rows))
