"""Draws a full-width number line with an estimate, its interval, its null value and the decision boundaries.

Positions are percentages of the width, so that letters and marks keep their size on any screen and on paper.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from orchestrator import rounding
from tasks.contract.certificate import OTHERS, Boundary, NumberLine

# Ends of the line, in per cent of the width.
LEFT = 5.0
RIGHT = 95.0
MIDDLE = 20
HEIGHT = 54
MAX_TICKS = 6


@dataclass(frozen=True)
class Entry:
    """A legend entry. `mark` selects the appearance of the mark; `words` state its value and meaning."""

    mark: str
    words: str


def number_line(line: NumberLine) -> Markup:
    """Render the line as `<svg>` and repeat the values as text for screen readers."""
    scale = Scale.from_line(line)
    parts = [*_usual(line, scale), *_axis(scale), *_rules(line, scale), *_estimate(line, scale)]
    label = f"{line.what}: {'; '.join(entry.words for entry in legend_entries(line))}"
    head = f'<svg class="line" role="img" aria-label="{escape(label)}" width="100%" height="{HEIGHT}">'
    return Markup(f"{head}{''.join(parts)}</svg>")


def legend_entries(line: NumberLine) -> list[Entry]:
    entries = [Entry("estimate", f"{_format_value(line, line.estimate)}: estimate")]
    if line.low is not None and line.high is not None:
        ends = f"{_format_value(line, line.low)} to {_format_value(line, line.high)}"
        entries.append(Entry("range", f"{ends}: its {line.coverage:.6g} % interval"))
    if line.usual is not None:
        low, high = line.usual
        entries.append(Entry("usual", f"{_format_exact(low)} to {_format_exact(high)}: {OTHERS}"))
    if line.null is not None:
        entries.append(Entry("null", f"{_format_exact(line.null)}: {line.null_words}"))
    entries += [
        Entry(_look(boundary), f"{_format_exact(boundary.value)}: {boundary.words}") for boundary in line.boundaries
    ]
    return entries


@dataclass(frozen=True)
class Scale:
    """The values at both ends of a line and the scale in between."""

    low: float
    high: float
    logarithmic: bool

    @classmethod
    def from_line(cls, line: NumberLine) -> Scale:
        """Create a scale that contains all values on the line."""
        values = [line.estimate, line.low, line.high, line.null, *(line.usual or ())]
        finite_values = [
            *(boundary.value for boundary in line.boundaries),
            *(value for value in values if value is not None),
        ]
        finite_values = [
            value for value in finite_values if math.isfinite(value) and (value > 0 or not line.logarithmic)
        ]
        low, high = min(finite_values), max(finite_values)
        if line.logarithmic:
            return cls(low / 1.25, high * 1.25, True)
        room = 0.06 * (high - low) or abs(high) or 1.0
        return cls(low - room if low else 0.0 - room, high + room, False)

    def position(self, value: float) -> float:
        """Map a value to a position in per cent of the width. Values outside the scale go to the nearer end."""
        low, high = self.low, self.high
        if self.logarithmic:
            low = math.log(max(low, 1e-300))
            high = math.log(max(high, 1e-300))
            value = math.log(max(value, 1e-300))
        share = min(1.0, max(0.0, (value - low) / (high - low)))
        return LEFT + (RIGHT - LEFT) * share

    def ticks(self) -> list[float]:
        """Return a few round values on the line."""
        if self.logarithmic:
            first = math.floor(math.log10(self.low))
            last = math.ceil(math.log10(self.high))
            for steps in ((1, 2, 5), (1,)):
                round_ones = [step * 10.0**power for power in range(first, last + 1) for step in steps]
                visible = [value for value in round_ones if self.low <= value <= self.high]
                if len(visible) <= MAX_TICKS + 2:
                    return visible
            return visible[:: -(-len(visible) // MAX_TICKS)]
        power = 10.0 ** math.floor(math.log10((self.high - self.low) / MAX_TICKS))
        step = next(tick * power for tick in (1, 2, 5, 10) if (self.high - self.low) / (tick * power) <= MAX_TICKS)
        result = []
        for index in range(math.ceil(self.low / step), math.floor(self.high / step) + 1):
            result.append(index * step)
        return result


def _axis(scale: Scale) -> Iterator[str]:
    yield f'<line class="axis" x1="{LEFT}%" x2="{RIGHT}%" y1="{MIDDLE}" y2="{MIDDLE}"/>'
    for value in scale.ticks():
        position = f"{scale.position(value):.2f}%"
        yield f'<line class="axis" x1="{position}" x2="{position}" y1="{MIDDLE}" y2="{MIDDLE + 5}"/>'
        yield f'<text x="{position}" y="{HEIGHT - 6}" text-anchor="middle">{_format_exact(value)}</text>'


def _usual(line: NumberLine, scale: Scale) -> Iterator[str]:
    if line.usual is not None:
        low, high = (scale.position(end) for end in line.usual)
        yield f'<rect class="usual" x="{low:.2f}%" width="{high - low:.2f}%" y="{MIDDLE - 10}" height="20"/>'


def _rules(line: NumberLine, scale: Scale) -> Iterator[str]:
    """Draw the boundaries and the dashed null value. A boundary at the null value ends above it."""
    if line.null is not None:
        yield _upright("null", scale.position(line.null), 5, 35)
    for boundary in line.boundaries:
        yield _upright(
            _look(boundary), scale.position(boundary.value), 1, MIDDLE if boundary.value == line.null else 39
        )


def _look(boundary: Boundary) -> str:
    if boundary.clears:
        return "boundary clears"
    return "boundary"


def _upright(name: str, position: float, top: int, bottom: int) -> str:
    return f'<line class="{name}" x1="{position:.2f}%" x2="{position:.2f}%" y1="{top}" y2="{bottom}"/>'


def _estimate(line: NumberLine, scale: Scale) -> Sequence[str]:
    elements = []
    if line.low is not None and line.high is not None:
        low, high = scale.position(line.low), scale.position(line.high)
        elements.append(f'<line class="range" x1="{low:.2f}%" x2="{high:.2f}%" y1="{MIDDLE}" y2="{MIDDLE}"/>')
    return [*elements, f'<circle class="estimate" cx="{scale.position(line.estimate):.2f}%" cy="{MIDDLE}" r="6"/>']


def _format_value(line: NumberLine, value: float) -> str:
    """Format a value at the precision of the line's interval."""
    if line.low is None and float(value).is_integer():
        return _format_exact(value)
    return rounding.format_value(value, line.low, line.high)


def _format_exact(value: float) -> str:
    """Format an exact value: integers with all digits, other numbers with four significant digits."""
    if float(value).is_integer() and abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:.4g}"
