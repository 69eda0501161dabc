"""Number lines: what stands where, and what is said of it."""

from __future__ import annotations

import math
import re

import pytest

from dashboards.number_line import LEFT, RIGHT, Scale, legend_entries, number_line
from tasks.contract.certificate import Boundary, NumberLine, chances

EFFECT = NumberLine("effect, in nats", 0.3656, 0.1775, 0.5537, 0.0, boundaries=(Boundary(0.1, "not seen below"),))
PLACE = NumberLine("place", 3, null=101.0, usual=(11, 201), boundaries=(Boundary(10, "memorised"),), logarithmic=True)


def places(line: NumberLine, mark: str) -> list[float]:
    found = re.findall(rf'<(?:line|circle) class="{mark}" (?:x1|cx)="([\d.]+)%"', number_line(line))
    return [float(each) for each in found]


@pytest.mark.parametrize("line", [EFFECT, PLACE, chances(1e-9, 0.025), NumberLine("one number", 2.0)])
def test_all_that_is_compared_lies_on_the_line(line: NumberLine) -> None:
    drawn = [float(each) for each in re.findall(r'(?:x1|x2|cx|x)="([\d.]+)%"', number_line(line))]
    assert all(LEFT <= each <= RIGHT for each in drawn)
    assert 2 <= number_line(line).count("<text") <= 9


def test_marks_stand_in_the_order_of_their_values() -> None:
    ((null,), (boundary,), (low,), (estimate,)) = (
        places(EFFECT, mark) for mark in ("null", "boundary", "range", "estimate")
    )
    assert null < boundary < low < estimate
    assert places(PLACE, "estimate") < places(PLACE, "boundary") < places(PLACE, "null")


def test_what_accuses_what_clears_and_the_null_are_told_apart_where_they_meet() -> None:
    line = NumberLine("x", 1.0, 0.5, 1.5, 0.0, boundaries=(Boundary(0.0, "a"), Boundary(0.1, "b", clears=True)))
    assert places(line, "null") == places(line, "boundary") != places(line, "boundary clears")
    ends = dict(re.findall(r'<line class="(null|boundary)" [^>]*y2="(\d+)"', number_line(line)))
    assert int(ends["boundary"]) < int(ends["null"])
    assert ["boundary", "boundary clears"] == [entry.mark for entry in legend_entries(line)][-2:]


def test_each_mark_is_told_with_its_value_at_the_precision_of_the_interval() -> None:
    assert [
        ("estimate", "0.37: what was found"),
        ("range", "0.18 to 0.55: its 95 % interval"),
        ("null", "0: where nothing is memorised"),
        ("boundary", "0.1: not seen below"),
    ] == [(entry.mark, entry.words) for entry in legend_entries(EFFECT)]
    assert ["3: what was found", "11 to 201: 95 % of models that never saw it"] == [
        entry.words for entry in legend_entries(PLACE)
    ][:2]
    assert 'aria-label="effect, in nats: 0.37: what was found; 0.18 to 0.55' in number_line(EFFECT)


def test_what_comes_from_outside_is_escaped() -> None:
    assert "<b>" not in number_line(NumberLine('<b>"bold"</b>', 1.0, null=0.0))


def test_an_infinite_end_is_the_lines_own() -> None:
    line = NumberLine("effect", 1.0, null=0.0, usual=(-math.inf, 2.0))
    assert LEFT == Scale.from_line(line).position(-math.inf)
    assert "<rect" in number_line(line)
