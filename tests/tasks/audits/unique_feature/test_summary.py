import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from tasks.audits.unique_feature.canary_selection import CHOSEN
from tasks.audits.unique_feature.measures.canary_scores import CanaryScores, canary_scores
from tasks.audits.unique_feature.measures.regularised import Regularised, regularised
from tasks.audits.unique_feature.published import Repeated, numbers
from tasks.audits.unique_feature.summary import summary
from tasks.schemas import SUMMARY
from tests.tasks.audits.unique_feature.made_up import history, pair

TABLE_1 = "table 1, mnist, mlp1, no regulariser"
TABLE_2 = "table 2, mnist, mlp1, no regulariser"


def rows(inputs: list[pa.Table], published: str = "") -> dict[tuple[str, str], dict[str, Any]]:
    """The summary's rows by metric and setting."""
    table = summary(Repeated(published), [canary_scores(CanaryScores(), inputs)])
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
    assert (4, "training") == (row["n"], row["unit"])
    assert worked()["M", setting(model="twin")]["estimate"] == pytest.approx(-0.025, abs=1e-7)


def test_the_effect_is_a_difference_over_pairs_of_trainings() -> None:
    row = worked()["M effect", "{}"]
    differences = np.subtract(M, TWINS)
    expected = stats.ttest_1samp(differences, 0, alternative="greater").pvalue
    assert [0.15, expected] == pytest.approx([row["estimate"], row["p_value"]], abs=1e-6)
    assert [0.0, 4, "pair of trainings"] == [row["null"], row["n"], row["unit"]]
    low, high = stats.t.interval(0.95, 3, differences.mean(), stats.sem(differences))
    assert [low, high] == pytest.approx([row["low"], row["high"]], abs=1e-6)


def test_the_published_mean_counts_only_canaries_above_zero_and_so_does_its_null() -> None:
    canary = worked()["M where positive", setting(model="canary")]
    twin = worked()["M where positive", setting(model="twin")]
    assert [0.2, 3, 0.1] == pytest.approx([canary["estimate"], canary["n"], canary["null"]], abs=1e-7)
    assert [0.1, 2] == pytest.approx([twin["estimate"], twin["n"]], abs=1e-7)
    share = worked()["rate of positive M", setting(model="canary")]
    # One pair differs, and in the canary's favour.
    assert [0.75, 4, 0.5, 0.5] == [share["estimate"], share["n"], share["null"], share["p_value"]]


def test_the_published_tests_rate_has_the_twins_rate_for_its_null() -> None:
    table = worked()
    for test in ("welch", "paired"):
        canary = table["rate called memorised", setting(model="canary", test=test)]
        twin = table["rate called memorised", setting(model="twin", test=test)]
        # Noise over images is small, so the test calls exactly those with M > 0.
        assert [0.75, 4, 0.5, 0.5] == [canary["estimate"], canary["n"], canary["null"], canary["p_value"]]
        assert [0.5, 4, 0.05] == [twin["estimate"], twin["n"], twin["null"]]
        assert twin["p_value"] == pytest.approx(stats.binom.sf(1, 4, 0.05))
        assert canary["low"] < 0.75 < canary["high"]


def test_the_white_box_score_is_given_for_probe_and_training_images() -> None:
    table = worked()
    for images in ("probe", "train"):
        mean, effect = table["M_w", setting(images=images)], table["M_w effect", setting(images=images)]
        # The made-up pairs have M_w = -M.
        assert [-0.125, 0.025, -0.15] == pytest.approx([mean["estimate"], mean["null"], effect["estimate"]], abs=1e-6)
        assert effect["p_value"] > 0.5
        probability = table["P_u", setting(images=images)]
        assert [np.exp(-1)] * 2 == pytest.approx([probability["estimate"], probability["null"]])


def test_the_validation_accuracy_is_that_of_the_models_whose_history_is_there() -> None:
    inputs = [pair(1, 0.1, 0.0), pair(2, 0.1, 0.0), history(1, {"canary": [0.5, 0.75], "twin": [0.25]})]
    row = rows(inputs)["validation accuracy", setting(model="canary")]
    assert [0.75, None, None, 1] == [row["estimate"], row["low"], row["high"], row["n"]]


def test_one_canary_has_estimates_and_no_intervals() -> None:
    table = rows([pair(1, 0.1, 0.0)])
    row = table["M effect", "{}"]
    assert row["estimate"] == pytest.approx(0.1, abs=1e-7)
    assert [None, None, 1, None] == [row["low"], row["high"], row["n"], row["p_value"]]


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
        assert [0.7, 0.6, 0.5, 0.4, 0.3] == pytest.approx([row["estimate"] for row in listed], abs=1e-6)
        assert [0.07, 0.06, 0.05, 0.04, 0.03] == pytest.approx([row["null"] for row in listed], abs=1e-6)
        assert [0.11, 0.11, 0.11, 0.10, 0.10] == [row["published"] for row in listed]
        assert {(1, "training", None, None)} == {(row["n"], row["unit"], row["low"], row["high"]) for row in listed}
        probabilities = [table[p, setting(images=images, rank=2)]["published"] for p in ("P_u", "P_r")]
        assert [0.52, 0.46] == probabilities
    assert len(numbers(TABLE_1).m_w) == 5


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
    assert [0.4, 0.3, 0.1] == pytest.approx([row["estimate"] for row in listed], abs=1e-6)
    assert [0.0038, 0.0021, 0.0017] == [row["published"] for row in listed]
    assert 0.0013 == table["M where positive", setting(model="canary")]["published"]


def test_several_seeds_of_one_canary_are_one_unit() -> None:
    inputs = [pair(canary, m, 0.0, seed=seed) for canary in (1, 2, 3) for seed, m in ((5, 0.1), (6, -0.3))]
    table = rows(inputs)
    row = table["M", setting(model="canary")]
    assert [-0.1, 3, "canary"] == pytest.approx([row["estimate"], row["n"], row["unit"]], abs=1e-6)
    assert 6 == table["rate called memorised", setting(model="canary", test="welch")]["n"]
    width = table["range of M over seeds", "{}"]
    assert [0.4, 3] == pytest.approx([width["estimate"], width["n"]], abs=1e-6)
    both = table["rate of M on both sides of 0", "{}"]
    assert [1.0, 0.0] == [both["estimate"], both["null"]]


def test_several_evaluations_of_one_pair_are_one_unit_with_a_spread() -> None:
    inputs = [pair(canary, m, 0.0, evaluation=e) for canary in (1, 2) for e, m in enumerate((0.1, 0.2, 0.3))]
    table = rows(inputs)
    row = table["M", setting(model="canary")]
    assert [0.2, 2, "training"] == pytest.approx([row["estimate"], row["n"], row["unit"]], abs=1e-6)
    spread = table["sd of M over evaluations", "{}"]
    assert [0.1, 2, 0.0] == pytest.approx([spread["estimate"], spread["n"], spread["null"]], abs=1e-6)


def test_a_regularised_network_is_compared_with_the_plain_one() -> None:
    scores = [
        canary_scores(CanaryScores(), [pair(i, m, 0.0) for i, m in enumerate(values)])
        for values in ((0.3, 0.5, -1), (0.1, 0.2))
    ]
    table = summary(Repeated(), [scores[0], regularised(Regularised(), scores)]).to_pylist()
    (row,) = (row for row in table if row["metric"] == "M where positive, less plain")
    expected = stats.ttest_ind([0.3, 0.5], [0.1, 0.2], equal_var=False)
    assert [0.25, 4, expected.pvalue] == pytest.approx([row["estimate"], row["n"], row["p_value"]], abs=1e-5)


def test_self_influence_is_correlated_with_m_over_the_chosen_canaries() -> None:
    m = [0.1, 0.2, 0.4, 0.3, 0.6]
    influence = [1.0, 2.0, 3.0, 4.0, 5.0]
    scores = canary_scores(CanaryScores(), [pair(i, each, 0.01 * i) for i, each in enumerate(m)])
    chosen = [
        {
            "end": "highest" if i > 2 else "lowest",
            "rank": 1,
            "row": i,
            "label": 0,
            "self_influence": each,
            "squared_slopes": 0.0,
        }
        for i, each in enumerate(influence)
    ]
    table = {
        (row["metric"], row["setting"]): row
        for row in summary(Repeated(TABLE_2), [scores, pa.Table.from_pylist(chosen, CHOSEN)]).to_pylist()
    }
    row = table["correlation of self-influence and M", "{}"]
    expected = stats.pearsonr(influence, m)
    interval = expected.confidence_interval(0.95)
    assert [expected.statistic, interval.low, interval.high, 0.43] == pytest.approx(
        [row["estimate"], row["low"], row["high"], row["published"]], abs=1e-6
    )
    assert 2 == table["M_w effect", json.dumps({"images": "probe", "self-influence": "highest"})]["n"]
