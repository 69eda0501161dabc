"""Legends for lines, markers and areas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dashboards import drawing

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

ROW = 0.27  # inches per row above the axes
LISTED = 0.25  # inches per row below the axes
ENTRY = 24  # longest label, in letters, that lets two labels fit in one row
Series = tuple[str, str, Any]  # colour, marker and dash


def line(label: str, **look: Any) -> Artist:
    """Create an entry for a line, a marker or both. Extra arguments are matplotlib line properties."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, **look)


def area(label: str, **look: Any) -> Artist:
    """Create an entry for a filled area. Extra arguments are matplotlib patch properties."""
    from matplotlib.patches import Patch

    return Patch(label=label, **look)


def series(labels: Sequence[str], joined: bool = True, **look: Any) -> list[Artist]:
    """Create one entry per label in the order of `drawing.SERIES`. Without `joined`, entries show markers only."""
    result = []
    for (colour, marker, dash), label in zip(drawing.SERIES, labels, strict=False):
        result.append(
            line(label, color=drawing.light(colour), marker=marker, linestyle=dash if joined else "none", **look)
        )
    return result


def series_entry(label: str, look: Series, **properties: Any) -> Artist:
    """Create an entry for a line with this colour, marker and dash."""
    colour, marker, dash = look
    return line(label, **{"color": drawing.light(colour), "marker": marker, "linestyle": dash} | properties)


def columns(labels: Sequence[str]) -> int:
    """Return the number of columns in which these labels fit."""
    if max(map(len, labels)) <= ENTRY:
        return 2
    return 1


def height(entries: int, column_count: int = 2) -> float:
    """Return the height in inches of a legend above the axes."""
    return ROW * -(-entries // column_count)


def add_above(figure: Figure, entries: Sequence[Artist], column_count: int = 2) -> None:
    """Add the entries to the upper left corner of the figure, arranged in `column_count` columns."""
    figure.legend(
        handles=list(entries), loc="upper left", ncols=column_count, bbox_to_anchor=(0, 1), borderaxespad=0.1,
        columnspacing=1.2,
    )  # fmt: skip


def add_below(figure: Figure, room: float, entries: Sequence[tuple[str, Series, str]], heading: str = "") -> None:
    """List each entry's label, style and value in the lowest `room` inches. `heading` appears above the values."""
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
