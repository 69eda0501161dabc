"""A list of answers for `--fail-on`, of which one has a comma."""

from __future__ import annotations

import pytest

from orchestrator.cli.gate import open_gate
from orchestrator.cli.options import GateOptions
from orchestrator.errors import SpecError
from tasks.contract.verdict import DETECTABLE


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("memorised", ["memorised"]),
        ("memorised, undecided", ["memorised", "undecided"]),
        (f"memorised,{DETECTABLE}", ["memorised", DETECTABLE]),
        (f"{DETECTABLE},undecided", [DETECTABLE, "undecided"]),
    ],
)
def test_an_answer_with_a_comma_is_one(text: str, answers: list[str]) -> None:
    assert list(open_gate(GateOptions(fail_on=text), "membership").answers) == answers


def test_half_an_answer_with_a_comma_is_refused() -> None:
    with pytest.raises(SpecError, match="it must name answers of membership"):
        open_gate(GateOptions(fail_on="detectable, undecided"), "membership")
