"""A list of answers for `--fail-on`, of which one has a comma."""

from __future__ import annotations

import pytest

from orchestrator.cli.gate import split_answers
from tasks.contract.verdict import ANSWERS, DETECTABLE


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("memorised", ["memorised"]),
        ("memorised, undecided", ["memorised", "undecided"]),
        (f"memorised,{DETECTABLE}", ["memorised", DETECTABLE]),
        (f"{DETECTABLE},undecided", [DETECTABLE, "undecided"]),
        ("detectable, undecided", ["detectable", "undecided"]),
    ],
)
def test_an_answer_with_a_comma_is_one(text: str, answers: list[str]) -> None:
    assert list(split_answers(text, ANSWERS)) == answers
