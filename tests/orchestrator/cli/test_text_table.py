"""Rows fit the width that there is: names wrap between words, numbers stay whole."""

from __future__ import annotations

import re

import pytest

from orchestrator.cli.terminal import align_columns, stack_rows, width_of, wrap_text

ROWS = [
    {
        "metric": "share of canaries found by chance",
        "estimate": "0.561",
        "interval": "[0.284, 0.797]",
        "p": "< 1e-6",
    },
    {"metric": "M", "estimate": "-0.013", "interval": "[-0.026, -0.001]", "p": ""},
]


def test_names_wrap_between_words_and_numbers_never() -> None:
    assert [
        "metric                estimate  interval               p",
        "share of canaries        0.561  [0.284, 0.797]    < 1e-6",
        "found by chance",
        "M                       -0.013  [-0.026, -0.001]",
    ] == align_columns(ROWS, {"estimate", "p"}, 56)


@pytest.mark.parametrize("width", range(45, 90))
def test_every_line_fits_and_holds_whole_numbers(width: int) -> None:
    lines = align_columns(ROWS, {"estimate", "p"}, width)
    assert lines is not None
    assert max(map(len, lines)) <= width
    for row in ROWS:
        assert any(all(row[name] in line for name in ("estimate", "interval", "p")) for line in lines)


def test_what_cannot_stand_in_columns_stands_one_below_another() -> None:
    assert align_columns(ROWS, {"estimate"}, 40) is None
    assert [
        "share of canaries found by chance",
        "  estimate 0.561",
        "  interval [0.284, 0.797]  p < 1e-6",
        "M",
        "  estimate -0.013",
        "  interval [-0.026, -0.001]",
    ] == stack_rows(ROWS, 38)


def test_a_text_wraps_between_words_and_a_number_keeps_its_percent_sign() -> None:
    assert ["at 95", "to", "97 %", "here"] == wrap_text("at 95 to 97 % here", 6)
    assert ["abcd", " ef"] == wrap_text("abcdef", 4, " ")
    assert "一二 三四" == " ".join(wrap_text("一二 三四", 5))
    assert (8, 4) == (width_of("一二三四"), width_of("abcd"))


def test_no_rows_are_no_lines_but_none() -> None:
    assert [] == [line for line in align_columns([], set(), 80) or [] if re.search(r"\S", line)]
    assert [] == stack_rows([], 80)


def test_a_width_below_the_indent_still_gives_lines() -> None:
    assert "twowords" == "".join(wrap_text("two words", 1, "    ")).replace(" ", "")
