import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tasks import seeds
from tasks.audits.forgetting.audited import Audited
from tasks.audits.forgetting.decision import Decision, decided
from tasks.audits.forgetting.distance import SCORES, Score, among, ks
from tasks.audits.forgetting.distances import DISTANCES, Distances, distances
from tasks.audits.forgetting.powers import POWER, Powers, powers
from tasks.audits.forgetting.ratio import ratio
from tasks.audits.forgetting.ratios import RATIOS, Ratios, ratios
from tasks.audits.forgetting.summary import of_distances
from tests.tasks.audits.forgetting.made_up import models, table, tables

QUERY, CALIBRATION, NULL = models(np.random.default_rng(0), 3, 3, 400)
REMEMBERED = NULL.copy()
REMEMBERED[:, 100:] = QUERY[:, 100:]
TARGETS = (
    Audited("D_C", "training", 0.0, 1.0, 0.0),
    Audited("D_C + 0.75 D_Q", "training", 0.75, 1.0, 0.0),
    Audited("theirs", "outputs"),
)
CONFIG = Ratios(TARGETS, resamples=50)
THEIRS = table("target", 2, 0, REMEMBERED[0].round(2), resolution=0.01)
INPUTS = [*tables(QUERY, CALIBRATION, NULL, REMEMBERED), THEIRS]


def by(score: Score, table: pa.Table) -> list[dict[str, Any]]:
    return [row for row in table.to_pylist() if row["score"] == score]


@pytest.mark.parametrize("score", SCORES)
def test_every_target_has_a_row_that_holds_what_the_formula_gives(score: Score) -> None:
    table = ratios(CONFIG, INPUTS)
    assert (RATIOS, 6) == (table.schema, table.num_rows)
    null, remembered, theirs = by(score, table)
    expected = ratio(QUERY, CALIBRATION, NULL, None, 50, seeds.generator(0, "resamples of images"), score)
    assert (expected.rho.value, expected.rho.low, expected.rho.high) == (null["rho"], null["low"], null["high"])
    assert (expected.target.value, expected.calibration.value) == (null["ks"], null["ks_calibration"])
    assert among(QUERY, score)[~np.eye(3, dtype=bool)].mean() == null["floor"]
    assert ("D_C", "training", 1.0, 3, 400) == tuple(
        null[name] for name in ("name", "source", "calibration", "models", "images")
    )
    assert ["not forgotten", "not forgotten"] == [remembered["decision"], theirs["decision"]]
    assert ("right", None, None) == (remembered["right"], remembered["reason"], theirs["right"])
    assert (1, None) == (theirs["models"], theirs["query"])


@pytest.mark.parametrize("score", SCORES)
def test_the_published_rule_is_applied_to_each_triple(score: Score) -> None:
    null, _, theirs = by(score, ratios(CONFIG, INPUTS))
    forgotten = sum(ks(QUERY[r], NULL[r], score) >= ks(QUERY[r], CALIBRATION[r], score) for r in range(3))
    assert (forgotten, 3) == (null["rule_forgotten"], null["rule_triples"])
    assert (0, 3) == (theirs["rule_forgotten"], theirs["rule_triples"])  # a given model is in every triple


def test_a_coarse_target_is_compared_at_its_resolution() -> None:
    null, _, theirs = by("published", ratios(CONFIG, INPUTS))
    coarse = np.mean([ks(q.round(2), c.round(2)) for q in QUERY for c in CALIBRATION])
    assert coarse == pytest.approx(theirs["ks_calibration"])
    assert coarse != null["ks_calibration"]


def test_missing_models_leave_out_what_they_would_have_held() -> None:
    some = [table for table in INPUTS if table["replicate"][0].as_py() != 1 and table["target"][0].as_py() != 1]
    null, _ = by("one-sided", ratios(CONFIG, some))
    assert (2, 2) == (null["models"], null["rule_triples"])
    uncalibrated = [table for table in INPUTS if table["model"][0].as_py() != "calibration"]
    for row in ratios(CONFIG, uncalibrated).to_pylist():
        assert (None, "undecided", 0) == (row["rho"], row["decision"], row["rule_triples"])
        assert row["ks"] > 0
    unasked = [table for table in INPUTS if table["model"][0].as_py() != "query"]
    assert 0 == ratios(CONFIG, unasked).num_rows == powers(Powers(CONFIG), unasked).num_rows
    assert 0 == distances(Distances(), []).num_rows == ratios(CONFIG, []).num_rows


def test_the_order_of_the_inputs_makes_no_difference() -> None:
    for task, config in ((ratios, CONFIG), (powers, Powers(CONFIG)), (distances, Distances())):
        assert task(config, INPUTS).equals(task(config, INPUTS[::-1]))


def test_every_pair_with_a_query_model_has_its_distance_once() -> None:
    table = distances(Distances(), INPUTS)
    assert DISTANCES == table.schema
    rows = table.to_pylist()
    kinds = [(row["model"], row["target"]) for row in rows]
    assert [6, 9, 9, 9, 3] == [
        kinds.count(kind)
        for kind in (("query", None), ("calibration", None), ("target", 0), ("target", 1), ("target", 2))
    ]
    pairs = [(row["query"], row["replicate"]) for row in rows if row["model"] == "query"]
    assert [(1, 0), (2, 0), (0, 1), (2, 1), (0, 2), (1, 2)] == pairs  # in either order
    apart = {"ks": ks(QUERY[1], NULL[2]), "below": ks(QUERY[1], NULL[2], "one-sided")}
    assert {"query": 1, "model": "target", "target": 0, "replicate": 2, **apart, "images": 400} in rows


@pytest.mark.parametrize("calibration", [CALIBRATION, QUERY[[1, 2, 0]]], ids=["apart", "alike"])
def test_the_summary_tells_the_separation_that_every_target_is_decided_by(calibration: np.ndarray) -> None:
    inputs = tables(QUERY, calibration, NULL, REMEMBERED)
    summary = list(of_distances(distances(Distances(), inputs).to_pylist()))
    told = {json.loads(row["setting"])["score"]: row["estimate"] for row in summary if row["metric"] == "separation"}
    for score in SCORES:
        least = min(ks(q, c, score) for q in QUERY for c in calibration)
        assert least - among(QUERY, score).max() == told[score]
        for row in by(score, ratios(CONFIG, inputs)):
            expected = decided(row["rho"], row["low"], row["high"], told[score], CONFIG.margin)
            assert expected == Decision(row["decision"], row["reason"])
            assert ("no power" in (row["reason"] or "")) == (told[score] <= 0)
    assert (calibration is CALIBRATION) == all(each > 0 for each in told.values())


def test_the_power_counts_models_that_are_found_alone_beside_all_of_the_calibration_set() -> None:
    table = powers(Powers(CONFIG), INPUTS)
    assert POWER == table.schema
    assert ["published", "one-sided"] * 2 == table["score"].to_pylist()
    none, most = by("one-sided", table)
    assert (0.0, 3, 0, 0.0) == tuple(none[name] for name in ("share", "models", "detected", "power"))
    assert (0.75, 3) == (most["share"], most["models"])
    alone = [
        by("one-sided", ratios(CONFIG, tables(QUERY, CALIBRATION, NULL[:0], REMEMBERED[[r]])))[0]["decision"]
        for r in range(3)
    ]
    assert alone.count("not forgotten") == most["detected"] == 3
    assert by("one-sided", ratios(CONFIG, INPUTS))[1]["high"] == most["high"]
    assert "not forgotten" == most["decision"]


def test_what_cannot_be_decided_with_is_refused() -> None:
    with pytest.raises(ValueError, match="margin is 1; it must be a number between 0 and 1"):
        Ratios(TARGETS, margin=1)
    with pytest.raises(ValueError, match="resamples is 0; it must be at least 1"):
        Ratios(TARGETS, resamples=0)
