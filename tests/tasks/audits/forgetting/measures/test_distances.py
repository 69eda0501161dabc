"""The distances of all pairs, and how far apart the summary says that query and calibration models are."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.forgetting.decision import Decision, decided
from tasks.audits.forgetting.kolmogorov_smirnov import SCORES, among, ks
from tasks.audits.forgetting.measures.distances import DISTANCES, Distances, distances
from tasks.audits.forgetting.measures.ratios import ratios
from tests.tasks.audits.forgetting.made_up import tables
from tests.tasks.audits.forgetting.small_run import CALIBRATION, CONFIG, INPUTS, NULL, QUERY, REMEMBERED, by
from tests.tasks.audits.forgetting.summarised import Row, rows, setting


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
    found = rows(distances(Distances(), inputs))
    told = {json.loads(at)["score"]: row["estimate"] for (metric, at), row in found.items() if metric == "separation"}
    for score in SCORES:
        least = min(ks(q, c, score) for q in QUERY for c in calibration)
        assert least - among(QUERY, score).max() == told[score]
        for row in by(score, ratios(CONFIG, inputs)):
            expected = decided(row["rho"], row["low"], row["high"], told[score], CONFIG.margin)
            assert expected == Decision(row["decision"], row["reason"])
            assert ("no power" in (row["reason"] or "")) == (told[score] <= 0)
    assert (calibration is CALIBRATION) == all(each > 0 for each in told.values())


def test_the_separation_is_the_nearest_calibration_model_beyond_the_farthest_query_model() -> None:
    def pair(model: str, replicate: int, ks: float, below: float) -> Row:
        about = {"query": 0, "model": model, "target": None, "replicate": replicate, "images": 100}
        return about | {"ks": ks, "below": below}

    pairs = [pair("query", 1, 0.1, 0.1), pair("query", 2, 0.1, 0.04)]
    pairs += [pair("calibration", 0, 0.5, 0.3), pair("calibration", 1, 0.7, 0.6), pair("target", 0, 0.9, 0.9)]
    found = rows(pa.Table.from_pylist(pairs, DISTANCES))
    assert pytest.approx((0.3 - 0.1, 4)) == tuple(
        found["separation", setting(score="one-sided")][name] for name in ("estimate", "n")
    )
    assert pytest.approx(0.5 - 0.1) == found["separation", setting(score="published")]["estimate"]
    for metric, kind, value in (
        ("KS to query models", "calibration", 0.6),
        ("KS to query models", "query", 0.1),
        ("one-sided KS to query models", "calibration", 0.45),
        ("one-sided KS to query models", "query", 0.07),
    ):
        row = found[metric, setting(models=kind)]
        assert pytest.approx((value, 2)) == (row["estimate"], row["n"])
    alone = rows(pa.Table.from_pylist(pairs[2:], DISTANCES))
    assert not [metric for metric, _ in alone if metric == "separation"]
