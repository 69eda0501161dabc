"""Formats a change of a probability, given as a difference of log-probabilities in nats.

A small change is printed in per cent, a larger one as a factor. Digits follow the distance from no change, so that
`0.5 % more probable (0.2 to 0.8 %)` is never `1 times as probable (1 to 1.01 times)`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

DIGITS = 2  # significant digits of the distance from no change
MOST_DIGITS = 6
SMALL = math.log(2)  # nats; changes within a factor of two in either direction are printed in per cent
MILLION = math.log(1e6)  # nats; readers cannot compare larger factors


@dataclass(frozen=True)
class Change:
    """A change of a probability in words.

    words: the change, such as `44 % more probable` or `3.2 times as probable`.
    interval: its interval in the same unit, such as `19 to 74 %`. Empty if there is none.
    none: the value of no change in this unit, `0 %` or `1`.
    """

    words: str
    interval: str
    none: str


def describe_change(nats: float, low: float | None = None, high: float | None = None, word: str = "probable") -> Change:
    """Describe the change of a probability by `nats`, with the ends of its interval, as `more probable` or similar."""
    ends = [] if low is None or high is None else [low, high]
    if all(abs(value) < SMALL for value in (nats, *ends)):
        return Change(_describe_percent(nats, word), _percent_interval(*ends) if ends else "", "0 %")
    interval = ""
    if ends:
        interval = " to ".join(format_times(value) for value in ends) + " times"
    return Change(f"{format_times(nats)} times as {word}", interval, "1")


def format_times(nats: float) -> str:
    """Format e to the power of a difference: `1.44`, `1.005`, `1,800`, `more than a million`."""
    if nats > MILLION:
        return "more than a million"
    factor = math.exp(nats)
    if abs(nats) < SMALL:
        return f"{1 + float(f'{math.expm1(nats):.{DIGITS}g}'):.10g}"
    return f"{float(f'{factor:.{DIGITS}g}'):,g}"


def _describe_percent(nats: float, word: str) -> str:
    size = _format_percent(nats)
    if size == "0":
        return f"equally {word}"
    return f"{size} % {'more' if nats > 0 else 'less'} {word}"


def _percent_interval(low: float, high: float) -> str:
    """Format an interval in per cent without signs: `0.2 to 0.8 %`, `5 % less to 10 % more`, `9 to 26 % less`."""
    digits = DIGITS
    if low < 0 < high:
        return f"{_format_percent(low)} % less to {_format_percent(high)} % more"
    while low != high and digits < MOST_DIGITS and _format_percent(low, digits) == _format_percent(high, digits):
        digits += 1
    lowest, highest = _format_percent(low, digits), _format_percent(high, digits)
    if low >= 0:
        return f"{lowest} to {highest} %"
    return f"{highest} to {lowest} % less"


def _format_percent(nats: float, digits: int = DIGITS) -> str:
    """Format the size of a change in per cent, without its sign."""
    return f"{abs(float(f'{100 * math.expm1(nats):.{digits}g}')):g}"
