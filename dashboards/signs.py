"""Inline graphics: answer signs, and estimates with interval and null value.

Each common answer has its own colour and shape. Other answers use the colour and shape of their tone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from tasks.contract.verdict import BELOW_RELEVANT_SIZE, Meaning

SIZE = 14
ROUND = 'cx="7" cy="7" r="5"'
DIAMOND = 'd="M7 1.2 12.8 7 7 12.8 1.2 7z"'
SQUARE = 'x="2" y="2" width="10" height="10"'
# Maps an answer, or the tone of any other answer, to its shape. Shapes are hollow if the answer clears the model.
SHAPES = {
    "memorised": f"<circle {ROUND}/>",
    "not forgotten": f"<path {DIAMOND}/>",
    "not detected": f'<circle class="hollow" {ROUND}/>',
    "forgotten": f'<path class="hollow" {DIAMOND}/>',
    BELOW_RELEVANT_SIZE: f'<circle class="hollow" {ROUND}/><circle cx="7" cy="7" r="2"/>',
    "undecided": f'<circle class="hollow" {ROUND}/><path d="M7 2a5 5 0 0 1 0 10z"/>',
    "not assessable": f'<circle class="hollow" {ROUND}/><path class="hollow" d="M3.5 10.5 10.5 3.5"/>',
    "accused": f"<rect {SQUARE}/>",
    "cleared": f'<rect class="hollow" {SQUARE}/>',
    "open": f'<rect class="hollow" {SQUARE}/><path d="M7 2h5v10H7z"/>',
}
# Size of a drawn estimate.
WIDTH = 96
HEIGHT = 16
MARGIN = 6
SPARK_HEIGHT = 28
SPARK_MARGIN = 3
CROWDED = 16  # estimates in a row, above which their marks are smaller
NAMES = ("low", "estimate", "high", "null")  # values drawn for an estimate
Row = Mapping[str, Any]


def kind(answer: str, tone: str) -> str:
    """Return the CSS class for this answer, such as `not-detected`."""
    return re.sub(r"\W+", "-", answer if answer in SHAPES else tone)


def sign(answer: str, tone: str) -> Markup:
    """Render the sign as `<svg>`. Screen readers skip it because the answer follows as text."""
    shape = SHAPES.get(answer) or SHAPES.get(tone, SHAPES["open"])
    # Contains only our own markup, no outside text.
    size = f'width="{SIZE}" height="{SIZE}" viewBox="0 0 {SIZE} {SIZE}"'
    return Markup(f'<svg class="sign" {size} aria-hidden="true" focusable="false">{shape}</svg>')


def badge(answer: str, meaning: Meaning) -> Markup:
    """Render the answer and sign in the answer's colour. The title is the audit's definition of the answer."""
    return Markup('<span class="badge {}" title="{}">{} {}</span>').format(
        kind(answer, meaning.tone), meaning.words, sign(answer, meaning.tone), answer
    )


def glyph(*rows: Row | None, neighbours: Sequence[Row] = ()) -> Markup:
    """Draw rows below one another on a common scale that also leaves room for the rows in `neighbours`.

    Returns empty markup if the rows have fewer than two distinct numbers. Screen readers skip the drawing because the
    numbers are in the table.
    """
    if len(set(_numbers(rows))) < 2:
        return Markup("")
    values = _numbers([*rows, *neighbours])
    minimum = min(values)
    unit = (WIDTH - 2 * MARGIN) / (max(values) - min(values))
    lines = []
    for index, row in enumerate(rows):
        numbers = {name: row[name] for name in NAMES if row is not None and _is_number(row.get(name))}
        lines += _line(
            {name: f"{MARGIN + (value - minimum) * unit:.1f}" for name, value in numbers.items()}, HEIGHT * index
        )
    # Contains only numbers and our own words, nothing from outside.
    height = HEIGHT * len(rows)
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    return Markup(f'<svg class="glyph" {size} aria-hidden="true" focusable="false">{"".join(lines)}</svg>')


def extreme_rows(rows: Iterable[Row]) -> list[Row]:
    """Return two rows that span the scale of all these rows."""
    values = _numbers(rows)
    return [{"estimate": min(values)}, {"estimate": max(values)}] if values else []


def sparkline(rows: Sequence[Row]) -> Markup:
    """Draw the estimates of these rows from left to right, with their intervals and null values.

    Returns empty markup if they have fewer than two distinct numbers. Screen readers skip the drawing, as for `glyph`.
    """
    values = _numbers(rows)
    if len(set(values)) < 2:
        return Markup("")
    maximum = max(values)
    unit = (SPARK_HEIGHT - 2 * SPARK_MARGIN) / (maximum - min(values))
    step = (WIDTH - 2 * MARGIN) / max(1, len(rows) - 1)
    parts = []
    for index, row in enumerate(rows):
        y = {name: f"{SPARK_MARGIN + (maximum - row[name]) * unit:.1f}" for name in NAMES if _is_number(row.get(name))}
        x = f"{MARGIN + index * step:.1f}" if len(rows) > 1 else f"{WIDTH / 2}"
        if "null" in y:
            parts.append(f'<path class="null" d="M{float(x) - step / 2:.1f} {y["null"]}h{step:.1f}"/>')
        if "low" in y and "high" in y:
            parts.append(f'<path class="range" d="M{x} {y["low"]}V{y["high"]}"/>')
        if "estimate" in y:
            parts.append(f'<circle cx="{x}" cy="{y["estimate"]}" r="{2.5 if len(rows) <= CROWDED else 1.5}"/>')
    # Contains only numbers and our own words, nothing from outside.
    size = f'width="{WIDTH}" height="{SPARK_HEIGHT}" viewBox="0 0 {WIDTH} {SPARK_HEIGHT}"'
    return Markup(f'<svg class="glyph" {size} aria-hidden="true" focusable="false">{"".join(parts)}</svg>')


def _is_number(value: Any) -> bool:
    return value is not None and math.isfinite(value)


def _numbers(rows: Iterable[Row | None]) -> list[float]:
    numbers = []
    for row in rows:
        if row is not None:
            for name in NAMES:
                if _is_number(row.get(name)):
                    numbers.append(row[name])
    return numbers


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
