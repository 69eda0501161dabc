import math

import numpy as np
import pytest

from tasks.audits.unique_feature.measures.canary_scores import CANARY_SCORES, CanaryScores, canary_scores
from tasks.statistics import false_discovery_adjusted, paired_greater, welch_greater
from tests.tasks.audits.unique_feature.made_up import Columns, divergences, history, pair


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
    (row,) = canary_scores(CanaryScores(), [WORKED]).to_pylist()
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
    (row,) = canary_scores(CanaryScores(), [WORKED]).to_pylist()
    d_u, d_r = [0.5, 1.0, 1.5], [0.25, 0.5, 0.25]
    assert [welch_greater(d_u, d_r).p_value, paired_greater(d_u, d_r).p_value] == [row["m_welch_p"], row["m_paired_p"]]
    assert [0.5, 0.5] == pytest.approx([row["twin_m_welch_p"], row["twin_m_paired_p"]])
    assert row["m_w_train_paired_p"] == 1.0


def test_p_values_are_adjusted_over_the_canaries() -> None:
    inputs = [pair(canary, m, -m) for canary, m in enumerate([0.001, 0.002, 0.01, -0.001])]
    table = canary_scores(CanaryScores(), inputs)
    for name in ("m_welch", "m_paired", "twin_m_paired", "m_w_train_welch"):
        adjusted = false_discovery_adjusted(table[f"{name}_p"].to_numpy())
        assert adjusted.tolist() == table[f"{name}_adjusted_p"].to_pylist()


def test_the_largest_m_comes_first_whatever_the_order_of_the_inputs() -> None:
    inputs = [pair(canary, m, 0.0) for canary, m in enumerate([0.1, 0.3, 0.2])]
    inputs += [history(canary, {"canary": [0.5, 0.9], "twin": [0.8]}) for canary in range(3)]
    table = canary_scores(CanaryScores(), inputs)
    assert [1, 2, 0] == table["canary"].to_pylist()
    assert table.equals(canary_scores(CanaryScores(), inputs[::-1]))
    assert table.schema.equals(CANARY_SCORES)


def test_training_is_told_of_by_the_history_of_the_same_pair() -> None:
    inputs = [
        pair(1, 0.1, 0.0),
        pair(2, 0.2, 0.0),
        history(2, {"canary": [0.5, 0.9, 0.7], "twin": [0.8]}),
        history(1, {"canary": [0.4], "twin": [0.3, 0.6]}),
    ]
    table = canary_scores(CanaryScores(), inputs)
    assert [2, 1] == table["canary"].to_pylist()
    assert [0.9, 0.4] == table["validation_accuracy"].to_pylist()
    assert [0.8, 0.6] == table["twin_validation_accuracy"].to_pylist()
    assert [3, 1] == table["epochs"].to_pylist()
    assert [2, 1] == table["best_epoch"].to_pylist()
    assert [1, 2] == table["twin_best_epoch"].to_pylist()


def test_canaries_are_scored_from_the_inputs_that_are_there() -> None:
    inputs = [pair(1, 0.1, 0.0), pair(2, 0.2, 0.0), history(3, {"canary": [0.5], "twin": [0.5]})]
    table = canary_scores(CanaryScores(), inputs)
    assert [2, 1] == table["canary"].to_pylist()
    assert [None, None] == table["validation_accuracy"].to_pylist()
    assert canary_scores(CanaryScores(), []).schema.equals(CANARY_SCORES)
    assert canary_scores(CanaryScores(), []).num_rows == 0


def test_a_canary_alone_with_its_label_has_no_score_on_training_images() -> None:
    probe = columns([0.5, 1.0], [0.25, 0.5], [0.4, 0.6], [0.2, 0.3])
    table = canary_scores(CanaryScores(), [divergences(1, {("canary", "probe"): probe, ("twin", "probe"): probe})])
    (row,) = table.to_pylist()
    assert row["m_effect"] == 0
    assert row["images_train"] == 0
    for name in ("m_w_train", "twin_m_w_train", "m_w_train_effect", "p_u_train", "m_w_train_welch_p"):
        assert row[name] is None
    assert row["m_w_train_paired_adjusted_p"] is None
