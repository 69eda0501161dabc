"""Detection by share of D_Q trained on, from the confidences of all models to the rows of the summary."""

from __future__ import annotations

from tasks.audits.forgetting.measures.power import POWER, Power, power, smallest_detected_share
from tasks.audits.forgetting.model_effects import Decisions
from tasks.numerics.statistics import mean, proportion
from tests.tasks.audits.forgetting.small_run import ABOUT, CONTROLLED_INPUTS, INPUTS, TARGETS
from tests.tasks.audits.forgetting.summarised import numbers, rows, setting


def test_smallest_share_has_mostly_detected_shares_above() -> None:
    assert smallest_detected_share({1.0: 1.0, 0.0: 0.0, 0.1: 0.8, 0.5: 0.9, 0.01: 0.7}) == 0.1
    assert smallest_detected_share({0.1: 1.0, 0.2: 0.4, 0.5: 1.0}) == 0.5
    assert smallest_detected_share({0.1: 1.0, 0.5: 0.0}) is None
    assert smallest_detected_share({0.0: 1.0, 0.1: 1.0}) == 0.1  # a false alarm is not a share
    assert smallest_detected_share({}) is None


def test_known_share_models_are_audited_individually() -> None:
    table = power(Power(ABOUT), CONTROLLED_INPUTS)
    assert table.schema == POWER
    null_row, tenth, quarter, half = table.to_pylist()
    assert table["share"].to_pylist() == [0.0, 0.1, 0.25, 0.5]
    assert table["models"].to_pylist() == [4] * 4
    assert null_row["detected"] == 0
    assert half["detected"] == 4
    assert null_row["effect"] < tenth["effect"] < quarter["effect"] < half["effect"]
    assert 0 == quarter["cleared"] == half["cleared"]
    assert null_row["cleared"] > 0
    for row in (null_row, half):
        expected = proportion(row["detected"], 4)
        assert expected.value == row["power"]
        assert expected.low == row["power_low"]
        assert expected.high == row["power_high"]
    assert mean([null_row["effect"]]).value == null_row["effect"]


def test_false_alarms_need_controls_and_two_calibration_models() -> None:
    assert power(Power(Decisions(TARGETS)), INPUTS).num_rows == 0
    single = []
    for one in CONTROLLED_INPUTS:
        if one["model"][0].as_py() != "calibration" or not one["replicate"][0].as_py():
            single.append(one)
    result = power(Power(ABOUT), single)
    assert result["share"].to_pylist() == [0.1, 0.25, 0.5]
    # no limit is known
    assert set(result["cleared"].to_pylist()) == {0}


def test_summary_has_power_by_share() -> None:
    table = power(Power(ABOUT), CONTROLLED_INPUTS)
    result = rows(table)
    row = result["power", setting(share=0.5)]
    expected = proportion(4, 4)
    assert numbers(row)[:4] == (expected.value, expected.low, expected.high, 4)
    powers = dict(zip(table["share"].to_pylist(), table["power"].to_pylist(), strict=True))
    smallest = result["smallest share found", "{}"]
    assert smallest["estimate"] == smallest_detected_share(powers)
    assert smallest["n"] == 4
