"""The table of baselines: the compared models, their precision, and the reasons for missing values."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.forgetting.exchangeability import log_odds
from tasks.audits.forgetting.measures.baselines import BASELINES, Baselines, baselines, rows
from tasks.audits.forgetting.target import NamedTarget
from tasks.audits.forgetting.unlearning_scores import u_lira_accuracy
from tasks.contract.measure import Tables
from tests.support.golden import Golden
from tests.tasks.audits.forgetting.made_up import models, table

N = 120
CONTROL = 40
QUERY, CALIBRATION, NULL = models(np.random.default_rng(0), 4, 4, N)
HELD = NULL.copy()
HELD[:, : N - CONTROL] = QUERY[:, : N - CONTROL]
TARGETS = (
    NamedTarget("D_C", "training", 0.0, 1.0, 0.0),
    NamedTarget("D_C + D_Q", "training", 1.0, 1.0, 0.0),
    NamedTarget("theirs.csv", "outputs"),
    NamedTarget("lost", "training", 0.5, 1.0, 0.0),
)
INPUTS = [
    *(table("calibration", None, r, values, control=CONTROL) for r, values in enumerate(CALIBRATION)),
    *(table("target", 0, r, values, control=CONTROL) for r, values in enumerate(NULL)),
    *(table("target", 1, r, values, control=CONTROL) for r, values in enumerate(HELD)),
    table("target", 2, 0, HELD[0].round(2), resolution=0.01, control=CONTROL),
]


@pytest.fixture(scope="module")
def result() -> pa.Table:
    return baselines(Baselines(TARGETS), INPUTS)


def test_targets_with_models_have_a_row(result: pa.Table) -> None:
    assert result.schema == BASELINES
    assert result["name"].to_pylist() == ["D_C", "D_C + D_Q", "theirs.csv"]
    assert list(
        zip(*(result[name].to_pylist() for name in ("models", "retrained", "images", "control")), strict=True)
    ) == [(4, 4, N - CONTROL, CONTROL)] * 2 + [(1, 4, N - CONTROL, CONTROL)]


def test_baselines_detect_memory_and_clear_clean_models(result: pa.Table) -> None:
    null, memory_row, _ = result.to_pylist()
    assert null["u_lira_low"] < 0.5 < null["u_lira_high"]
    assert memory_row["u_lira_low"] > 0.7
    assert memory_row["quality"] < null["quality"] / 2
    assert memory_row["quality_p"] == 2 / 70
    assert null["privleak_low"] < 0 < null["privleak_high"]
    assert memory_row["privleak_high"] < -0.3


def test_log_odds_of_the_query_set_are_compared(result: pa.Table) -> None:
    query_mask = slice(0, N - CONTROL)
    expected = u_lira_accuracy(log_odds(NULL[:, query_mask]), log_odds(CALIBRATION[:, query_mask]))
    assert expected.value == result["u_lira"][0].as_py()


def test_single_table_lacks_measures_of_several_models(golden: Golden, result: pa.Table) -> None:
    table_row = result.to_pylist()[2]
    assert table_row["u_lira"] is None
    assert table_row["quality"] is None
    assert table_row["quality_p"] is None
    assert table_row["privleak"] < -0.3
    golden(table_row["missing"])


def test_privleak_needs_a_control_set(golden: Golden) -> None:
    without_control = [table("calibration", None, 0, CALIBRATION[0]), table("target", 0, 0, NULL[0])]
    (row,) = baselines(Baselines(TARGETS), without_control).to_pylist()
    assert row["privleak"] is None
    golden(row["missing"])


def test_summary_has_three_rows_for_each_target(result: pa.Table) -> None:
    values = list(rows(Tables([result]), None))
    assert len(values) == 9
    rows_by_name = {(row["metric"], row["setting"]): row for row in values}
    memory_row = '{"target": "D_C + D_Q"}'
    assert tuple(rows_by_name["U-LiRA accuracy", memory_row][name] for name in ("n", "unit", "null")) == (
        4,
        "pair of trainings",
        0.5,
    )
    assert rows_by_name["forgetting quality", memory_row]["p_value"] == 2 / 70
    assert tuple(rows_by_name["PrivLeak", memory_row][name] for name in ("n", "unit", "null")) == (4, "training", 0.0)
    table_row = rows_by_name["U-LiRA accuracy", '{"target": "theirs.csv"}']
    assert table_row["estimate"] is None
    assert table_row["n"] == 0
