"""The list of answers for `--fail-on`."""

from __future__ import annotations

import pytest

from orchestrator.cli.gate import open_gate
from orchestrator.cli.options import GateOptions
from orchestrator.errors import SpecError
from tasks.contract.verdict import BELOW_RELEVANT_SIZE


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("memorised", ["memorised"]),
        ("memorised, undecided", ["memorised", "undecided"]),
        (f"memorised,{BELOW_RELEVANT_SIZE}", ["memorised", BELOW_RELEVANT_SIZE]),
        (f"{BELOW_RELEVANT_SIZE},undecided", [BELOW_RELEVANT_SIZE, "undecided"]),
    ],
)
def test_answers_are_separated_by_commas(text: str, answers: list[str]) -> None:
    assert list(open_gate(GateOptions(fail_on=text), "membership").answers) == answers


def test_unknown_answer_is_refused() -> None:
    with pytest.raises(SpecError, match="it must list answers of membership"):
        open_gate(GateOptions(fail_on="below, undecided"), "membership")
