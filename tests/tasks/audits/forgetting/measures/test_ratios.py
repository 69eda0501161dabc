"""The ratios of each target and their rows in the summary, read from tables by hand.

The distances of all pairs, and the distance of query and calibration models in the summary.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from tasks.audits.forgetting.config import About
from tasks.audits.forgetting.measures.ratios import DISTANCES, RATIOS, distances, ratios
from tasks.audits.forgetting.rho import SCORES, Score, ks, pairwise_distances
from tasks.audits.forgetting.rho import ratio as rho
from tasks.audits.forgetting.target import NamedTarget
from tasks.contract.job import NoSettings
from tasks.numerics.statistics import proportion
from tests.tasks.audits.forgetting import made_up
from tests.tasks.audits.forgetting.small_run import CALIBRATION, CONFIG, INPUTS, NULL, QUERY, rows_of_score
from tests.tasks.audits.forgetting.summarised import Row, numbers, rows, setting

WITH_QUERY = "D_C + 0.1 D_Q"
CLEAN = "D_C"


@pytest.mark.parametrize("score", SCORES)
def test_target_rows_follow_the_formula(score: Score) -> None:
    table = ratios(CONFIG, INPUTS)
    assert table.schema == RATIOS
    assert table.num_rows == 6
    null, remembered, table_row = rows_of_score(score, table)
    expected = rho(QUERY, CALIBRATION, NULL, score)
    assert expected.rho.value == null["rho"]
    assert expected.rho.low == null["low"]
    assert expected.rho.high == null["high"]
    assert expected.target.value == null["ks"]
    assert expected.calibration.value == null["ks_calibration"]
    assert pairwise_distances(QUERY, score)[~np.eye(3, dtype=bool)].mean() == null["floor"]
    assert tuple(null[name] for name in ("name", "source", "calibration", "models", "images")) == (
        "D_C",
        "training",
        1.0,
        3,
        400,
    )
    assert remembered["high"] < null["low"]
    assert table_row["models"] == 1
    assert table_row["query"] is None


@pytest.mark.parametrize("score", SCORES)
def test_published_rule_applies_to_each_triple(score: Score) -> None:
    null, _, table_row = rows_of_score(score, ratios(CONFIG, INPUTS))
    forgotten = sum(ks(QUERY[r], NULL[r], score) >= ks(QUERY[r], CALIBRATION[r], score) for r in range(3))
    assert null["rule_forgotten"] == forgotten
    assert null["rule_triples"] == 3
    # a given model is part of every triple
    assert table_row["rule_forgotten"] == 0
    assert table_row["rule_triples"] == 3


def test_coarse_target_is_compared_at_its_resolution() -> None:
    null, _, table_row = rows_of_score("published", ratios(CONFIG, INPUTS))
    coarse = np.mean([ks(q.round(2), c.round(2)) for q in QUERY for c in CALIBRATION])
    assert coarse == pytest.approx(table_row["ks_calibration"])
    assert coarse != null["ks_calibration"]


def test_published_score_does_not_round() -> None:
    """The inputs compare at two decimals, as all presets do; scipy's distances use all digits."""
    kinds = {"query": QUERY, "calibration": CALIBRATION, "target": NULL}
    inputs = []
    for kind, models in kinds.items():
        for replicate, values in enumerate(models):
            inputs.append(
                made_up.table(kind, 0 if kind == "target" else None, replicate, values, resolution=0.01, printed=0.0)
            )
    table = ratios(replace(CONFIG, targets=CONFIG.targets[:1]), inputs)
    ((published,), (one_sided,)) = rows_of_score("published", table), rows_of_score("one-sided", table)
    to_target = np.mean([stats.ks_2samp(q, second).statistic for q in QUERY for second in NULL])
    to_calibration = np.mean([stats.ks_2samp(q, second).statistic for q in QUERY for second in CALIBRATION])
    assert published["rho"] == pytest.approx(to_target / to_calibration)
    assert one_sided["rho"] == pytest.approx(
        rho(QUERY.round(2), CALIBRATION.round(2), NULL.round(2), "one-sided").rho.value
    )
    pair = distances(NoSettings(), inputs).to_pylist()[-1]
    query = QUERY[pair["query"]]
    target = NULL[pair["replicate"]]
    assert pair["ks"] == pytest.approx(stats.ks_2samp(query, target).statistic)
    assert pair["below"] == pytest.approx(ks(query.round(2), target.round(2), "one-sided"))


def test_missing_models_leave_out_their_pairs() -> None:
    remaining_tables = []
    for table in INPUTS:
        if table["replicate"][0].as_py() != 1 and table["target"][0].as_py() != 1:
            remaining_tables.append(table)
    null, _ = rows_of_score("one-sided", ratios(CONFIG, remaining_tables))
    assert null["models"] == 2
    assert null["rule_triples"] == 2
    uncalibrated = []
    for table in INPUTS:
        if table["model"][0].as_py() != "calibration":
            uncalibrated.append(table)
    for row in ratios(CONFIG, uncalibrated).to_pylist():
        assert row["rho"] is None
        assert row["rule_triples"] == 0
        assert row["ks"] > 0
    without_query = [table for table in INPUTS if table["model"][0].as_py() != "query"]
    assert ratios(CONFIG, without_query).num_rows == 0
    assert 0 == distances(NoSettings(), []).num_rows == ratios(CONFIG, []).num_rows


def test_the_order_of_the_inputs_makes_no_difference() -> None:
    for task, config in ((ratios, CONFIG), (distances, NoSettings())):
        assert task(config, INPUTS).equals(task(config, INPUTS[::-1]))


def ratio(name: str, score: str, ks: float, rho: float | None, **columns: Any) -> Row:
    """A row of RATIOS; rho's interval is a tenth to either side."""
    row: Row = dict.fromkeys(RATIOS.names) | {"name": name, "score": score, "source": "training", "models": 3}
    row |= {"ks": ks, "ks_low": ks - 0.01, "ks_high": ks + 0.01, "ks_calibration": 0.5, "rho": rho, "images": 100}
    row |= {"low": rho and 0.9 * rho, "high": rho and 1.1 * rho, "rule_forgotten": 1, "rule_triples": 3}
    return row | columns


def ratio_table(*rows: Row) -> pa.Table:
    return pa.Table.from_pylist(list(rows), RATIOS)


RATIO = ratio_table(
    ratio(CLEAN, "published", 0.5, 1.0),
    ratio(CLEAN, "one-sided", 0.45, 0.9),
    ratio(WITH_QUERY, "published", 0.2, 0.4),
    ratio(WITH_QUERY, "one-sided", 0.1, 0.2),
)


def test_one_sided_rows_come_first() -> None:
    metrics = list(dict.fromkeys(metric for metric, _ in rows(RATIO, DISTANCES.empty_table())))
    assert metrics == ["one-sided rho", "one-sided KS", "rho", "KS", "published rule says forgotten"]


def test_targets_have_both_rhos_with_intervals() -> None:
    result = rows(RATIO)
    share = setting(target=WITH_QUERY)
    assert numbers(result["one-sided rho", share]) == (0.2, 0.9 * 0.2, 1.1 * 0.2, 3, 1.0, None)
    assert numbers(result["rho", share]) == (0.4, 0.9 * 0.4, 1.1 * 0.4, 3, 1.0, None)
    # The null of KS is the distance of the calibration models, which never saw the query set.
    assert numbers(result["one-sided KS", share])[:5] == pytest.approx((0.1, 0.09, 0.11, 3, 0.5))
    assert numbers(result["KS", share])[:5] == pytest.approx((0.2, 0.19, 0.21, 3, 0.5))


def test_papers_numbers_belong_to_its_score() -> None:
    result = rows(RATIO, config=About((), "table 1"))
    printed = {}
    for metric in ("rho", "KS", "one-sided rho", "one-sided KS"):
        printed[metric] = [row["published"] for (name, _), row in result.items() if name == metric]
    none = [None, None]
    assert printed == {"rho": [1.0, 0.094], "KS": [0.596, 0.056], "one-sided rho": none, "one-sided KS": none}


def test_published_rule_is_a_share_of_triples() -> None:
    expected = proportion(1, 3)
    row = rows(RATIO)["published rule says forgotten", setting(target=WITH_QUERY)]
    assert numbers(row)[:4] == (expected.value, expected.low, expected.high, 3)


def test_undefined_rho_is_null() -> None:
    result = rows(ratio_table(ratio(CLEAN, "one-sided", 0.0, None)))
    assert numbers(result["one-sided rho", setting(target=CLEAN)]) == (None, None, None, 3, 1.0, None)


def test_unanswered_target_has_a_row_of_no_models() -> None:
    result = rows(RATIO, config=About((NamedTarget(CLEAN, "training"), NamedTarget("lost", "training"))))
    assert numbers(result["one-sided rho", setting(target="lost")]) == (None, None, None, 0, 1.0, None)
    assert result["one-sided rho", setting(target=CLEAN)]["estimate"] == 0.9


def test_pairs_with_query_models_occur_once() -> None:
    table = distances(NoSettings(), INPUTS)
    assert table.schema == DISTANCES
    rows = table.to_pylist()
    kinds = [(row["model"], row["target"]) for row in rows]
    assert [
        kinds.count(kind)
        for kind in (("query", None), ("calibration", None), ("target", 0), ("target", 1), ("target", 2))
    ] == [6, 9, 9, 9, 3]
    pairs = []
    for row in rows:
        if row["model"] == "query":
            pairs.append((row["query"], row["replicate"]))
    assert pairs == [(1, 0), (2, 0), (0, 1), (2, 1), (0, 2), (1, 2)]  # in both orders
    pair_distances = {"ks": ks(QUERY[1], NULL[2]), "below": ks(QUERY[1], NULL[2], "one-sided")}
    assert {"query": 1, "model": "target", "target": 0, "replicate": 2, **pair_distances, "images": 400} in rows


def test_summary_has_mean_distances_of_both_kinds() -> None:
    def pair(model: str, replicate: int, ks: float, below: float) -> Row:
        about = {"query": 0, "model": model, "target": None, "replicate": replicate, "images": 100}
        return about | {"ks": ks, "below": below}

    pairs = [pair("query", 1, 0.1, 0.1), pair("query", 2, 0.1, 0.04)]
    pairs += [pair("calibration", 0, 0.5, 0.3), pair("calibration", 1, 0.7, 0.6), pair("target", 0, 0.9, 0.9)]
    result = rows(pa.Table.from_pylist(pairs, DISTANCES))
    for metric, kind, value in (
        ("KS to query models", "calibration", 0.6),
        ("KS to query models", "query", 0.1),
        ("one-sided KS to query models", "calibration", 0.45),
        ("one-sided KS to query models", "query", 0.07),
    ):
        row = result[metric, setting(models=kind)]
        assert (row["estimate"], row["n"]) == pytest.approx((value, 2))
