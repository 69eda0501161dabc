"""Numbers, durations and sizes as text.

Names and labels from outside are escaped for terminals and spreadsheets. Every value of a table has a JSON form.
"""

from __future__ import annotations

import datetime
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orchestrator.quantities import (
    approximate_duration,
    format_count,
    format_resources,
    inert,
    jsonable,
    printable,
    printable_lines,
)
from tasks.contract.quantities import ByteCount, Duration
from tasks.contract.resources import Resources
from tests.support.shell import Here

HOSTILE = "a\x1b[31mred\nsecond\u202eabc"
SHOWN = r"a\x1b[31mred\nsecond\u202eabc"


@pytest.mark.parametrize(
    ("number", "thing", "expected"),
    [
        (1, "training", "1 training"),
        (12, "training", "12 trainings"),
        (12, "pair of trainings", "12 pairs of trainings"),
        (0, "job", "0 jobs"),
        (1797, "image", "1,797 images"),
        (2, "process", "2 processes"),
        (30, "canary", "30 canaries"),
        (2, "day", "2 days"),
        (3, "", "3"),
        (2, "more cell", "2 more cells"),
        (1, "more job", "1 more job"),
    ],
)
def test_first_word_takes_the_plural(number: int, thing: str, expected: str) -> None:
    assert expected == format_count(number, thing)


def test_control_characters_are_escaped_and_all_scripts_pass() -> None:
    assert printable(HOSTILE) == SHOWN
    assert printable(printable(HOSTILE)) == SHOWN
    assert printable_lines("two\n\tlines\x07") == "two\n\tlines\\x07"
    assert printable("\x9b\u2066\ufeff\u2028") == r"\x9b\u2066\ufeff\u2028"
    for text in ("Müller 50 µm", "日本語", "α ≤ β", "עברית العربية", "a\u202fb"):
        assert text == printable(text)


@pytest.mark.parametrize("text", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "-", "--1"])
def test_formula_is_preceded_by_an_apostrophe(text: str) -> None:
    assert inert(text) == f"'{text}"


@pytest.mark.parametrize("text", ["-1.5", "+3", "-2e-05", "-.5", "-inf", "label", "a=b", "", "1-2"])
def test_numbers_and_names_are_unchanged(text: str) -> None:
    assert text == inert(text)


def test_labels_reach_no_terminal_or_spreadsheet_as_commands(tmp_path: Path) -> None:
    engram = Here(tmp_path)
    (tmp_path / "sweep.yaml").write_text(
        'audit: toys\nsweep:\n  label: ["=1+1", "-3.5", "a\\e[31mred\\nsecond\\u202Eabc"]\n', encoding="utf-8"
    )
    results = [
        engram("plan", "sweep.yaml"),
        engram("run", "sweep.yaml", "--address", "none"),
        engram("runs"),
        engram("status"),
        engram("run", "toys", f"label={HOSTILE}", "trouble=raise", "at=1", "--address", "none", code=3),
        engram("show", f"toys{HOSTILE}", code=2),
        engram("status", HOSTILE, code=2),
    ]
    for text in (part for one in results for part in (one.stdout, one.stderr)):
        assert not any(obeyed in text for obeyed in ("\x1b", "\u202e", "\nsecond"))
    assert all(SHOWN in one.stdout for one in (results[1], results[2]))
    assert len(results[5].stderr.splitlines()) == 1
    sweep = next(line.split()[0] for line in results[2].stdout.splitlines() if "3 cells" in line)
    engram("results", sweep, "summary", "--out", "out.csv")
    lines = (tmp_path / "out.csv").read_text(encoding="utf-8")
    assert all(cell in lines for cell in ('"\'=1+1"', '"-3.5"'))
    assert '"=1+1"' not in lines


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "1 s"), (7.4, "7 s"), (43, "45 s"), (204, "3 min 20 s"), (1090, "18 min")]
)
def test_estimated_time_is_rounded(seconds: float, text: str) -> None:
    assert text == approximate_duration(seconds)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.1, 0.1),
        (math.nan, None),
        (-math.inf, None),
        (np.float64("inf"), None),
        (True, True),
        (2**70, 2**70),
        (None, None),
        ("ε", "ε"),
        (b"\xff\x00", "/wA="),
        (datetime.date(2024, 2, 29), "2024-02-29"),
        (datetime.datetime(2024, 2, 29, 1, 2, tzinfo=datetime.UTC), "2024-02-29 01:02:00+00:00"),
        ((1, [math.nan, (b"a",)]), [1, [None, ["YQ=="]]]),
        ({1: {"x": (math.inf,)}, None: []}, {"1": {"x": [None]}, "None": []}),
    ],
)
def test_values_are_converted_to_json(value: Any, expected: Any) -> None:
    converted = jsonable(value)
    assert expected == converted
    assert type(expected) is type(converted) or isinstance(converted, float)
    assert expected == json.loads(json.dumps(converted, allow_nan=False))


@pytest.mark.parametrize(
    ("resources", "text"),
    [
        (Resources(), ""),
        (Resources(1, 1, ByteCount(2**34), Duration(90)), "1 GPU, 1 processor, 16GiB of memory, at most 1m30s"),
        (Resources(cpus=16, memory=ByteCount(64 * 10**9)), "16 processors, 64GB of memory"),
        (Resources(memory=ByteCount(22_942_244_864)), "22.9 GB of memory"),  # what Ray offers of a machine
    ],
)
def test_stated_resources_are_listed(resources: Resources, text: str) -> None:
    assert format_resources(resources) == text
