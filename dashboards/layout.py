"""Axes positions in a figure: one full-width panel, stacked panels, or named rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dashboards import drawing
from dashboards.summary import fit_words

Box = tuple[float, float, float, float]  # left, bottom, width and height in inches from the figure's lower left corner
# Inches to the left and right of the axes.
LEFT = 0.75
RIGHT = 0.2
LETTERS = 24  # letters in a row name
MOST = 40  # rows in one figure


def wide_box(bottom: float, height: float, margins: tuple[float, float] = (LEFT, RIGHT)) -> Box:
    """Return the box for a full-width panel."""
    left, right = margins
    return left, bottom, drawing.WIDTH - (left + right), height


def stack(
    count: int, panel: float, gap: float = 0.4, foot: float = 0.5, margins: tuple[float, float] = (LEFT, RIGHT)
) -> list[Box]:
    """Return stacked boxes from top to bottom. Each is `panel` inches high, including a gap of `gap` inches."""
    result = []
    for index in range(count):
        result.append(wide_box(foot + panel * (count - 1 - index), panel - gap, margins))
    return result


@dataclass(frozen=True)
class Rows:
    """Named rows from top to bottom: shortened names, y positions, and the box that contains them."""

    names: Sequence[str]
    y: NDArray[np.int64]
    box: Box
    height: float  # inches of the figure


def rows(names: Sequence[str], above: float, right: float = RIGHT) -> Rows:
    """Lay out one row per name, leaving `above` inches above the rows."""
    short = [fit_words(name.split(", "), LETTERS) for name in names]
    left = 0.25 + 0.085 * max(map(len, short))
    step = 0.22
    if len(names) <= 16:
        step = 0.3
    box = (left, 0.5, drawing.WIDTH - left - right, step * len(names))
    return Rows(short, np.arange(len(names), dtype=np.int64)[::-1], box, step * len(names) + 0.5 + above)


def left_out_note(shown_count: int, total: int, things: str) -> str:
    """Return a note about rows that the figure omits. Returns an empty string if all rows are drawn."""
    if total > shown_count:
        return f" The figure shows the first {shown_count} of {total} {things}."
    return ""
