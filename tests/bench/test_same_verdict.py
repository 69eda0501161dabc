"""The bench of rivals: one case of each kind end to end, and what is read of each rival's lines."""

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


def test_engram_and_the_loss_judge_a_case_of_each_kind(tmp_path: Path) -> None:
    said = Here(tmp_path).module("bench.rivals", "--tiny", "--out", "found.md")
    assert said.endswith((tmp_path / "found.md").read_text())
    assert "| Engram, `membership`" in said
    assert "| the loss alone, without a tool | " in said
    assert said.count(" of 1 [") >= 5 + 3  # Engram's columns, and those of the template


@pytest.mark.parametrize("name", RIVALS)
def test_a_rival_judges_the_cases_and_is_not_asked_again(name: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(PACKAGES[name]) is None:
        pytest.skip(f"{PACKAGES[name]} is not installed here")
    how = rivals.Training(models=4, overfit=40, exposed=60, steps=20, exposed_steps=20)
    folders = [rivals.write_case(case, tmp_path) for case in rivals.make_cases(how, 1)]
    for _ in "ab":
        found, error = rivals.run_rival(name, sys.executable, folders, tmp_path / "told.jsonl")
        assert ([each.case for each in found], error) == (["overfit-1", "null-1", "exposed-1"], "")


def test_a_rival_that_cannot_be_started_is_told_by_its_last_line(tmp_path: Path) -> None:
    found, error = rivals.run_rival("no_such_tool", sys.executable, [tmp_path], tmp_path / "told.jsonl")
    assert (found, error) == ([], "ModuleNotFoundError: No module named 'no_such_tool'")


def test_a_line_without_a_rule_has_no_verdict() -> None:
    assert Judgement("null-1", 0.5, auc=0.53) == parse_line('{"case": "null-1", "seconds": 0.5, "auc": 0.53}')
    accused = parse_line('{"case": "exposed-2", "seconds": 1.0, "largest": 0.2, "accuses": true}')
    assert (accused.kind, accused.accuses, accused.clears) == ("exposed", True, False)
    assert rivals.verdict_share([Judgement("null-1", 0.5)], "null", "accuses") == "no verdict"
    assert rivals.verdict_share([accused], "exposed", "accuses") == "1 of 1 [3, 100] %"


def test_two_records_of_a_pair_have_opposite_halves_and_the_exposed_have_wrong_labels() -> None:
    cases = {case.kind: case for case in rivals.make_cases(rivals.Training(4, 20, 100, 4, 1, 1), 5)}
    assert set(rivals.KINDS) == cases.keys()
    for case in cases.values():
        assert (case.member.sum(axis=0) == 2).all()
        assert (case.member.sum(axis=1) == len(case.labels) // 2).all()
    images, labels = rivals.digits(5)
    assert (cases["exposed"].labels != labels[:100]).sum() == 2
    np.testing.assert_array_equal(cases["null"].images, images[20:40])


def test_the_lines_of_a_user_are_counted_without_blank_ones() -> None:
    assert all(8 <= rivals.script_lines(name) <= 40 for name in RIVALS)
