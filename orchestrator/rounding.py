"""Formats a row of a summary: its numbers with the digits that their interval supports, and its setting.

Tables and files keep all digits. The setting is JSON of the varied fields, such as `{"images": "probe"}`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from tasks.contract.summaries import blank_weak_interval, p_digits

DIGITS = 4  # significant digits of a number without an interval
HALF_WIDTH_DIGITS = 2  # significant digits of half the width of an interval
EXPONENT_DECIMALS = 7  # number of decimals at which an exponent is used
LONGEST = 1e9  # numbers without an interval from this size use an exponent


def format_value(value: float | None, low: float | None = None, high: float | None = None) -> str:
    """The value at the precision of its interval [low, high]: two significant digits of half the interval's width.

    Without an interval, or if its width is zero, four significant digits. Empty for None and not-a-number.
    """
    if value is None or math.isnan(value):
        return ""
    if low is None or high is None:
        half = 0.0
    else:
        half = (high - low) / 2
    if not (0 < half < math.inf) or math.isinf(value):
        digits_text = f"{value:.{DIGITS}g}"
        if 10**DIGITS <= abs(value) < LONGEST:
            return f"{float(digits_text):.0f}"
        return digits_text
    decimals = HALF_WIDTH_DIGITS - 1 - math.floor(math.log10(float(f"{half:.1e}")))
    at_precision = round(value, decimals) + 0.0  # never -0
    if decimals < EXPONENT_DECIMALS:
        return f"{at_precision:.{max(decimals, 0)}f}"
    digits = 0
    if at_precision:
        digits = math.floor(math.log10(abs(at_precision))) + decimals
    return f"{at_precision:.{max(digits, 0)}e}"


def format_interval(low: float | None, high: float | None) -> str:
    """`[low, high]` at the interval's own precision; empty without both ends."""
    if low is None or high is None:
        return ""
    return f"[{format_value(low, low, high)}, {format_value(high, low, high)}]"


def format_p_value(p: float | None) -> str:
    """A p-value with two significant digits, `< 1e-6` below that; empty for None and not-a-number."""
    if p is None or math.isnan(p):
        return ""
    return p_digits(p)


def format_row_value(row: Mapping[str, Any], name: str) -> str:
    """A number of a row of a summary, by name, at the precision of the row's interval; a `null` of 0 is 0."""
    if name == "null" and row.get(name) == 0:
        return "0"
    row = blank_weak_interval(row)
    return format_value(row.get(name), row.get("low"), row.get("high"))


def format_row_interval(row: Mapping[str, Any]) -> str:
    """The interval of a row of a summary; empty without one, and if its sample is too small."""
    row = blank_weak_interval(row)
    return format_interval(row.get("low"), row.get("high"))


def parse_setting(setting: str | None) -> dict[str, Any] | None:
    """The varied fields, empty if there are none; None for a setting that is not a JSON object."""
    try:
        fields = json.loads(setting or "{}")
    except ValueError:
        return None
    if isinstance(fields, dict):
        return fields
    return None


def format_setting(setting: str | None, value: Callable[[Any], str] = str, equals: str = "=") -> str:
    """The setting as a line, `images=probe, k=5`, with values formatted by `value`; unchanged if not a JSON object."""
    fields = parse_setting(setting)
    if fields is None:
        return str(setting)
    return ", ".join(f"{name}{equals}{value(field_value)}" for name, field_value in fields.items())
