"""Formats a summary row: its numbers, with as many digits as their interval supports, and its setting.

Tables and files keep all digits. The setting is a JSON object with the varied fields, such as `{"images": "probe"}`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from tasks.contract.summaries import blank_weak_interval, p_digits

DIGITS = 4  # significant digits of a number without an interval
HALF_WIDTH_DIGITS = 2  # significant digits in half the interval width
EXPONENT_DECIMALS = 7  # number of decimals from which an exponent is used
LONGEST = 1e9  # numbers without an interval use an exponent from this size


def format_value(value: float | None, low: float | None = None, high: float | None = None) -> str:
    """Format a value at the precision of its interval [low, high]: two significant digits of half the interval width.

    If there is no interval or its width is zero, use four significant digits. None and NaN give an empty string.
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
    at_precision = round(value, decimals) + 0.0  # avoids -0
    if decimals < EXPONENT_DECIMALS:
        return f"{at_precision:.{max(decimals, 0)}f}"
    digits = 0
    if at_precision:
        digits = math.floor(math.log10(abs(at_precision))) + decimals
    return f"{at_precision:.{max(digits, 0)}e}"


def format_interval(low: float | None, high: float | None) -> str:
    """Format an interval as `[low, high]` at its own precision. Returns an empty string if either end is missing."""
    if low is None or high is None:
        return ""
    return f"[{format_value(low, low, high)}, {format_value(high, low, high)}]"


def format_p_value(p: float | None) -> str:
    """Format a p-value with two significant digits, or `< 1e-6` below that. None and NaN give an empty string."""
    if p is None or math.isnan(p):
        return ""
    return p_digits(p)


def format_row_value(row: Mapping[str, Any], name: str) -> str:
    """Format a number in a summary row, selected by name, at the precision of the row's interval.

    A `null` of 0 is `0`.
    """
    if name == "null" and row.get(name) == 0:
        return "0"
    row = blank_weak_interval(row)
    return format_value(row.get(name), row.get("low"), row.get("high"))


def format_row_interval(row: Mapping[str, Any]) -> str:
    """Format the interval of a summary row. Returns an empty string if it has none or its sample is too small."""
    row = blank_weak_interval(row)
    return format_interval(row.get("low"), row.get("high"))


def parse_setting(setting: str | None) -> dict[str, Any] | None:
    """Parse a setting into its varied fields. Returns None if it is not a JSON object."""
    try:
        fields = json.loads(setting or "{}")
    except ValueError:
        return None
    if isinstance(fields, dict):
        return fields
    return None


def format_setting(setting: str | None, value: Callable[[Any], str] = str, equals: str = "=") -> str:
    """Format a setting as one line, such as `images=probe, k=5`, using `value` to format each value.

    A setting that is not a JSON object is returned unchanged.
    """
    fields = parse_setting(setting)
    if fields is None:
        return str(setting)
    return ", ".join(f"{name}{equals}{value(field_value)}" for name, field_value in fields.items())
