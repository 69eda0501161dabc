"""Numbers and the settings of summary rows, formatted for readers."""

from __future__ import annotations

import math

import pytest

from orchestrator import rounding
from orchestrator.rounding import format_interval, format_p_value, format_row_interval, format_row_value, format_value


@pytest.mark.parametrize(
    ("value", "low", "high", "expected"),
    [
        (0.3777, 0.1961, 0.5593, "0.38"),  # half the width is 0.18
        (0.004602, -0.0002743, 0.009478, "0.0046"),
        (-0.00001, -0.01, 0.01, "0.000"),
        (30733.0, 29000.0, 32000.0, "30700"),
        (17.94, 17.5, 18.5, "17.94"),
        (1.0, 0.9, 1.1, "1.00"),
        (0.5, 0.4005, 0.6, "0.50"),  # half the width is 0.09975, of which two digits are 0.10
        (2.2e-16, 1e-16, 3e-16, "2.2e-16"),
        (0.0, -1e-9, 1e-9, "0e+00"),
        (0.37771, None, None, "0.3777"),
        (0.37771, 0.37771, 0.37771, "0.3777"),
        (30733.4, None, None, "30730"),
        (-290_591.3, None, None, "-290600"),
        (2.9e12, None, None, "2.9e+12"),
        (math.inf, 0.0, 1.0, "inf"),
        (1.5, 0.0, math.inf, "1.5"),
        (None, 0.0, 1.0, ""),
        (math.nan, 0.0, 1.0, ""),
    ],
)
def test_digits_follow_interval_width(
    value: float | None, low: float | None, high: float | None, expected: str
) -> None:
    assert expected == format_value(value, low, high)


def test_both_ends_have_the_precision_of_the_whole() -> None:
    assert format_interval(0.1961, 0.5593) == "[0.20, 0.56]"
    assert format_interval(None, 1.0) == ""
    row = {"estimate": 0.3777, "low": 0.1961, "high": 0.5593, "null": 0.0}
    assert [format_row_value(row, name) for name in row] == ["0.38", "0.20", "0.56", "0"]
    assert format_row_value({"null": 0.0}, "null") == "0"


def test_unreliable_interval_is_not_shown() -> None:
    two = {"metric": "gain", "estimate": 0.37771, "low": 0.2, "high": 0.6, "n": 2}
    share = {"metric": "accuracy", "estimate": 0.97771, "low": 0.9, "high": 1.1, "n": 9}
    assert (format_row_value(two, "estimate"), format_row_interval(two)) == ("0.3777", "")
    assert (format_row_value(share, "estimate"), format_row_interval(share)) == ("0.9777", "")
    assert format_row_value(two | {"n": 3}, "estimate") == "0.38"
    assert format_row_interval(two | {"n": 3}) == "[0.20, 0.60]"


def test_p_values_have_two_digits_and_a_floor() -> None:
    assert [format_p_value(p) for p in (0.00039641, 0.05, 1.0, 1e-6, 9e-7, 0.0, None, math.nan)] == [
        "0.0004",
        "0.05",
        "1",
        "1e-6",
        "< 1e-6",
        "< 1e-6",
        "",
        "",
    ]


@pytest.mark.parametrize(
    ("setting", "varied", "expected"),
    [
        ('{"images": "probe", "k": 5}', {"images": "probe", "k": 5}, "images=probe, k=5"),
        ("{}", {}, ""),
        ("", {}, ""),
        (None, {}, ""),
        ("[1, 2]", None, "[1, 2]"),
        ("of another kind", None, "of another kind"),
    ],
)
def test_setting_is_shown_or_left_unchanged(
    setting: str | None, varied: dict[str, object] | None, expected: str
) -> None:
    assert varied == rounding.parse_setting(setting)
    assert expected == rounding.format_setting(setting)


def test_caller_formats_values_of_a_setting() -> None:
    assert rounding.format_setting('{"rate": 0.3333333}', lambda value: f"{value:.3g}", equals=" = ") == "rate = 0.333"
