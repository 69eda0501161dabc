"""Formats the number that compares runs. Every list of runs and cells prints the same text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from orchestrator import rounding
from tasks.contract.objectives import Headline
from tasks.contract.summaries import blank_weak_interval


def format_headline(headline: Headline | None) -> str:
    """Format the number with its unit and interval: `0.37 nats [0.18, 0.55]`, `288 of 400 records`.

    Shares are printed in per cent. A number without an interval has two significant digits of its distance from the
    value expected without memorisation, and a count all digits. None gives an empty string.
    """
    if headline is None:
        return ""
    text = _with_unit(headline, _format_estimate(headline))
    numbers = _printed_numbers(headline)
    interval = rounding.format_interval(numbers["low"], numbers["high"])
    if not interval:
        return text
    if "%" in headline.wording:
        return f"{text} {interval.removesuffix(']')} %]"
    return f"{text} {interval}"


def format_range(headlines: Sequence[Headline]) -> str:
    """Format the range of the cells of a sweep: `0.013 to 0.37 nats`. A single number keeps its interval."""
    if len(headlines) < 2:
        return format_headline(next(iter(headlines), None))
    ordered = sorted(headlines, key=lambda headline: float(headline.row["estimate"]))
    lowest, highest = (_format_estimate(headline) for headline in (ordered[0], ordered[-1]))
    return _with_unit(ordered[-1], lowest if lowest == highest else f"{lowest} to {highest}")


def headline_shape(headline: Headline | None) -> dict[str, Any] | None:
    """Return the number as JSON: its text, its summary row's name and numbers, and the unit of the estimate."""
    if headline is None:
        return None
    row = headline.row
    return {
        "text": format_headline(headline),
        "metric": row["metric"],
        "setting": rounding.parse_setting(row["setting"]) or {},
        **{name: row[name] for name in ("estimate", "low", "high", "null", "n")},
        "unit": headline.unit,
    }


def _with_unit(headline: Headline, number: str) -> str:
    """Insert a number into the wording of a headline."""
    before, _, after = headline.wording.rpartition("{}")
    n = headline.row["n"]
    return f"{before}{number}{after.replace('{n}', 'an unknown number' if n is None else f'{n:,}')}"


def _printed_numbers(headline: Headline) -> dict[str, float | None]:
    """Return the numbers of the row: shares in per cent, and no interval from too small a sample."""
    row = blank_weak_interval(headline.row)
    scale = 100.0 if headline.is_share else 1.0
    numbers: dict[str, float | None] = {}
    for name in ("estimate", "low", "high", "null"):
        value = row[name]
        numbers[name] = None if value is None or math.isnan(value) else scale * value
    return numbers


def _format_estimate(headline: Headline) -> str:
    """Format the estimate without its unit, at the precision of its interval or of its distance from the null value."""
    numbers = _printed_numbers(headline)
    estimate, low, high = numbers["estimate"], numbers["low"], numbers["high"]
    if estimate is None:
        return ""
    if low is not None and high is not None and low < high:
        return rounding.format_value(estimate, low, high)
    if estimate.is_integer() and abs(estimate) < rounding.LONGEST:
        return f"{estimate:,.0f}"
    distance = abs(estimate - (numbers["null"] or 0.0))
    # An interval of this half width gives the estimate the same digits as the distance would have.
    return rounding.format_value(estimate, estimate - distance, estimate + distance)
