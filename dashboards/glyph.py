"""Small drawings of estimates: a line for the interval, a dot for the estimate and a tick for the null."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

WIDTH, HEIGHT, MARGIN = 96, 16, 6
NAMES = ("low", "estimate", "high", "null")
Row = Mapping[str, Any]


def glyph(*rows: Row | None, beside: Sequence[Row] = ()) -> Markup:
    """The rows below one another on one scale, which has room for the rows `beside` them, too.

    Empty if the rows have fewer than two distinct numbers. Hidden from screen readers, since the
    numbers are in the table.
    """
    if len(set(_numbers(rows))) < 2:
        return Markup("")
    there = _numbers([*rows, *beside])
    least, unit = min(there), (WIDTH - 2 * MARGIN) / (max(there) - min(there))
    lines = []
    for at, row in enumerate(rows):
        numbers = {name: value for name in NAMES if row is not None and (value := row.get(name)) is not None}
        lines += _line({name: f"{MARGIN + (value - least) * unit:.1f}" for name, value in numbers.items()}, HEIGHT * at)
    # Numbers and our own words only: nothing here comes from outside.
    height = HEIGHT * len(rows)
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    return Markup(f'<svg class="glyph" {size} aria-hidden="true" focusable="false">{"".join(lines)}</svg>')


def _numbers(rows: Iterable[Row | None]) -> list[float]:
    return [row[name] for row in rows if row is not None for name in NAMES if row.get(name) is not None]


def _line(x: Mapping[str, str], top: int) -> list[str]:
    middle = top + HEIGHT // 2
    parts = []
    if "null" in x:
        parts.append(f'<path class="null" d="M{x["null"]} {top + 1}v{HEIGHT - 2}"/>')
    if "low" in x and "high" in x:
        parts.append(f'<path class="range" d="M{x["low"]} {middle}H{x["high"]}"/>')
    if "estimate" in x:
        parts.append(f'<circle cx="{x["estimate"]}" cy="{middle}" r="3.5"/>')
    return parts
