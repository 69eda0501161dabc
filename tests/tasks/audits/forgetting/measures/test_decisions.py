"""What is decided of each target, from the confidences of all models to the rows of the summary."""

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
from tests.tasks.audits.forgetting.small_run import ABOUT, CONTROLLED, CONTROLS, HOLDING, INPUTS, KNOWN, TARGETS
from tests.tasks.audits.forgetting.summarised import rows, setting

IS_CONTROL = np.arange(2 * CONTROLS) >= CONTROLS


@pytest.fixture(scope="module")
def small() -> pa.Table:
    """What is decided in the small run."""
    return decisions(ABOUT, CONTROLLED)


def judged(config: Decisions = ABOUT, inputs: Any = CONTROLLED) -> list[dict[str, Any]]:
    result = decisions(config, inputs)
    assert result.schema == DECISIONS
    return result.to_pylist()


def test_each_target_is_decided_by_what_it_says_of_d_q_beside_the_control_set(small: pa.Table) -> None:
    clean, holding, table_row = small.to_pylist()
    assert [row["name"] for row in (clean, holding, table_row)] == ["D_C", "D_C + 0.5 D_Q", "theirs"]
    assert (clean["decision"], clean["right"]) == ("forgotten", "right")
    assert (holding["decision"], holding["right"]) == ("not forgotten", "right")
    assert (table_row["models"], table_row["right"]) == (1, None)
    assert (clean["images"], clean["controls"], clean["units"]) == (CONTROLS, CONTROLS, 2 * CONTROLS)
    assert holding["p"] <= 1 / 200 + 1e-12
    assert holding["p_adjusted"] == pytest.approx(3 * holding["p"])
    assert (holding["share"], holding["share_high"]) == (0.25, 1.0)  # the largest share known without its own
    assert 0 == clean["share_low"] <= clean["share"] <= clean["share_high"] <= 0.1
    expected = np.mean([effect(scores(values, KNOWN), IS_CONTROL) for values in HOLDING[0]])
    assert expected == pytest.approx(clean["effect"])
    assert clean["effect"] - clean["effect_low"] == pytest.approx(clean["effect_high"] - clean["effect"])
    assert clean["effect_low"] < clean["effect"]


def test_likeness_is_asked_of_the_control_set_alone(small: pa.Table) -> None:
    clean, holding, _ = small.to_pylist()
    is_control = KNOWN[:, IS_CONTROL]
    assert clean["accuracy"] == pytest.approx((HOLDING[0][:, IS_CONTROL] > 0.5).mean())
    assert clean["accuracy_calibration"] == pytest.approx((is_control > 0.5).mean())
    assert clean["agreement_calibration"] == pytest.approx(np.mean(calibration_agreements(is_control)))
    assert min(clean["accuracy_p"], holding["accuracy_p"], clean["agreement_p"]) > 0.01


def test_without_a_control_set_nothing_is_judged() -> None:
    for row in judged(Decisions(TARGETS), INPUTS):
        assert (row["decision"], row["p"], row["share"], row["effect"]) == ("not assessable", None, None, None)
        assert "without a control set" in row["reason"]


def test_repeats_that_disagree_forbid_a_judgement() -> None:
    confidence = HOLDING[2][0]
    repeat = np.full(len(confidence), np.nan)
    repeat[:40] = np.where(np.arange(40) < 3, 1 - confidence[:40], confidence[:40])
    given = table("target", 2, 0, confidence, control=CONTROLS, repeat=repeat)
    other_rows = [one for one in CONTROLLED if one["target"][0].as_py() != 2]
    row = judged(inputs=[*other_rows, given])[2]
    assert (row["decision"], row["repeats"], row["disagreeing"]) == ("not assessable", 40, 3)


def test_a_rounded_target_is_held_against_models_that_are_rounded_as_it_is() -> None:
    """The clean target sends two decimals: it is as alike as before, and its share is read off rounded models."""
    clean, partial = (
        [one for one in CONTROLLED if one["model"][0].as_py() == kind] for kind in ("calibration", "partial")
    )
    given = table("target", 0, 0, np.round(HOLDING[0][0], 2), resolution=0.01, control=CONTROLS)
    calibration, more = KNOWN[:, IS_CONTROL], table("target", 0, 1, HOLDING[0][1], control=CONTROLS)
    rounded = [given, *partial], [given, more]  # of two the coarser one decides
    row, unrounded = (judged(inputs=[*clean, *item])[0] for item in rounded)
    for item in (row, unrounded):
        assert item["agreement_calibration"] == pytest.approx(
            np.mean(calibration_agreements(calibration, np.round(calibration, 2)))
        )
    assert row["agreement_calibration"] != pytest.approx(np.mean(calibration_agreements(calibration)), rel=1e-9)
    assert row["decision"] == "forgotten"


def test_a_single_calibration_model_leaves_the_share_unknown_but_not_the_accusation() -> None:
    single = [one for one in CONTROLLED if one["model"][0].as_py() != "calibration" or not one["replicate"][0].as_py()]
    clean, holding, _ = judged(inputs=single)
    assert (clean["decision"], clean["share"]) == ("undecided", None)
    assert holding["decision"] == "not forgotten"


def test_the_order_of_the_inputs_makes_no_difference_and_missing_targets_have_no_row(small: pa.Table) -> None:
    assert small.equals(decisions(ABOUT, CONTROLLED[::-1]))
    assert judged(inputs=[]) == []
    uncalibrated = [one for one in CONTROLLED if one["model"][0].as_py() != "calibration"]
    assert {"not assessable"} == {row["decision"] for row in judged(inputs=uncalibrated)}


def test_the_summary_has_the_share_the_test_and_the_likeness_of_each_target(small: pa.Table) -> None:
    result = rows(small, config=About((*ABOUT.targets, NamedTarget("lost", "outputs"))))
    assert next(iter(result))[0] == "share of D_Q held"
    clean = small.to_pylist()[0]
    index = setting(target="D_C")
    share, surer = result["share of D_Q held", index], result[SURER, index]
    assert (clean["share"], clean["share_low"], clean["share_high"], 4, 0.0) == tuple(
        share[name] for name in ("estimate", "low", "high", "n", "null")
    )
    assert (clean["effect"], clean["p_adjusted"], 0.0) == (surer["estimate"], surer["p_value"], surer["null"])
    accuracy = result["accuracy on the control set", index]
    assert (clean["accuracy"], clean["accuracy_calibration"], clean["accuracy_p"]) == tuple(
        accuracy[name] for name in ("estimate", "null", "p_value")
    )
    lost_name = result["share of D_Q held", setting(target="lost")]
    assert tuple(lost_name[name] for name in ("estimate", "n", "null")) == (None, 0, 0.0)
    assert result["targets decided rightly", "{}"]["estimate"] == 1.0


def test_a_target_has_a_row_for_each_side_of_the_test_and_each_check_of_likeness() -> None:
    target = {"target": "theirs", "name": "theirs", "models": 2, "repeats": 40, "disagreeing": 4}
    target |= {"effect": 0.5, "effect_low": 0.25, "effect_high": 1.0, "p_adjusted": 0.01, "p_other": 0.9}
    target |= {"accuracy": 0.8, "accuracy_calibration": 0.9, "accuracy_p": 0.02}
    target |= {"agreement": None, "agreement_calibration": 0.7, "agreement_p": None}
    index = {"target": "theirs"}
    assert [
        summary_row(SURER, index, Estimate(0.5, 0.25, 1.0, 2), "training", 0.0, 0.01),
        summary_row(LESS, index, Estimate(-0.5, -1.0, -0.25, 2), "training", 0.0, 0.9),
    ] == [*side_rows(target)]
    alone = [*side_rows(target | {"effect_low": None, "effect_high": None})]
    ends = ("estimate", "low", "high")
    assert [tuple(item[end] for end in ends) for item in alone] == [(0.5, None, None), (-0.5, None, None)]
    assert [*side_rows(target | {"effect": None})] == []
    accuracy, agreement = (f"{check} on the control set" for check in ("accuracy", "agreement"))
    assert [
        summary_row(accuracy, index, Estimate(0.8, None, None, 2), "training", 0.9, 0.02),
        summary_row(agreement, index, Estimate(None, None, None, 0), "training", 0.7, None),
        summary_row(REPEATED, index, proportion(4, 40), "picture", 0.0),
    ] == [*likeness_rows(target)]
    assert [accuracy, agreement] == [item["metric"] for item in likeness_rows(target | {"repeats": 0})]
    assert [*likeness_rows(target | {"effect": None})] == []
    assert (MEASURE.name, MEASURE.schema) == ("decisions", DECISIONS)


def test_what_cannot_be_decided_with_is_refused() -> None:
    with pytest.raises(ValueError, match="negligible is 1; it must be between 0 and 1"):
        Decisions(TARGETS, negligible=1)
    with pytest.raises(ValueError, match="permutations is 0; it must be at least 1"):
        Decisions(TARGETS, permutations=0)
