"""The decision about each target, from the confidences of all models to the rows of the summary."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.forgetting.config import About
from tasks.audits.forgetting.exchangeability import effect, scores
from tasks.audits.forgetting.held_share import calibration_agreements
from tasks.audits.forgetting.measures.decisions import (
    DECISIONS,
    LESS,
    MEASURE,
    REPEATED,
    SURER,
    decisions,
    likeness_rows,
    side_rows,
)
from tasks.audits.forgetting.model_effects import Decisions
from tasks.audits.forgetting.target import NamedTarget
from tasks.contract.summaries import Estimate
from tasks.contract.summaries import row as summary_row
from tasks.numerics.statistics import proportion
from tests.tasks.audits.forgetting.made_up import table
from tests.tasks.audits.forgetting.small_run import (
    ABOUT,
    CONTROLLED_INPUTS,
    CONTROLS,
    INPUTS,
    REFERENCES,
    TARGET_MODELS,
    TARGETS,
)
from tests.tasks.audits.forgetting.summarised import rows, setting

IS_CONTROL = np.arange(2 * CONTROLS) >= CONTROLS


@pytest.fixture(scope="module")
def small() -> pa.Table:
    """The decisions of the small run."""
    return decisions(ABOUT, CONTROLLED_INPUTS)


def decided_rows(config: Decisions = ABOUT, inputs: Any = CONTROLLED_INPUTS) -> list[dict[str, Any]]:
    result = decisions(config, inputs)
    assert result.schema == DECISIONS
    return result.to_pylist()


def test_targets_are_decided_against_the_control_set(small: pa.Table) -> None:
    clean, holding, table_row = small.to_pylist()
    assert clean["name"] == "D_C"
    assert holding["name"] == "D_C + 0.5 D_Q"
    assert table_row["name"] == "theirs"
    assert clean["decision"] == "forgotten"
    assert clean["right"] == "right"
    assert holding["decision"] == "not forgotten"
    assert holding["right"] == "right"
    assert table_row["models"] == 1
    assert table_row["right"] is None
    assert clean["images"] == CONTROLS
    assert clean["controls"] == CONTROLS
    assert clean["units"] == 2 * CONTROLS
    assert holding["p"] <= 1 / 200 + 1e-12
    assert holding["p_adjusted"] == pytest.approx(3 * holding["p"])
    # the largest known share, apart from its own
    assert holding["share"] == 0.25
    assert holding["share_high"] == 1.0
    assert 0 == clean["share_low"] <= clean["share"] <= clean["share_high"] <= 0.1
    expected = np.mean([effect(scores(values, REFERENCES), IS_CONTROL) for values in TARGET_MODELS[0]])
    assert expected == pytest.approx(clean["effect"])
    assert clean["effect"] - clean["effect_low"] == pytest.approx(clean["effect_high"] - clean["effect"])
    assert clean["effect_low"] < clean["effect"]


def test_similarity_is_computed_on_the_control_set(small: pa.Table) -> None:
    clean, holding, _ = small.to_pylist()
    is_control = REFERENCES[:, IS_CONTROL]
    assert clean["accuracy"] == pytest.approx((TARGET_MODELS[0][:, IS_CONTROL] > 0.5).mean())
    assert clean["accuracy_calibration"] == pytest.approx((is_control > 0.5).mean())
    assert clean["agreement_calibration"] == pytest.approx(np.mean(calibration_agreements(is_control)))
    assert min(clean["accuracy_p"], holding["accuracy_p"], clean["agreement_p"]) > 0.01


def test_nothing_is_judged_without_a_control_set() -> None:
    for row in decided_rows(Decisions(TARGETS), INPUTS):
        assert row["decision"] == "not assessable"
        assert row["p"] is None
        assert row["share"] is None
        assert row["effect"] is None
        assert "without a control set" in row["reason"]


def test_differing_repeats_rule_out_a_judgement() -> None:
    confidence = TARGET_MODELS[2][0]
    repeat = np.full(len(confidence), np.nan)
    repeat[:40] = np.where(np.arange(40) < 3, 1 - confidence[:40], confidence[:40])
    repeated_table = table("target", 2, 0, confidence, control=CONTROLS, repeat=repeat)
    other_rows = [one for one in CONTROLLED_INPUTS if one["target"][0].as_py() != 2]
    row = decided_rows(inputs=[*other_rows, repeated_table])[2]
    assert row["decision"] == "not assessable"
    assert row["repeats"] == 40
    assert row["disagreeing"] == 3


def test_rounded_target_is_compared_with_rounded_models() -> None:
    """The clean target has two decimals: it is as similar as before, and its share is read from rounded models."""
    clean = []
    for one in CONTROLLED_INPUTS:
        if one["model"][0].as_py() == "calibration":
            clean.append(one)
    partial = []
    for one in CONTROLLED_INPUTS:
        if one["model"][0].as_py() == "partial":
            partial.append(one)
    rounded_table = table("target", 0, 0, np.round(TARGET_MODELS[0][0], 2), resolution=0.01, control=CONTROLS)
    calibration = REFERENCES[:, IS_CONTROL]
    second_table = table("target", 0, 1, TARGET_MODELS[0][1], control=CONTROLS)
    rounded = [rounded_table, *partial], [rounded_table, second_table]  # the coarser one of two decides
    row, unrounded = (decided_rows(inputs=[*clean, *item])[0] for item in rounded)
    for item in (row, unrounded):
        assert item["agreement_calibration"] == pytest.approx(
            np.mean(calibration_agreements(calibration, np.round(calibration, 2)))
        )
    assert row["agreement_calibration"] != pytest.approx(np.mean(calibration_agreements(calibration)), rel=1e-9)
    assert row["decision"] == "forgotten"


def test_single_calibration_model_can_accuse_but_not_clear() -> None:
    single = []
    for one in CONTROLLED_INPUTS:
        if one["model"][0].as_py() != "calibration" or not one["replicate"][0].as_py():
            single.append(one)
    clean, holding, _ = decided_rows(inputs=single)
    assert clean["decision"] == "undecided"
    assert clean["share"] is None
    assert holding["decision"] == "not forgotten"


def test_input_order_makes_no_difference(small: pa.Table) -> None:
    assert small.equals(decisions(ABOUT, CONTROLLED_INPUTS[::-1]))
    assert decided_rows(inputs=[]) == []
    uncalibrated = []
    for one in CONTROLLED_INPUTS:
        if one["model"][0].as_py() != "calibration":
            uncalibrated.append(one)
    assert {row["decision"] for row in decided_rows(inputs=uncalibrated)} == {"not assessable"}


def test_summary_has_share_test_and_similarity(small: pa.Table) -> None:
    result = rows(small, config=About((*ABOUT.targets, NamedTarget("lost", "outputs"))))
    assert next(iter(result))[0] == "share of D_Q held"
    clean = small.to_pylist()[0]
    index = setting(target="D_C")
    share = result["share of D_Q held", index]
    certainty = result[SURER, index]
    assert tuple(share[name] for name in ("estimate", "low", "high", "n", "null")) == (
        clean["share"],
        clean["share_low"],
        clean["share_high"],
        4,
        0.0,
    )
    assert certainty["estimate"] == clean["effect"]
    assert certainty["p_value"] == clean["p_adjusted"]
    assert certainty["null"] == 0.0
    accuracy = result["accuracy on the control set", index]
    assert (clean["accuracy"], clean["accuracy_calibration"], clean["accuracy_p"]) == tuple(
        accuracy[name] for name in ("estimate", "null", "p_value")
    )
    lost_row = result["share of D_Q held", setting(target="lost")]
    assert tuple(lost_row[name] for name in ("estimate", "n", "null")) == (None, 0, 0.0)
    assert result["targets decided rightly", "{}"]["estimate"] == 1.0


def test_target_has_rows_for_both_sides() -> None:
    target = {"target": "theirs", "name": "theirs", "models": 2, "repeats": 40, "disagreeing": 4}
    target |= {"effect": 0.5, "effect_low": 0.25, "effect_high": 1.0, "p_adjusted": 0.01, "p_other": 0.9}
    target |= {"accuracy": 0.8, "accuracy_calibration": 0.9, "accuracy_p": 0.02}
    target |= {"agreement": None, "agreement_calibration": 0.7, "agreement_p": None}
    index = {"target": "theirs"}
    assert [
        summary_row(SURER, index, Estimate(0.5, 0.25, 1.0, 2), "training", 0.0, 0.01),
        summary_row(LESS, index, Estimate(-0.5, -1.0, -0.25, 2), "training", 0.0, 0.9),
    ] == [*side_rows(target)]
    rows_without_interval = [*side_rows(target | {"effect_low": None, "effect_high": None})]
    ends = ("estimate", "low", "high")
    assert [tuple(item[end] for end in ends) for item in rows_without_interval] == [
        (0.5, None, None),
        (-0.5, None, None),
    ]
    assert [*side_rows(target | {"effect": None})] == []
    accuracy, agreement = (f"{check} on the control set" for check in ("accuracy", "agreement"))
    assert [
        summary_row(accuracy, index, Estimate(0.8, None, None, 2), "training", 0.9, 0.02),
        summary_row(agreement, index, Estimate(None, None, None, 0), "training", 0.7, None),
        summary_row(REPEATED, index, proportion(4, 40), "picture", 0.0),
    ] == [*likeness_rows(target)]
    assert [accuracy, agreement] == [item["metric"] for item in likeness_rows(target | {"repeats": 0})]
    assert [*likeness_rows(target | {"effect": None})] == []
    assert MEASURE.name == "decisions"
    assert MEASURE.schema == DECISIONS


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="negligible is 1; it must be between 0 and 1"):
        Decisions(TARGETS, negligible=1)
    with pytest.raises(ValueError, match="permutations is 0; it must be at least 1"):
        Decisions(TARGETS, permutations=0)
