"""Changes of a probability are printed with digits that show their distance from no change."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.contract.factors import Change, describe_change, format_times

NATS = st.floats(-20, 20, allow_nan=False)


@pytest.mark.parametrize(
    ("nats", "low", "high", "expected"),
    [
        (0.005, 0.002, 0.008, Change("0.5 % more probable", "0.2 to 0.8 %", "0 %")),
        (0.366, 0.178, 0.553, Change("44 % more probable", "19 to 74 %", "0 %")),
        (0.009, -0.05, 0.099, Change("0.9 % more probable", "4.9 % less to 10 % more", "0 %")),
        (-0.2, -0.3, -0.1, Change("18 % less probable", "9.5 to 26 % less", "0 %")),
        (0.0, -0.01, 0.01, Change("equally probable", "1 % less to 1 % more", "0 %")),
        (0.0005, None, None, Change("0.05 % more probable", "", "0 %")),
        (0.1, 0.1, 0.1001, Change("11 % more probable", "10.52 to 10.53 %", "0 %")),
        (0.366, 0.002, 1.2, Change("1.44 times as probable", "1.002 to 3.3 times", "1")),
        (2.5, 2.0, 3.0, Change("12 times as probable", "7.4 to 20 times", "1")),
        (7.5, -1.0, 15.0, Change("1,800 times as probable", "0.37 to more than a million times", "1")),
    ],
)
def test_change_is_percent_or_factor(nats: float, low: float | None, high: float | None, expected: Change) -> None:
    assert describe_change(nats, low, high) == expected


@given(NATS | st.floats(-2e-9, 2e-9))
def test_no_change_is_printed_as_no_change_only_if_it_is(nats: float) -> None:
    change = abs(math.expm1(nats))  # factors have ten digits, so that those from 1e-11 to 1e-9 may be rounded to 1
    assert format_times(nats) == "1" if change < 1e-11 else format_times(nats) != "1" or change < 1e-9
    assert describe_change(nats).words.startswith("equally") == (nats == 0)


@given(NATS, NATS)
def test_different_small_ends_look_different(one: float, other: float) -> None:
    low, high = sorted((one / 100, other / 100))
    interval = describe_change((low + high) / 2, low, high).interval
    if abs(math.expm1(high) - math.expm1(low)) > 1e-4 * abs(high):
        first, _, second = interval.replace(" % less", "").replace(" % more", "").replace(" %", "").partition(" to ")
        assert first != second or low < 0 < high
