"""Two runs side by side, for a person and for a program."""

from __future__ import annotations

import json

import pytest

from orchestrator.cli import verdict
from orchestrator.inspection.compare import Comparison, Difference, Pair
from orchestrator.quantities import jsonable
from tasks.verdict import Verdict

A = {"metric": "M", "setting": "{}", "estimate": 0.25, "low": 0.1, "high": 0.4, "n": 3, "null": 0.0}
B = {"metric": "M", "setting": "{}", "estimate": 0.5, "low": None, "high": None, "n": 1, "null": None}
ANSWER = Verdict("yes", "It is remembered.", "Of this network.", (("M", "{}"),))


def found(**fields: object) -> Comparison:
    rows = (Pair("M", '{"rank": 1}', A, B), Pair("P", "{}", None, A))
    whole = {
        "runs": ("first-1", "second-2"),
        "audits": ("unique_feature", "toys"),
        "fields": (Difference("epochs", 3, 4), Difference("label", None, "b")),
        "environment": (Difference("torch", "2.1", "2.2"),),
        "answers": (None, ANSWER),
        "rows": rows,
    }
    return Comparison(**(whole | fields))  # type: ignore[arg-type]


def words(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_a_person_reads_what_differs_then_the_rows_then_the_answers(capsys: pytest.CaptureFixture[str]) -> None:
    verdict.display_comparison(found())
    interval, n = (
        ["a:", "95", "%", "interval", "b:", "95", "%", "interval"],
        ["a:", "n", "a:", "null", "b", "b:", "95", "%", "interval", "b:", "n", "b:", "null"],
    )
    assert [
        ["a", "first-1", "(unique_feature)"],
        ["b", "second-2", "(toys)"],
        [],
        ["differs", "name", "a", "b"],
        ["config", "epochs", "3", "4"],
        ["config", "label", "b"],
        ["made", "with", "torch", "2.1", "2.2"],
        [],
        ["metric", "setting", "a", *interval[:4], *n],
        ["M", "rank=1", "0.25", "[0.10,", "0.40]", "3", "0", "0.5", "1"],
        ["P", "0.25", "[0.10,", "0.40]", "3", "0"],
        [],
        ["a", "no", "answer", "yet"],
        ["b", "It", "is", "remembered."],
    ] == words(capsys.readouterr().out)


def test_runs_that_were_asked_alike_are_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    verdict.display_comparison(found(fields=(), environment=()))
    assert "they differ neither in their config nor in what they were made with\n" in capsys.readouterr().out


def test_a_program_gets_all_of_it() -> None:
    shape = json.loads(json.dumps(jsonable(verdict.comparison_shape(found())), allow_nan=False))
    assert ["answers", "audits", "environment", "fields", "rows", "runs"] == sorted(shape)
    assert [
        {"metric": "M", "setting": '{"rank": 1}', "a": A, "b": B},
        {"metric": "P", "setting": "{}", "a": None, "b": A},
    ] == shape["rows"]
    assert {"name": "label", "a": None, "b": "b"} == shape["fields"][1]
    assert [None, "It is remembered."] == [each and each["sentence"] for each in shape["answers"]]
