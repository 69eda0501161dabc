"""Estimates with their intervals, one row each: what any audit's summary can be drawn as."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dashboards import drawing
from dashboards.figure import Figure

Row = Mapping[str, Any]

LABELS = 1.75  # inches for the rows' names
ROW = 0.2  # inches
HEAD = 0.3  # above each panel
FOOT = 0.34  # its ticks
MOST = 80  # rows in one figure


def estimates(rows: Sequence[Row]) -> Iterator[Figure]:
    """Every estimate of a summary against its null; those that a paper published too in a figure of their own."""
    there = [row for row in rows if finite(row["estimate"])]
    ours = [row for row in there if not finite(row["published"])]
    published = [row for row in there if finite(row["published"])]
    if ours:
        yield forest(ours, "estimates", "What was measured, and what would be without memory?")
    if published:
        yield forest(published, "published", "Does it repeat what was published?")


def forest(rows: Sequence[Row], name: str, title: str) -> Figure:
    """Dots with 95 % intervals, a panel with a scale of its own for each metric."""
    shown = rows[:MOST]
    panels: dict[str, list[Row]] = {}
    for row in shown:
        panels.setdefault(row["metric"], []).append(row)
    legend = 0.3
    height = legend + sum(HEAD + FOOT + ROW * len(panel) for panel in panels.values())
    figure = drawing.canvas(height)
    top = height - legend
    for metric, panel in panels.items():
        top -= HEAD + ROW * len(panel)
        axes = drawing.place(figure, LABELS, top, drawing.WIDTH - LABELS - 0.15, ROW * len(panel))
        drawn_panel(axes, metric, panel)
        top -= FOOT
    key(figure, height, any(finite(row["published"]) for row in shown))
    units = sorted({str(row["unit"]) for row in shown if row["unit"]})
    left_out = f" The first {MOST} of {len(rows)} rows are drawn." if len(rows) > MOST else ""
    caption = (
        "Dot: estimate; line: its 95 % interval; upright tick: what it is where nothing is memorised. A dot without a "
        f"line has no interval. Each metric has a scale of its own. One unit: {', '.join(units) or 'not said'}.{left_out}"
    )
    return Figure(name, title, caption, " ".join(said(row) for row in shown), drawing.svg(figure, name))


def drawn_panel(axes: Any, metric: str, rows: Sequence[Row]) -> None:
    for at, row in enumerate(rows):
        y = len(rows) - 1 - at
        if finite(row["null"]):
            axes.plot([row["null"]] * 2, [y - 0.38, y + 0.38], color=drawing.light("muted"), linewidth=1.6)
        if finite(row["low"]) and finite(row["high"]):
            axes.plot([row["low"], row["high"]], [y, y], color=drawing.light("accent"), linewidth=1.8)
        axes.plot([row["estimate"]], [y], "o", markersize=5.5, color=drawing.light("accent"))
        if finite(row["published"]):
            axes.plot([row["published"]], [y], "D", markersize=5, color=drawing.light("ink"), markerfacecolor="none")
    values = [row[name] for row in rows for name in ("estimate", "low", "high", "null", "published")]
    axes.set_xlim(*drawing.span([value for value in values if finite(value)]))
    axes.set_ylim(-0.6, len(rows) - 0.4)
    drawing.ticks(axes, across=4)
    axes.set_yticks(range(len(rows)), [label(row) for row in reversed(rows)], color=drawing.light("ink"))
    axes.tick_params(length=0)
    axes.grid(axis="y", visible=False)
    axes.set_title(metric, x=-LABELS / (drawing.WIDTH - LABELS - 0.15), pad=5, fontweight="bold")


def key(figure: Any, height: float, published: bool) -> None:
    from matplotlib.lines import Line2D

    accent, muted, ink = (drawing.light(name) for name in ("accent", "muted", "ink"))
    handles = [
        Line2D([], [], color=accent, marker="o", markersize=5.5, linewidth=1.8, label="estimate"),
        Line2D([], [], color=muted, marker="|", markersize=9, markeredgewidth=1.6, linewidth=0, label="null"),
    ]
    if published:
        handles.append(
            Line2D([], [], color=ink, marker="D", markersize=5, markerfacecolor="none", linewidth=0, label="published")
        )
    figure.legend(handles=handles, loc="upper left", ncols=3, bbox_to_anchor=(0, 1), borderaxespad=0.2)


def label(row: Row) -> str:
    """What was varied, in as few words as tell the rows of a metric apart."""
    try:
        setting = json.loads(row["setting"] or "{}")
    except ValueError:
        return str(row["setting"])
    words = [f"{name} {value}" if isinstance(value, int | float) else str(value) for name, value in setting.items()]
    return shortened(", ".join(words) or "all")


def shortened(text: str, most: int = 24) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def said(row: Row) -> str:
    """The row in words, for who cannot see it."""
    words = f"{row['metric']} ({label(row)}): {drawing.number(row['estimate'])}"
    if finite(row["low"]) and finite(row["high"]):
        words += f", {drawing.number(row['low'])} to {drawing.number(row['high'])}"
    if finite(row["null"]):
        words += f", null {drawing.number(row['null'])}"
    if finite(row["published"]):
        words += f", published {drawing.number(row['published'])}"
    return f"{words}, n {row['n']}."


def finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
