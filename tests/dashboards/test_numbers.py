"""Numbers as a page shows them: short to read, and whole beside it."""

from __future__ import annotations

import math
import re

import pytest

from dashboards.numbers import duration, interval, moment, number, sample, setting
from dashboards.signs import glyph


@pytest.mark.parametrize("value", [0.1 + 0.2, -1 / 3, 5.6e-12, 1e300, 0.0])
def test_a_float_is_short_to_read_and_whole_beside_it(value: float) -> None:
    found = re.fullmatch(r'<data value="([^"]*)" title="\1">([^<]*)</data>', number(value))
    assert found is not None
    assert (value, f"{value:.4g}") == (float(found[1]), found[2])


def test_what_is_not_there_or_not_a_number_is_told_as_that() -> None:
    assert ("", "nan", "inf") == (number(None), *(re.sub("<[^>]*>", "", number(x)) for x in (math.nan, math.inf)))
    assert "" == interval({"low": None, "high": 1.0})
    assert "" == sample({"n": None, "unit": "training"})
    assert '<data value="12">12 pairs of trainings</data>' == sample({"n": 12, "unit": "pair of trainings"})


def test_settings_times_and_durations_are_in_words() -> None:
    assert "model = canary, rank = 2" == setting('{"model": "canary", "rank": 2}')
    assert ("", "not JSON", "[1]") == (setting(None), setting("not JSON"), setting("[1]"))
    assert ["0.5 s", "1 min 40 s", "2 h 5 min"] == [duration(seconds) for seconds in (0.5, 100, 7500)]
    assert "2026-11-21 08:30 UTC" in moment("2026-11-21T09:30:00+01:00")
    assert "&lt;b&gt;" == moment("<b>")


def test_a_line_shows_interval_estimate_and_null_where_they_are() -> None:
    drawn = glyph({"low": 0.0, "estimate": 5.0, "high": 10.0, "null": 0.0})
    assert ['class="range" d="M6.0 8H90.0"', 'class="null" d="M6.0 1v14"', 'cx="48.0"'] == [
        each for each in ('class="range" d="M6.0 8H90.0"', 'class="null" d="M6.0 1v14"', 'cx="48.0"') if each in drawn
    ]
    assert "" == glyph({"low": None, "estimate": 5.0, "high": None, "null": None})
    assert "" == glyph({"low": None, "estimate": None, "high": None, "null": 0.0})


def test_two_rows_share_a_scale() -> None:
    a = {"low": 0.0, "estimate": 1.0, "high": 2.0, "null": None}
    b = {"low": 2.0, "estimate": 3.0, "high": 4.0, "null": None}
    drawn = glyph(a, b)
    assert 'd="M6.0 8H48.0"' in drawn
    assert 'd="M48.0 24H90.0"' in drawn


def test_rows_of_one_metric_share_a_scale() -> None:
    near, far = ({"low": at, "estimate": at + 1, "high": at + 2, "null": None} for at in (0.0, 8.0))
    alone, beside = glyph(near), glyph(near, beside=[near, far])
    assert '<path class="range" d="M6.0 8H90.0"/>' in alone
    assert '<path class="range" d="M6.0 8H22.8"/>' in beside
    assert '<path class="range" d="M73.2 8H90.0"/>' in glyph(far, beside=[near, far])
