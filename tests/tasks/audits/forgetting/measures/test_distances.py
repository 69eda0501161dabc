"""The distances of all pairs, and how far apart the summary says that query and calibration models are."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tasks.audits.forgetting.kolmogorov_smirnov import ks
from tasks.audits.forgetting.measures.distances import DISTANCES, Distances, distances
from tests.tasks.audits.forgetting.small_run import INPUTS, NULL, QUERY
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


def test_the_summary_has_the_mean_distances_of_both_kinds() -> None:
    def pair(model: str, replicate: int, ks: float, below: float) -> Row:
        about = {"query": 0, "model": model, "target": None, "replicate": replicate, "images": 100}
        return about | {"ks": ks, "below": below}

    pairs = [pair("query", 1, 0.1, 0.1), pair("query", 2, 0.1, 0.04)]
    pairs += [pair("calibration", 0, 0.5, 0.3), pair("calibration", 1, 0.7, 0.6), pair("target", 0, 0.9, 0.9)]
    found = rows(pa.Table.from_pylist(pairs, DISTANCES))
    for metric, kind, value in (
        ("KS to query models", "calibration", 0.6),
        ("KS to query models", "query", 0.1),
        ("one-sided KS to query models", "calibration", 0.45),
        ("one-sided KS to query models", "query", 0.07),
    ):
        row = found[metric, setting(models=kind)]
        assert pytest.approx((value, 2)) == (row["estimate"], row["n"])
