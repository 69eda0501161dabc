from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from tasks.audits.unique_feature.pairs.canary_scores import (
    CANARY_SCORES,
    canary_scores,
    evaluation_spread_rows,
    seed_range_rows,
)
from tasks.audits.unique_feature.pairs.units import effect_row, units
from tasks.audits.unique_feature.presets import PublishedCell, published_numbers
from tasks.audits.unique_feature.summary import summary
from tasks.contract.job import NoSettings
from tasks.contract.schemas import SUMMARY
from tasks.numerics.ranks import false_discovery_control
from tasks.numerics.statistics import paired_greater, welch_greater
from tests.tasks.audits.unique_feature.made_up import Columns, divergences, history, pair
from tests.tasks.summary_rows import by_name, with_t, with_wilson


def columns(d_u: list[float], d_r: list[float], p_u: list[float], p_r: list[float]) -> Columns:
    return {"d_u": d_u, "d_r": d_r, "log_p_u": np.log(p_u), "log_p_r": np.log(p_r)}


WORKED = divergences(
    7,
    {
        ("canary", "probe"): columns([0.5, 1.0, 1.5], [0.25, 0.5, 0.25], [0.4, 0.6, 0.8], [0.2, 0.3, 0.4]),
        ("canary", "train"): columns([0.0, 0.0], [0.0, 0.0], [0.9, 0.5], [0.9, 0.5]),
        ("twin", "probe"): columns([0.5, 0.5, 0.5], [0.25, 0.5, 0.75], [0.5, 0.5, 0.5], [0.5, 0.5, 0.5]),
        ("twin", "train"): columns([0.0, 0.0], [0.0, 0.0], [0.2, 0.4], [0.8, 0.4]),
    },
)


def test_a_canarys_scores_are_those_worked_out_by_hand() -> None:
    (row,) = canary_scores(NoSettings(), [WORKED]).to_pylist()
    expected = {
        "canary": 7,
        "label": 3,
        "seed": 1007,
        "m": 2 / 3,
        "twin_m": 0,
        "m_effect": 2 / 3,
        "m_w_probe": math.log(2),
        "twin_m_w_probe": 0,
        "m_w_probe_effect": math.log(2),
        "m_w_train": 0,
        "twin_m_w_train": -math.log(4) / 2,
        "m_w_train_effect": math.log(4) / 2,
        "average_d_u": 1,
        "average_d_r": 1 / 3,
        "twin_average_d_u": 0.5,
        "twin_average_d_r": 0.5,
        "p_u_probe": 0.6,
        "p_r_probe": 0.3,
        "p_u_train": 0.7,
        "twin_p_u_train": 0.3,
        "twin_p_r_train": 0.6,
        "images_probe": 3,
        "images_train": 2,
    }
    assert expected == pytest.approx({name: row[name] for name in expected}, abs=1e-7)  # stored as float32


def test_a_canarys_tests_compare_its_images() -> None:
    (row,) = canary_scores(NoSettings(), [WORKED]).to_pylist()
    d_u, d_r = [0.5, 1.0, 1.5], [0.25, 0.5, 0.25]
    assert [welch_greater(d_u, d_r).p_value, paired_greater(d_u, d_r).p_value] == [row["m_welch_p"], row["m_paired_p"]]
    assert pytest.approx([row["twin_m_welch_p"], row["twin_m_paired_p"]]) == [0.5, 0.5]
    assert row["m_w_train_paired_p"] == 1.0


def test_p_values_are_adjusted_over_the_canaries() -> None:
    inputs = [pair(canary, m, -m) for canary, m in enumerate([0.001, 0.002, 0.01, -0.001])]
    table = canary_scores(NoSettings(), inputs)
    for name in ("m_welch", "m_paired", "twin_m_paired", "m_w_train_welch"):
        adjusted = false_discovery_control(table[f"{name}_p"].to_numpy())
        assert adjusted.tolist() == table[f"{name}_adjusted_p"].to_pylist()


def test_the_largest_m_comes_first_whatever_the_order_of_the_inputs() -> None:
    inputs = [pair(canary, m, 0.0) for canary, m in enumerate([0.1, 0.3, 0.2])]
    inputs += [history(canary, {"canary": [0.5, 0.9], "twin": [0.8]}) for canary in range(3)]
    table = canary_scores(NoSettings(), inputs)
    assert table["canary"].to_pylist() == [1, 2, 0]
    assert table.equals(canary_scores(NoSettings(), inputs[::-1]))
    assert table.schema.equals(CANARY_SCORES)


def test_training_is_told_of_by_the_history_of_the_same_pair() -> None:
    inputs = [
        pair(1, 0.1, 0.0),
        pair(2, 0.2, 0.0),
        history(2, {"canary": [0.5, 0.9, 0.7], "twin": [0.8]}),
        history(1, {"canary": [0.4], "twin": [0.3, 0.6]}),
    ]
    table = canary_scores(NoSettings(), inputs)
    assert table["canary"].to_pylist() == [2, 1]
    assert table["validation_accuracy"].to_pylist() == [0.9, 0.4]
    assert table["twin_validation_accuracy"].to_pylist() == [0.8, 0.6]
    assert table["epochs"].to_pylist() == [3, 1]
    assert table["best_epoch"].to_pylist() == [2, 1]
    assert table["twin_best_epoch"].to_pylist() == [1, 2]


def test_canaries_are_scored_from_the_inputs_that_are_there() -> None:
    inputs = [pair(1, 0.1, 0.0), pair(2, 0.2, 0.0), history(3, {"canary": [0.5], "twin": [0.5]})]
    table = canary_scores(NoSettings(), inputs)
    assert table["canary"].to_pylist() == [2, 1]
    assert table["validation_accuracy"].to_pylist() == [None, None]
    assert canary_scores(NoSettings(), []).schema.equals(CANARY_SCORES)
    assert canary_scores(NoSettings(), []).num_rows == 0


def test_a_canary_alone_with_its_label_has_no_score_on_training_images() -> None:
    probe = columns([0.5, 1.0], [0.25, 0.5], [0.4, 0.6], [0.2, 0.3])
    table = canary_scores(NoSettings(), [divergences(1, {("canary", "probe"): probe, ("twin", "probe"): probe})])
    (row,) = table.to_pylist()
    assert row["m_effect"] == 0
    assert row["images_train"] == 0
    for name in ("m_w_train", "twin_m_w_train", "m_w_train_effect", "p_u_train", "m_w_train_welch_p"):
        assert row[name] is None
    assert row["m_w_train_paired_adjusted_p"] is None


TABLE_1 = "table 1, mnist, mlp1, no regulariser"
TABLE_2 = "table 2, mnist, mlp1, no regulariser"


def rows(inputs: list[pa.Table], published: str = "") -> dict[tuple[str, str], dict[str, Any]]:
    """The summary's rows by metric and setting."""
    table = summary(PublishedCell(published), [canary_scores(NoSettings(), inputs)])
    assert table.schema.equals(SUMMARY)
    by_name = {(row["metric"], row["setting"]): row for row in table.to_pylist()}
    assert len(by_name) == table.num_rows
    return by_name


def setting(**varied: object) -> str:
    return json.dumps(varied, sort_keys=True)


M = [0.1, 0.3, -0.1, 0.2]
TWINS = [0.1, 0.1, -0.2, -0.1]


def worked() -> dict[tuple[str, str], dict[str, Any]]:
    return rows([pair(canary, m, twin) for canary, (m, twin) in enumerate(zip(M, TWINS, strict=True))])


def test_the_mean_over_all_canaries_stands_beside_that_of_their_twins() -> None:
    row = worked()["M", setting(model="canary")]
    half = stats.t.ppf(0.975, 3) * np.std(M, ddof=1) / 2
    assert [0.125, 0.125 - half, 0.125 + half, -0.025] == pytest.approx(
        [row["estimate"], row["low"], row["high"], row["null"]], abs=1e-7
    )
    assert (row["n"], row["unit"]) == (4, "training")
    assert worked()["M", setting(model="twin")]["estimate"] == pytest.approx(-0.025, abs=1e-7)


def test_the_effect_is_a_difference_over_pairs_of_trainings() -> None:
    row = worked()["M effect", "{}"]
    differences = np.subtract(M, TWINS)
    expected = stats.ttest_1samp(differences, 0, alternative="greater").pvalue
    assert [0.15, expected] == pytest.approx([row["estimate"], row["p_value"]], abs=1e-6)
    assert [row["null"], row["n"], row["unit"]] == [0.0, 4, "pair of trainings"]
    low, high = stats.t.interval(0.95, 3, differences.mean(), stats.sem(differences))
    assert [low, high] == pytest.approx([row["low"], row["high"]], abs=1e-6)


def test_the_published_mean_counts_only_canaries_above_zero_and_so_does_its_null() -> None:
    canary = worked()["M where positive", setting(model="canary")]
    twin = worked()["M where positive", setting(model="twin")]
    assert pytest.approx([canary["estimate"], canary["n"], canary["null"]], abs=1e-7) == [0.2, 3, 0.1]
    assert pytest.approx([twin["estimate"], twin["n"]], abs=1e-7) == [0.1, 2]
    share = worked()["rate of positive M", setting(model="canary")]
    # One pair differs, and in the canary's favour.
    assert [share["estimate"], share["n"], share["null"], share["p_value"]] == [0.75, 4, 0.5, 0.5]


def test_the_published_tests_rate_has_the_twins_rate_for_its_null() -> None:
    table = worked()
    for test in ("welch", "paired"):
        canary = table["rate called memorised", setting(model="canary", test=test)]
        twin = table["rate called memorised", setting(model="twin", test=test)]
        # Noise over images is small, so the test calls exactly those with M > 0.
        assert [canary["estimate"], canary["n"], canary["null"], canary["p_value"]] == [0.75, 4, 0.5, 0.5]
        assert [twin["estimate"], twin["n"], twin["null"]] == [0.5, 4, 0.05]
        assert twin["p_value"] == pytest.approx(stats.binom.sf(1, 4, 0.05))
        assert canary["low"] < 0.75 < canary["high"]


def test_the_white_box_score_is_given_for_probe_and_training_images() -> None:
    table = worked()
    for images in ("probe", "train"):
        mean, effect = table["M_w", setting(images=images)], table["M_w effect", setting(images=images)]
        # The made-up pairs have M_w = -M.
        assert pytest.approx([mean["estimate"], mean["null"], effect["estimate"]], abs=1e-6) == [-0.125, 0.025, -0.15]
        assert effect["p_value"] > 0.5
        probability = table["P_u", setting(images=images)]
        assert [np.exp(-1)] * 2 == pytest.approx([probability["estimate"], probability["null"]])


def test_the_validation_accuracy_is_that_of_the_models_whose_history_is_there() -> None:
    inputs = [pair(1, 0.1, 0.0), pair(2, 0.1, 0.0), history(1, {"canary": [0.5, 0.75], "twin": [0.25]})]
    row = rows(inputs)["validation accuracy", setting(model="canary")]
    assert [row["estimate"], row["low"], row["high"], row["n"]] == [0.75, None, None, 1]


def test_one_canary_has_estimates_and_no_intervals() -> None:
    table = rows([pair(1, 0.1, 0.0)])
    row = table["M effect", "{}"]
    assert row["estimate"] == pytest.approx(0.1, abs=1e-7)
    assert [row["low"], row["high"], row["n"], row["p_value"]] == [None, None, 1, None]


def test_without_any_canary_the_rows_are_there_and_empty() -> None:
    table = rows([])
    assert worked().keys() == table.keys()
    assert {(None, 0)} == {(row["estimate"], row["n"]) for row in table.values()}


def test_table_1_stands_beside_the_five_canaries_with_the_largest_white_box_scores() -> None:
    scores = [-0.4, -0.1, -0.7, -0.2, -0.6, -0.3, -0.5]
    inputs = [pair(canary, m, m / 10) for canary, m in enumerate(scores)]
    table = rows(inputs, TABLE_1)
    for images in ("probe", "train"):
        listed = [table["M_w", setting(images=images, rank=rank)] for rank in range(1, 6)]
        assert pytest.approx([row["estimate"] for row in listed], abs=1e-6) == [0.7, 0.6, 0.5, 0.4, 0.3]
        assert pytest.approx([row["null"] for row in listed], abs=1e-6) == [0.07, 0.06, 0.05, 0.04, 0.03]
        assert [row["published"] for row in listed] == [0.11, 0.11, 0.11, 0.10, 0.10]
        assert {(1, "training", None, None)} == {(row["n"], row["unit"], row["low"], row["high"]) for row in listed}
        probabilities = [table[p, setting(images=images, rank=2)]["published"] for p in ("P_u", "P_r")]
        assert probabilities == [0.52, 0.46]
    assert len(published_numbers(TABLE_1).m_w) == 5


def test_nothing_is_published_for_a_run_that_repeats_no_table() -> None:
    assert {None} == {row["published"] for row in worked().values()}
    assert not any("rank" in where for _, where in worked())


def test_the_published_test_calls_most_models_memorised_where_only_the_seed_moves_m() -> None:
    rng = np.random.default_rng(6)
    inputs = [pair(i, m, m) for i, m in enumerate(rng.normal(0.05, 0.05, 40))]
    row = rows(inputs)["rate called memorised", setting(model="twin", test="paired")]
    assert row["estimate"] > 0.5
    assert row["low"] > row["null"]
    assert row["p_value"] < 1e-6


def test_table_2_stands_beside_the_three_canaries_with_the_largest_m_and_the_mean_above_zero() -> None:
    table = rows([pair(canary, m, m / 10) for canary, m in enumerate([0.1, 0.4, -0.2, 0.3])], TABLE_2)
    listed = [table["M", setting(rank=rank)] for rank in (1, 2, 3)]
    assert pytest.approx([row["estimate"] for row in listed], abs=1e-6) == [0.4, 0.3, 0.1]
    assert [row["published"] for row in listed] == [0.0038, 0.0021, 0.0017]
    assert table["M where positive", setting(model="canary")]["published"] == 0.0013


def test_several_seeds_of_one_canary_are_one_unit() -> None:
    inputs = [
        pair(canary, m, 0.0, seed=10 * canary + seed) for canary in (1, 2, 3) for seed, m in ((5, 0.1), (6, -0.3))
    ]
    table = rows(inputs)
    row = table["M", setting(model="canary")]
    assert pytest.approx([row["estimate"], row["n"], row["unit"]], abs=1e-6) == [-0.1, 3, "canary"]
    called = table["rate called memorised", setting(model="canary", test="welch")]
    assert (called["n"], called["low"], called["p_value"]) == (6, None, None)
    width = table["range of M over seeds", "{}"]
    assert pytest.approx([width["estimate"], width["n"]], abs=1e-6) == [0.4, 3]
    both = table["rate of M on both sides of 0", "{}"]
    assert [both["estimate"], both["null"]] == [1.0, 0.0]


def test_canaries_that_share_a_training_seed_are_one_observation_of_it() -> None:
    one = rows([pair(canary, 0.1 * canary, 0.0, seed=5) for canary in (1, 2, 3)])["M effect", "{}"]
    assert (one["n"], one["unit"], one["low"], one["p_value"]) == (1, "training seed", None, None)
    inputs = [pair(canary, 0.1 * canary + 0.01 * seed, 0.0, seed=seed) for canary in (1, 2, 3) for seed in (5, 6, 9)]
    several = rows(inputs)["M effect", "{}"]
    assert pytest.approx([several["estimate"], several["n"], several["unit"]]) == [0.2 + 0.2 / 3, 3, "training seed"]


def test_an_interval_over_seeds_covers_where_canaries_share_what_a_seed_does() -> None:
    # Each canary with each of six seeds; a seed moves the effects of all its canaries alike.
    rng = np.random.default_rng(4)
    covered, nulls = 0, 300
    for _ in range(nulls):
        effects = rng.normal(0, 1, (1, 6)) + rng.normal(0, 1, (5, 6))
        found = [
            {"canary": c, "seed": s, "evaluation": 0, "m": e, "twin_m": 0.0, "m_effect": e}
            for (c, s), e in np.ndenumerate(effects)
        ]
        of_seeds = units(found)
        row = effect_row("M effect", {}, of_seeds.rows, "m", of_seeds.pair)
        assert (row["n"], row["unit"]) == (6, "training seed")
        covered += row["low"] <= 0 <= row["high"]
    assert covered / nulls >= 0.9


def test_several_evaluations_of_one_pair_are_one_unit_with_a_spread() -> None:
    inputs = [pair(canary, m, 0.0, evaluation=e) for canary in (1, 2) for e, m in enumerate((0.1, 0.2, 0.3))]
    table = rows(inputs)
    row = table["M", setting(model="canary")]
    assert pytest.approx([row["estimate"], row["n"], row["unit"]], abs=1e-6) == [0.2, 2, "training"]
    spread = table["sd of M over evaluations", "{}"]
    assert pytest.approx([spread["estimate"], spread["n"], spread["null"]], abs=1e-6) == [0.1, 2, 0.0]


def score(canary: int, seed: int, m: float, twin: float, evaluation: int = 0) -> dict[str, Any]:
    about = {"canary": canary, "seed": seed, "evaluation": evaluation}
    return about | {"m": m, "twin_m": twin, "m_w_probe": 2 * m, "twin_m_w_probe": 2 * twin}


def test_seeds_change_a_score_by_its_range_and_may_change_its_sign() -> None:
    scores = [score(1, 1, -0.5, 0.125), score(2, 1, 0.25, -0.5), score(1, 2, 0.5, 0.25), score(2, 2, 0.0, 0.5)]
    scores += [score(1, 3, 0.25, 0.125), score(3, 1, -0.5, -0.125), score(3, 2, 0.0, -0.25), score(4, 1, 1.0, 1.0)]
    found = by_name(seed_range_rows(scores))
    for metric, size in (("M", 1), ("M_w on the probe images", 2)):
        ranges, twins = ([size * width for width in each] for each in ([1.0, 0.25, 0.5, 0.0], [0.125, 1.0, 0.125, 0.0]))
        expected = [*with_t(ranges), "canary", sum(twins) / 4, None, None]
        assert expected == pytest.approx(found[f"range of {metric} over seeds", "{}"])
        expected = [*with_wilson(1, 4), "canary", 0.25, None, None]
        assert expected == pytest.approx(found[f"rate of {metric} on both sides of 0", "{}"])


def test_evaluations_of_one_pair_are_one_training_and_no_range_over_seeds() -> None:
    scores = [score(1, 1, 0.1, 0.2), score(1, 1, 0.3, 0.2, evaluation=1), score(2, 1, 0.5, 0.5)]
    assert by_name(seed_range_rows(scores)) == {}


def test_the_evaluations_are_averaged_before_the_range_over_seeds() -> None:
    scores = [score(1, 1, 0.0, 0.0), score(1, 1, 1.0, 0.0, evaluation=1), score(1, 2, 1.5, 0.25)]
    found = by_name(seed_range_rows(scores))
    assert found["range of M over seeds", "{}"] == [1.0, None, None, 1, "canary", 0.25, None, None]


def test_the_spread_over_evaluations_is_a_models_own() -> None:
    scores = [score(1, 1, 0.0, 0.5), score(2, 1, 8.0, 8.0), score(1, 1, 1.0, 1.0, evaluation=1)]
    scores += [score(1, 2, 0.0, 0.25), score(1, 2, 3.0, 0.25, evaluation=1), score(1, 2, 0.0, 1.0, evaluation=2)]
    found = by_name(evaluation_spread_rows(scores))
    spreads, twin = [0.5**0.5, 3.0**0.5], (0.125**0.5 + 0.1875**0.5) / 2
    for metric, size in (("M", 1), ("M_w on the probe images", 2)):
        expected = [*with_t([size * spread for spread in spreads]), "training", size * twin, None, None]
        assert expected == pytest.approx(found[f"sd of {metric} over evaluations", "{}"])
    assert by_name(evaluation_spread_rows(scores[:2])) == {}
