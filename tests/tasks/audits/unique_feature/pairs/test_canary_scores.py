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


def test_scores_agree_with_hand_calculation() -> None:
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


def test_tests_compare_the_images_of_a_canary() -> None:
    (row,) = canary_scores(NoSettings(), [WORKED]).to_pylist()
    d_u = [0.5, 1.0, 1.5]
    d_r = [0.25, 0.5, 0.25]
    assert welch_greater(d_u, d_r).p_value == row["m_welch_p"]
    assert paired_greater(d_u, d_r).p_value == row["m_paired_p"]
    assert pytest.approx([row["twin_m_welch_p"], row["twin_m_paired_p"]]) == [0.5, 0.5]
    assert row["m_w_train_paired_p"] == 1.0


def test_p_values_are_adjusted_over_canaries() -> None:
    inputs = []
    for canary, m in enumerate([0.001, 0.002, 0.01, -0.001]):
        inputs.append(pair(canary, m, -m))
    table = canary_scores(NoSettings(), inputs)
    for name in ("m_welch", "m_paired", "twin_m_paired", "m_w_train_welch"):
        adjusted = false_discovery_control(table[f"{name}_p"].to_numpy())
        assert adjusted.tolist() == table[f"{name}_adjusted_p"].to_pylist()


def test_canaries_are_ordered_by_m() -> None:
    inputs = [pair(canary, m, 0.0) for canary, m in enumerate([0.1, 0.3, 0.2])]
    inputs += [history(canary, {"canary": [0.5, 0.9], "twin": [0.8]}) for canary in range(3)]
    table = canary_scores(NoSettings(), inputs)
    assert table["canary"].to_pylist() == [1, 2, 0]
    assert table.equals(canary_scores(NoSettings(), inputs[::-1]))
    assert table.schema.equals(CANARY_SCORES)


def test_history_of_the_same_pair_is_joined() -> None:
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


def test_available_inputs_are_scored() -> None:
    inputs = [pair(1, 0.1, 0.0), pair(2, 0.2, 0.0), history(3, {"canary": [0.5], "twin": [0.5]})]
    table = canary_scores(NoSettings(), inputs)
    assert table["canary"].to_pylist() == [2, 1]
    assert table["validation_accuracy"].to_pylist() == [None, None]
    assert canary_scores(NoSettings(), []).schema.equals(CANARY_SCORES)
    assert canary_scores(NoSettings(), []).num_rows == 0


def test_lone_label_has_no_training_image_score() -> None:
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
    rows_by_name = {(row["metric"], row["setting"]): row for row in table.to_pylist()}
    assert len(rows_by_name) == table.num_rows
    return rows_by_name


def setting(**varied: object) -> str:
    return json.dumps(varied, sort_keys=True)


M = [0.1, 0.3, -0.1, 0.2]
TWINS = [0.1, 0.1, -0.2, -0.1]


def worked_rows() -> dict[tuple[str, str], dict[str, Any]]:
    return rows([pair(canary, m, control_m) for canary, (m, control_m) in enumerate(zip(M, TWINS, strict=True))])


def test_mean_m_is_compared_with_twins() -> None:
    row = worked_rows()["M", setting(model="canary")]
    half = stats.t.ppf(0.975, 3) * np.std(M, ddof=1) / 2
    assert [row["estimate"], row["low"], row["high"], row["null"]] == pytest.approx(
        [0.125, 0.125 - half, 0.125 + half, -0.025], abs=1e-7
    )
    assert row["n"] == 4
    assert row["unit"] == "training"
    assert worked_rows()["M", setting(model="twin")]["estimate"] == pytest.approx(-0.025, abs=1e-7)


def test_effect_is_a_difference_over_pairs() -> None:
    row = worked_rows()["M effect", "{}"]
    differences = np.subtract(M, TWINS)
    expected = stats.ttest_1samp(differences, 0, alternative="greater").pvalue
    assert [row["estimate"], row["p_value"]] == pytest.approx([0.15, expected], abs=1e-6)
    assert row["null"] == 0.0
    assert row["n"] == 4
    assert row["unit"] == "pair of trainings"
    low, high = stats.t.interval(0.95, 3, differences.mean(), stats.sem(differences))
    assert [low, high] == pytest.approx([row["low"], row["high"]], abs=1e-6)


def test_published_mean_counts_positive_m_only() -> None:
    canary = worked_rows()["M where positive", setting(model="canary")]
    control = worked_rows()["M where positive", setting(model="twin")]
    assert pytest.approx([canary["estimate"], canary["n"], canary["null"]], abs=1e-7) == [0.2, 3, 0.1]
    assert pytest.approx([control["estimate"], control["n"]], abs=1e-7) == [0.1, 2]
    share = worked_rows()["rate of positive M", setting(model="canary")]
    # One pair differs, in favour of the canary.
    assert share["estimate"] == 0.75
    assert share["n"] == 4
    assert share["null"] == 0.5
    assert share["p_value"] == 0.5


def test_published_rate_is_compared_with_the_twins_rate() -> None:
    table = worked_rows()
    for test in ("welch", "paired"):
        canary = table["rate called memorised", setting(model="canary", test=test)]
        control = table["rate called memorised", setting(model="twin", test=test)]
        # The noise over images is small, so the test calls exactly the models with M > 0.
        assert canary["estimate"] == 0.75
        assert canary["n"] == 4
        assert canary["null"] == 0.5
        assert canary["p_value"] == 0.5
        assert control["estimate"] == 0.5
        assert control["n"] == 4
        assert control["null"] == 0.05
        assert control["p_value"] == pytest.approx(stats.binom.sf(1, 4, 0.05))
        assert canary["low"] < 0.75 < canary["high"]


def test_white_box_score_covers_probe_and_training_images() -> None:
    table = worked_rows()
    for images in ("probe", "train"):
        mean = table["M_w", setting(images=images)]
        effect = table["M_w effect", setting(images=images)]
        # The synthetic pairs have M_w = -M.
        assert pytest.approx([mean["estimate"], mean["null"], effect["estimate"]], abs=1e-6) == [-0.125, 0.025, -0.15]
        assert effect["p_value"] > 0.5
        probability = table["P_u", setting(images=images)]
        assert [np.exp(-1)] * 2 == pytest.approx([probability["estimate"], probability["null"]])


def test_accuracy_is_of_models_with_history() -> None:
    inputs = [pair(1, 0.1, 0.0), pair(2, 0.1, 0.0), history(1, {"canary": [0.5, 0.75], "twin": [0.25]})]
    row = rows(inputs)["validation accuracy", setting(model="canary")]
    assert row["estimate"] == 0.75
    assert row["low"] is None
    assert row["high"] is None
    assert row["n"] == 1


def test_one_canary_has_no_intervals() -> None:
    table = rows([pair(1, 0.1, 0.0)])
    row = table["M effect", "{}"]
    assert row["estimate"] == pytest.approx(0.1, abs=1e-7)
    assert row["low"] is None
    assert row["high"] is None
    assert row["n"] == 1
    assert row["p_value"] is None


def test_no_canary_gives_empty_rows() -> None:
    table = rows([])
    assert worked_rows().keys() == table.keys()
    assert {(row["estimate"], row["n"]) for row in table.values()} == {(None, 0)}


def test_table_1_numbers_belong_to_five_largest_scores() -> None:
    scores = [-0.4, -0.1, -0.7, -0.2, -0.6, -0.3, -0.5]
    inputs = [pair(canary, m, m / 10) for canary, m in enumerate(scores)]
    table = rows(inputs, TABLE_1)
    for images in ("probe", "train"):
        ranked_rows = []
        for rank in range(1, 6):
            ranked_rows.append(table["M_w", setting(images=images, rank=rank)])
        assert pytest.approx([row["estimate"] for row in ranked_rows], abs=1e-6) == [0.7, 0.6, 0.5, 0.4, 0.3]
        assert pytest.approx([row["null"] for row in ranked_rows], abs=1e-6) == [0.07, 0.06, 0.05, 0.04, 0.03]
        assert [row["published"] for row in ranked_rows] == [0.11, 0.11, 0.11, 0.10, 0.10]
        assert {(row["n"], row["unit"], row["low"], row["high"]) for row in ranked_rows} == {
            (1, "training", None, None)
        }
        probabilities = []
        for p in ("P_u", "P_r"):
            probabilities.append(table[p, setting(images=images, rank=2)]["published"])
        assert probabilities == [0.52, 0.46]
    assert len(published_numbers(TABLE_1).m_w) == 5


def test_other_runs_have_no_published_numbers() -> None:
    assert {row["published"] for row in worked_rows().values()} == {None}
    assert not any("rank" in row_setting for _, row_setting in worked_rows())


def test_seed_effects_mislead_the_published_test() -> None:
    rng = np.random.default_rng(6)
    inputs = [pair(i, m, m) for i, m in enumerate(rng.normal(0.05, 0.05, 40))]
    row = rows(inputs)["rate called memorised", setting(model="twin", test="paired")]
    assert row["estimate"] > 0.5
    assert row["low"] > row["null"]
    assert row["p_value"] < 1e-6


def test_table_2_numbers_belong_to_three_largest_m() -> None:
    table = rows([pair(canary, m, m / 10) for canary, m in enumerate([0.1, 0.4, -0.2, 0.3])], TABLE_2)
    ranked_rows = [table["M", setting(rank=rank)] for rank in (1, 2, 3)]
    assert pytest.approx([row["estimate"] for row in ranked_rows], abs=1e-6) == [0.4, 0.3, 0.1]
    assert [row["published"] for row in ranked_rows] == [0.0038, 0.0021, 0.0017]
    assert table["M where positive", setting(model="canary")]["published"] == 0.0013


def test_seeds_of_a_canary_are_one_unit() -> None:
    inputs = []
    for canary in (1, 2, 3):
        for seed, m in ((5, 0.1), (6, -0.3)):
            inputs.append(pair(canary, m, 0.0, seed=10 * canary + seed))
    table = rows(inputs)
    row = table["M", setting(model="canary")]
    assert pytest.approx([row["estimate"], row["n"], row["unit"]], abs=1e-6) == [-0.1, 3, "canary"]
    call_rate = table["rate called memorised", setting(model="canary", test="welch")]
    assert call_rate["n"] == 6
    assert call_rate["low"] is None
    assert call_rate["p_value"] is None
    width = table["range of M over seeds", "{}"]
    assert pytest.approx([width["estimate"], width["n"]], abs=1e-6) == [0.4, 3]
    both_signs = table["rate of M on both sides of 0", "{}"]
    assert both_signs["estimate"] == 1.0
    assert both_signs["null"] == 0.0


def test_canaries_of_a_seed_are_one_observation() -> None:
    single_seed = rows([pair(canary, 0.1 * canary, 0.0, seed=5) for canary in (1, 2, 3)])["M effect", "{}"]
    assert single_seed["n"] == 1
    assert single_seed["unit"] == "training seed"
    assert single_seed["low"] is None
    assert single_seed["p_value"] is None
    inputs = []
    for canary in (1, 2, 3):
        for seed in (5, 6, 9):
            inputs.append(pair(canary, 0.1 * canary + 0.01 * seed, 0.0, seed=seed))
    several_seeds = rows(inputs)["M effect", "{}"]
    assert pytest.approx([several_seeds["estimate"], several_seeds["n"], several_seeds["unit"]]) == [
        0.2 + 0.2 / 3,
        3,
        "training seed",
    ]


def test_interval_over_seeds_has_its_coverage() -> None:
    # Each canary is trained with each of six seeds; a seed moves the effects of all its canaries equally.
    rng = np.random.default_rng(4)
    covered = 0
    nulls = 300
    for _ in range(nulls):
        effects = rng.normal(0, 1, (1, 6)) + rng.normal(0, 1, (5, 6))
        score_rows = []
        for (c, s), e in np.ndenumerate(effects):
            score_rows.append({"canary": c, "seed": s, "evaluation": 0, "m": e, "twin_m": 0.0, "m_effect": e})
        of_seeds = units(score_rows)
        row = effect_row("M effect", {}, of_seeds.rows, "m", of_seeds.pair)
        assert row["n"] == 6
        assert row["unit"] == "training seed"
        covered += row["low"] <= 0 <= row["high"]
    assert covered / nulls >= 0.9


def test_evaluations_of_a_pair_are_one_unit() -> None:
    inputs = []
    for canary in (1, 2):
        for e, m in enumerate((0.1, 0.2, 0.3)):
            inputs.append(pair(canary, m, 0.0, evaluation=e))
    table = rows(inputs)
    row = table["M", setting(model="canary")]
    assert pytest.approx([row["estimate"], row["n"], row["unit"]], abs=1e-6) == [0.2, 2, "training"]
    spread = table["sd of M over evaluations", "{}"]
    assert pytest.approx([spread["estimate"], spread["n"], spread["null"]], abs=1e-6) == [0.1, 2, 0.0]


def score(canary: int, seed: int, m: float, control_m: float, evaluation: int = 0) -> dict[str, Any]:
    about = {"canary": canary, "seed": seed, "evaluation": evaluation}
    return about | {"m": m, "twin_m": control_m, "m_w_probe": 2 * m, "twin_m_w_probe": 2 * control_m}


def test_seed_ranges_and_signs_are_summarised() -> None:
    scores = [score(1, 1, -0.5, 0.125), score(2, 1, 0.25, -0.5), score(1, 2, 0.5, 0.25), score(2, 2, 0.0, 0.5)]
    scores += [score(1, 3, 0.25, 0.125), score(3, 1, -0.5, -0.125), score(3, 2, 0.0, -0.25), score(4, 1, 1.0, 1.0)]
    summary_rows = by_name(seed_range_rows(scores))
    for metric, size in (("M", 1), ("M_w on the probe images", 2)):
        ranges = [size * width for width in [1.0, 0.25, 0.5, 0.0]]
        control_ranges = [size * width for width in [0.125, 1.0, 0.125, 0.0]]
        expected = [*with_t(ranges), "canary", sum(control_ranges) / 4, None, None]
        assert expected == pytest.approx(summary_rows[f"range of {metric} over seeds", "{}"])
        expected = [*with_wilson(1, 4), "canary", 0.25, None, None]
        assert expected == pytest.approx(summary_rows[f"rate of {metric} on both sides of 0", "{}"])


def test_evaluations_give_no_range_over_seeds() -> None:
    scores = [score(1, 1, 0.1, 0.2), score(1, 1, 0.3, 0.2, evaluation=1), score(2, 1, 0.5, 0.5)]
    assert by_name(seed_range_rows(scores)) == {}


def test_evaluations_are_averaged_before_ranges() -> None:
    scores = [score(1, 1, 0.0, 0.0), score(1, 1, 1.0, 0.0, evaluation=1), score(1, 2, 1.5, 0.25)]
    summary_rows = by_name(seed_range_rows(scores))
    assert summary_rows["range of M over seeds", "{}"] == [1.0, None, None, 1, "canary", 0.25, None, None]


def test_spread_over_evaluations_is_per_model() -> None:
    scores = [score(1, 1, 0.0, 0.5), score(2, 1, 8.0, 8.0), score(1, 1, 1.0, 1.0, evaluation=1)]
    scores += [score(1, 2, 0.0, 0.25), score(1, 2, 3.0, 0.25, evaluation=1), score(1, 2, 0.0, 1.0, evaluation=2)]
    summary_rows = by_name(evaluation_spread_rows(scores))
    spreads = [0.5**0.5, 3.0**0.5]
    control_spread = (0.125**0.5 + 0.1875**0.5) / 2
    for metric, size in (("M", 1), ("M_w on the probe images", 2)):
        expected = [*with_t([size * spread for spread in spreads]), "training", size * control_spread, None, None]
        assert expected == pytest.approx(summary_rows[f"sd of {metric} over evaluations", "{}"])
    assert by_name(evaluation_spread_rows(scores[:2])) == {}
