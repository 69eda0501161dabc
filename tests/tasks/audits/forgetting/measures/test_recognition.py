"""Whether a table can clear a target: owners who recognise images of D_Q and submit a clean model's answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tasks.audits.forgetting import plan
from tasks.audits.forgetting.measures.decisions import decisions
from tasks.audits.forgetting.measures.recognition import PASSED, RECOGNITION, Recognition, recognition
from tasks.audits.forgetting.presets import PRESETS
from tasks.audits.forgetting.target_evidence import MAX_PASSED
from tasks.datasets.catalog import pin
from tasks.worker.files import File
from tests.support.settings import with_settings
from tests.tasks.audits.forgetting.made_up import audit
from tests.tasks.audits.forgetting.small_run import ABOUT, CONTROLLED_INPUTS, INPUTS, TARGET_MODELS, tables_with_control
from tests.tasks.audits.forgetting.summarised import rows, setting

LARGEST = 1  # the number of the largest known share, 25 %
SURER = audit(np.random.default_rng(4), (0.25,), replicates=4, images=300, domain_effect=2.0)[1]
WITHOUT_LARGEST = [
    one for one in CONTROLLED_INPUTS if (one["model"][0].as_py(), one["target"][0].as_py()) != ("partial", LARGEST)
]


def test_owner_like_clean_models_passes() -> None:
    (result,) = recognition(Recognition(ABOUT), CONTROLLED_INPUTS).to_pylist()
    # four models with each of four calibration models
    assert result["share"] == 0.25
    assert result["pairs"] == 16
    assert result["passed"] > result["pairs"] / 2
    expected = rows(recognition(Recognition(ABOUT), CONTROLLED_INPUTS))[PASSED, setting(share=0.25)]
    assert expected["estimate"] == result["passed"] / 16
    assert expected["n"] == 16
    assert expected["unit"] == "pair of models"


def test_owner_who_knows_the_controls_better_fails() -> None:
    inputs = [*WITHOUT_LARGEST, *tables_with_control("partial", LARGEST, SURER)]
    assert recognition(Recognition(ABOUT), inputs).to_pylist() == [{"share": 0.25, "pairs": 16, "passed": 0}]


def test_trial_needs_controls_and_known_shares() -> None:
    assert recognition(Recognition(ABOUT), INPUTS).equals(RECOGNITION.empty_table())
    without_partial = []
    for one in CONTROLLED_INPUTS:
        if one["model"][0].as_py() != "partial":
            without_partial.append(one)
    assert recognition(Recognition(ABOUT), without_partial).num_rows == 0


@pytest.mark.parametrize(("passed", "answer"), [(6, "not assessable"), (5, "forgotten")])
def test_table_is_cleared_only_if_few_owners_pass(passed: int, answer: str) -> None:
    trial = RECOGNITION.empty_table().from_pylist([{"share": 0.25, "pairs": 100, "passed": passed}], RECOGNITION)
    clean = tables_with_control("target", 2, TARGET_MODELS[2])
    kinds = ("calibration", None), ("partial", 0), ("partial", 1), ("target", 0)
    inputs = [
        *(one for one in CONTROLLED_INPUTS if (one["model"][0].as_py(), one["target"][0].as_py()) in kinds),
        *clean,
    ]
    before = {row["name"]: row for row in decisions(ABOUT, inputs).to_pylist()}
    result = {}
    for row in decisions(ABOUT, [*inputs, trial]).to_pylist():
        result[row["name"]] = row
    assert before["theirs"]["decision"] == "forgotten"
    assert answer == result["theirs"]["decision"]
    # the others are models that are evaluated here
    assert all(before[name] == result[name] for name in before if name != "theirs")
    if answer == "not assessable":
        assert "6 of 100 simulated owners who hold 25 % of D_Q" in result["theirs"]["reason"]
    assert (answer == "not assessable") == (passed > MAX_PASSED * 100)


def test_trial_is_planned_for_unbound_tables() -> None:
    smoke = PRESETS["smoke"]
    assert not isinstance(smoke, tuple)
    query = replace(smoke.query, data=pin(smoke.query.data))
    calibration = replace(smoke.calibration, data=pin(smoke.calibration.data))
    smoke = replace(smoke, query=query, calibration=calibration)
    tables = with_settings(smoke, {"given.outputs": (File("gone.csv", "c" * 64),)})
    bound_config = with_settings(tables, bound_by="SHA-256 9f86d081, 30 spot checks")
    assert "recognition" not in plan(smoke)
    assert "recognition" in plan(tables)
    assert "recognition" not in plan(bound_config)
