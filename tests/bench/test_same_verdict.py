"""The bench of rivals: one case of each kind end to end, and parsing each rival's output."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from bench import rivals
from bench.rivals import RIVALS, Judgement, parse_line
from tests.support.shell import Here

PACKAGES = {
    "privacyguard": "privacy_guard",
    "art_black_box": "art",
    "art_shapr": "art",
    "privacymeter": "privacy_meter",
}


def test_engram_and_loss_judge_each_kind(tmp_path: Path) -> None:
    output = Here(tmp_path).module("bench.rivals", "--tiny", "--out", "found.md")
    assert output.endswith((tmp_path / "found.md").read_text())
    assert "| Engram, `membership`" in output
    assert "| the loss alone, without a tool | " in output
    assert output.count(" of 1 [") >= 5 + 3  # Engram's columns and the template's columns


@pytest.mark.parametrize("name", RIVALS)
def test_rival_judges_each_case_once(name: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(PACKAGES[name]) is None:
        pytest.skip(f"{PACKAGES[name]} is not installed here")
    how = rivals.Training(models=4, overfit=40, exposed=60, steps=20, exposed_steps=20)
    folders = [rivals.write_case(case, tmp_path) for case in rivals.make_cases(how, 1)]
    for _ in "ab":
        judged, error = rivals.run_rival(name, sys.executable, folders, tmp_path / "told.jsonl")
        assert [judged_case.case for judged_case in judged] == ["overfit-1", "null-1", "exposed-1"]
        assert error == ""


def test_rival_that_cannot_start_is_reported(tmp_path: Path) -> None:
    judged, error = rivals.run_rival("no_such_tool", sys.executable, [tmp_path], tmp_path / "told.jsonl")
    assert judged == []
    assert error == "ModuleNotFoundError: No module named 'no_such_tool'"


def test_line_without_a_rule_has_no_verdict() -> None:
    assert Judgement("null-1", 0.5, auc=0.53) == parse_line('{"case": "null-1", "seconds": 0.5, "auc": 0.53}')
    accused = parse_line('{"case": "exposed-2", "seconds": 1.0, "largest": 0.2, "accuses": true}')
    assert (accused.kind, accused.accuses, accused.clears) == ("exposed", True, False)
    assert rivals.verdict_share([Judgement("null-1", 0.5)], "null", "accuses") == "no verdict"
    assert rivals.verdict_share([accused], "exposed", "accuses") == "1 of 1 [3, 100] %"


def test_pairs_have_opposite_halves_and_exposed_wrong_labels() -> None:
    cases = {case.kind: case for case in rivals.make_cases(rivals.Training(4, 20, 100, 4, 1, 1), 5)}
    assert set(rivals.KINDS) == cases.keys()
    for case in cases.values():
        assert (case.member.sum(axis=0) == 2).all()
        assert (case.member.sum(axis=1) == len(case.labels) // 2).all()
    images, labels = rivals.digits(5)
    assert (cases["exposed"].labels != labels[:100]).sum() == 2
    np.testing.assert_array_equal(cases["null"].images, images[20:40])


def test_users_lines_are_counted_without_blank_ones() -> None:
    assert all(8 <= rivals.script_lines(name) <= 40 for name in RIVALS)
