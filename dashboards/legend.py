"""Legends of lines, marks and areas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dashboards import drawing

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

ROW = 0.27  # inches of a row above the axes
LISTED = 0.25  # inches of a row below them
ENTRY = 24  # letters of a label up to which two labels fit in a row
Series = tuple[str, str, Any]  # colour, mark and dash


def line(label: str, **look: Any) -> Artist:
    """An entry for a line, a mark or both, with matplotlib's properties of a line."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, **look)


def area(label: str, **look: Any) -> Artist:
    """An entry for a filled area, with matplotlib's properties of a patch."""
    from matplotlib.patches import Patch

    return Patch(label=label, **look)


def series(labels: Sequence[str], joined: bool = True, **look: Any) -> list[Artist]:
    """An entry for each line of `drawing.SERIES`, in that order; marks alone unless `joined`."""
    result = []
    for (colour, marker, dash), label in zip(drawing.SERIES, labels, strict=False):
        result.append(
            line(label, color=drawing.light(colour), marker=marker, linestyle=dash if joined else "none", **look)
        )
    return result


def series_entry(label: str, look: Series, **properties: Any) -> Artist:
    """An entry for a line of this colour, mark and dash."""
    colour, marker, dash = look
    return line(label, **{"color": drawing.light(colour), "marker": marker, "linestyle": dash} | properties)


def columns(labels: Sequence[str]) -> int:
    """The number of columns in which these labels fit."""
    if max(map(len, labels)) <= ENTRY:
        return 2
    return 1


def height(entries: int, column_count: int = 2) -> float:
    """The height of a legend above the axes, in inches."""
    return ROW * -(-entries // column_count)


def add_above(figure: Figure, entries: Sequence[Artist], column_count: int = 2) -> None:
    """Add the entries in the upper left corner of the figure, in `column_count` columns."""
    figure.legend(
        handles=list(entries), loc="upper left", ncols=column_count, bbox_to_anchor=(0, 1), borderaxespad=0.1,
        columnspacing=1.2,
    )  # fmt: skip


def add_below(figure: Figure, room: float, entries: Sequence[tuple[str, Series, str]], heading: str = "") -> None:
    """List label, style and value of each entry in the lowest `room` inches; `heading` is above the values."""
    axes = drawing.add_axes(figure, 0, 0, drawing.WIDTH, room)
    axes.set_axis_off()
    axes.set_xlim(0, drawing.WIDTH)
    axes.set_ylim(0, room)
    text: dict[str, Any] = {"fontsize": drawing.TEXT - 1, "va": "center"}
    right = drawing.WIDTH - 0.1
    y = room - 0.1
    if heading:
        y -= 0.1
        axes.text(right, y, heading, ha="right", color=drawing.light("muted"), **text)
        y -= LISTED
    for label, (colour, marker, dash), value in entries:
        axes.plot([0.1, 0.6], [y, y], linestyle=dash, linewidth=1.5, color=drawing.light(colour))
        axes.plot([0.35], [y], marker, markersize=6, color=drawing.light(colour))
        axes.text(0.72, y, label, **text)
        if value:
            axes.text(right, y, value, ha="right", **text)
        y -= LISTED
