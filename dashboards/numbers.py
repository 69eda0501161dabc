"""Numbers on pages, rounded to the precision of their interval or to four digits. The markup keeps the exact value."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup, escape

from dashboards.summary import read_setting
from orchestrator import rounding
from orchestrator.quantities import format_count, format_size


def number(value: Any) -> Markup:
    """Render a value in a `<data>` element that also holds all digits.

    Returns empty markup for None, and plain text for values that are not numbers.
    """
    if value is None:
        return Markup("")
    if isinstance(value, float):
        return Markup('<data value="{0}" title="{0}">{1}</data>').format(repr(value), short(value))
    if isinstance(value, int) and not isinstance(value, bool):
        return Markup('<data value="{0}">{0}</data>').format(value)
    return escape(short(value))


def _data_element(value: Any, text: str) -> Markup:
    """Render the rounded `text` in a `<data>` element that also holds all digits. Empty text gives empty markup."""
    if text:
        return Markup('<data value="{0}" title="{0}">{1}</data>').format(repr(value), text)
    return Markup("")


def row_value(row: Mapping[str, Any], name: str) -> Markup:
    """Render the row's `estimate` or `null` at the precision of the row's interval."""
    return _data_element(row.get(name), rounding.format_row_value(row, name))


def p_value(p: float | None) -> Markup:
    """Render a p-value. Very small ones are shown as an upper bound."""
    return _data_element(p, rounding.format_p_value(p))


def interval(row: Mapping[str, Any]) -> Markup:
    """Render the row's 95 % interval. Returns empty markup if it has none."""
    low = row_value(row, "low")
    high = row_value(row, "high")
    if low and high:
        return Markup("{} to {}").format(low, high)
    return Markup("")


def sample(row: Mapping[str, Any]) -> Markup:
    """Render the sample size and unit of the row's estimate."""
    n = row.get("n")
    if n is None:
        return Markup("")
    return Markup('<data value="{}">{}</data>').format(n, format_count(n, row.get("unit") or ""))


def short(value: Any) -> str:
    """Format a value as short text: floats with four digits, None as `none`, mappings as their items."""
    if value is None:
        return "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {short(part)}" for name, part in value.items())
    if isinstance(value, float):
        return rounding.format_value(value) or "nan"
    return str(value)


def setting(text: str | None) -> str:
    """Format a summary row's setting, stored as JSON, as readable text."""
    try:
        varied = read_setting(text)
    except (TypeError, ValueError):
        return str(text)
    return ", ".join(f"{name} = {short(value)}" for name, value in varied.items())


def duration(seconds: float) -> str:
    """Format a duration in its two largest units."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def size(count: int | None) -> Markup:
    """Render a size in bytes. Returns empty markup for None."""
    if count is None:
        return Markup("")
    return Markup('<data value="{}">{}</data>').format(count, format_size(count))


def moment(stamp: str) -> Markup:
    """Render a log timestamp in UTC, to the minute."""
    try:
        time = datetime.fromisoformat(stamp).astimezone(UTC)
    except ValueError:
        return escape(stamp)
    return Markup('<time datetime="{}">{:%Y-%m-%d %H:%M} UTC</time>').format(stamp, time)
