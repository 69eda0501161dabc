"""Charts: panels with layers on two axes, plus legend, caption and alternative text.

A chart is declared first and drawn once. A layer is a function that draws on axes: a line, a band, bars, a histogram,
or a drawing for one figure. A panel draws its layers in order and then sets its axes. Boxes are in inches from the
lower left corner of the figure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dashboards import drawing, layout, legend
from dashboards.layout import Box, Rows
from dashboards.summary import Row

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

Array = NDArray[np.float64]
Layer = Callable[["Axes"], object]
Look = Mapping[str, Any]  # line properties, as in matplotlib
# Height in inches, entries, and the heading above the values.
Listing = tuple[float, Sequence[tuple[str, legend.Series, str]], str]
MARKED = 15  # longest curve, in points, on which every point gets a marker


@dataclass(frozen=True)
class Figure:
    """One figure on a page. `name` is also the stem of its file name.

    `svg` is a complete `<svg>` element in the colours of `dashboards.drawing`, which a page may replace. `alt`
    describes the figure and states the main numbers; `caption` explains how to read it: sample size, units, null value.
    """

    name: str
    title: str
    caption: str
    alt: str
    svg: str


@dataclass(frozen=True)
class Axis:
    """One axis of a panel: label, limits and ticks.

    Without `ticks`, the axis has at most `max_ticks` round ticks (None: matplotlib's default), restricted to integers
    if `integer_ticks` is set. `ticks` gives explicit positions and labels instead. For a logarithmic x axis, `log`
    lists the values that the axis must contain.
    """

    label: str = ""
    limits: tuple[float, float] | None = None
    max_ticks: int | None = 5
    integer_ticks: bool = False
    ticks: tuple[ArrayLike, Sequence[str]] | None = None
    has_grid: bool = True  # applies to x axes only
    has_tick_labels: bool = True
    log: Sequence[float] | None = None


@dataclass(frozen=True)
class Panel:
    """Layers drawn in order on one pair of axes. `finish` sets properties that `Axis` does not cover."""

    box: Box
    layers: Sequence[Layer]
    x: Axis = Axis()
    y: Axis = Axis()
    title: str = ""
    title_size: float = drawing.TEXT
    finish: Sequence[Layer] = ()

    def draw(self, figure: Any) -> None:
        axes = drawing.add_axes(figure, *self.box)
        for layer in self.layers:
            layer(axes)
        if self.title:
            axes.set_title(self.title, fontsize=self.title_size)
        drawing.set_ticks(axes, self.x.max_ticks, self.y.max_ticks, self.x.integer_ticks)
        if self.x.log is not None:
            drawing.set_log_x_axis(axes, self.x.log)
        if self.y.log is not None:
            drawing.set_log_y_axis(axes)
        for name, axis in (("x", self.x), ("y", self.y)):
            if axis.limits is not None:
                getattr(axes, f"set_{name}lim")(*axis.limits)
            if axis.ticks is not None:
                getattr(axes, f"set_{name}ticks")(*axis.ticks)
            if axis.label:
                getattr(axes, f"set_{name}label")(axis.label)
        if not self.x.has_grid:
            axes.grid(axis="x", visible=False)
        axes.tick_params(labelbottom=self.x.has_tick_labels, labelleft=self.y.has_tick_labels)
        for layer in self.finish:
            layer(axes)


@dataclass(frozen=True)
class Facet:
    """One panel in a vertical stack. `x` is its own x axis, or None if all panels share one."""

    layers: Sequence[Layer]
    title: str = ""
    y: Axis = Axis(max_ticks=4)
    x: Axis | None = None
    finish: Sequence[Layer] = ()


def facet_panels(
    facets: Sequence[Facet],
    height: float,
    x: Axis | None = None,
    gap: float = 0.4,
    foot: float = 0.5,
    margins: tuple[float, float] = (layout.LEFT, layout.RIGHT),
) -> list[Panel]:
    """Stack panels vertically, starting at the top. A shared axis `x` is labelled only below the lowest panel.

    Each panel takes `height` inches, including a gap of `gap` inches. `foot` inches remain below the lowest panel. The
    margins are the inches to the left and right of all panels.
    """
    panels = []
    for index, (facet, box) in enumerate(
        zip(facets, layout.stack(len(facets), height, gap, foot, margins), strict=True)
    ):
        x_axis = facet.x or x or Axis()
        if facet.x is None and index < len(facets) - 1:
            x_axis = replace(x_axis, label="", has_tick_labels=False)
        panels.append(Panel(box, facet.layers, x_axis, facet.y, facet.title, finish=facet.finish))
    return panels


@dataclass(frozen=True)
class Chart:
    """A figure of `height` inches: a legend above the panels, and optionally a `listing` below them.

    The listing is a legend with a value next to each entry.
    """

    name: str
    title: str
    caption: str
    alt: str
    height: float
    panels: Sequence[Panel]
    legend: Sequence[Artist] = ()
    columns: int = 2
    listing: Listing | None = None
    # X, y, text and style; x and y are fractions of the width and height.
    notes: Sequence[tuple[float, float, str, Look]] = ()

    def figure(self) -> Figure:
        """Draw the chart."""
        canvas = drawing.canvas(self.height)
        for panel in self.panels:
            panel.draw(canvas)
        for x, y, text, look in self.notes:
            canvas.text(x, y, text, **look)
        if self.listing is not None:
            legend.add_below(canvas, *self.listing)
        if self.legend:
            legend.add_above(canvas, self.legend, self.columns)
        return Figure(self.name, self.title, self.caption, self.alt, drawing.svg(canvas, self.name))


@dataclass(frozen=True)
class Curve:
    """Estimates and intervals at ascending positions. All arrays have shape (places,); missing values are NaN."""

    places: NDArray[Any]
    value: Array
    low: Array
    high: Array
    n: int = field(default=0, kw_only=True)  # sample size; 0 if unknown

    def describe(self, index: int = -1) -> str:
        """Format the estimate and interval at one position."""
        ends = drawing.format_interval(float(self.low[index]), float(self.high[index]))
        return f"{drawing.format_number(float(self.value[index]))}{ends}"

    @property
    def has_interval(self) -> NDArray[np.bool_]:
        """Mask of the positions that have an interval."""
        return ~np.isnan(self.low) & ~np.isnan(self.high)


def curve(
    estimates: Curve, series: legend.Series, width: float = 1.5, alpha: float = 0.15, marked: int = MARKED
) -> Layer:
    """Draw the estimates as a line over a band of their intervals. A single estimate gets an error bar instead."""
    colour, marker, dash = series
    has_interval = estimates.has_interval
    size = 0.0
    if len(estimates.places) <= marked:
        size = 4.5
    ends = (estimates.places[has_interval], estimates.low[has_interval], estimates.high[has_interval])

    def draw(axes: Axes) -> None:
        if len(estimates.places) > 1 and alpha and has_interval.any():
            axes.fill_between(*ends, alpha=alpha, linewidth=0, color=drawing.light(colour))
        elif alpha and has_interval.any():
            intervals(*ends, colour)(axes)
        line(
            estimates.places, estimates.value, colour, marker=marker, markersize=size, linestyle=dash, linewidth=width
        )(axes)

    return draw


def line(x: ArrayLike, y: ArrayLike, colour: str, **look: Any) -> Layer:
    """Draw a line, markers or both. Extra arguments are matplotlib line properties."""
    return lambda axes: axes.plot(x, y, color=drawing.light(colour), **look)


def marks(x: ArrayLike, y: ArrayLike, colour: str, marker: str, size: float, **look: Any) -> Layer:
    """Draw markers without a line."""
    return line(x, y, colour, **{"marker": marker, "markersize": size, "linestyle": "none"} | look)


def intervals(
    places: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    colour: str,
    width: float = 1.8,
    level: bool = False,
    **look: Any,
) -> Layer:
    """Draw a bar from low to high at each position, vertical or (with `level`) horizontal, as a single path."""
    x, y = drawing.segment_path(places, low, high)
    return line(*((y, x) if level else (x, y)), colour, linewidth=width, solid_capstyle="butt", **look)


def estimate_marks(
    places: ArrayLike, rows: Sequence[Row], colour: str, width: float = 1.8, level: bool = False, **look: Any
) -> Layer:
    """Draw the estimates and intervals of summary rows at these x positions, or with `level` at these y positions."""
    positions = np.asarray(places, np.float64)
    value = np.array([row["estimate"] for row in rows], np.float64)
    low = np.array([row["low"] for row in rows], np.float64)
    high = np.array([row["high"] for row in rows], np.float64)
    has_interval = np.isfinite([low, high]).all(axis=0)

    def draw(axes: Axes) -> None:
        if has_interval.any():
            intervals(positions[has_interval], low[has_interval], high[has_interval], colour, width, level)(axes)
        line(*((value, positions) if level else (positions, value)), colour, **look)(axes)

    return draw


def area(x: ArrayLike, low: ArrayLike, high: ArrayLike, colour: str, **look: Any) -> Layer:
    """Fill the area between two lines, without an edge."""
    return lambda axes: axes.fill_between(x, low, high, color=drawing.light(colour), linewidth=0, **look)


def level(y: float, look: Look = drawing.NULL) -> Layer:
    """Draw a horizontal line across the panel, by default in the null-value style."""
    return lambda axes: axes.axhline(y, **look)


def upright(x: float, look: Look = drawing.NULL) -> Layer:
    """Draw a vertical line across the panel, by default in the null-value style."""
    return lambda axes: axes.axvline(x, **look)


def span(low: float, high: float, colour: str, across: bool = False) -> Layer:
    """Shade a background band between two x values, or with `across` between two y values."""
    look: Look = {"color": drawing.light(colour), "linewidth": 0, "zorder": 0}
    return lambda axes: (axes.axhspan if across else axes.axvspan)(low, high, **look)


def annotation(
    words: str, point: tuple[float, float], offset: tuple[float, float] = (0, 0), system: Any = "data", **look: Any
) -> Layer:
    """Place text at a point in one of matplotlib's coordinate systems, shifted by `offset` typographic points."""
    defaults: dict[str, Any] = {"xycoords": system, "textcoords": "offset points", "fontsize": drawing.TEXT - 1}
    return lambda axes: axes.annotate(words, point, offset, **defaults | look)


def histogram(counts: ArrayLike, edges: ArrayLike, colour: str, width: float = 1.2) -> Layer:
    """Draw binned counts, filled with the colour's band shade and outlined in the colour itself."""

    def draw(axes: Axes) -> None:
        axes.stairs(counts, edges, fill=True, color=drawing.light(f"{colour}-band"))
        axes.stairs(counts, edges, color=drawing.light(colour), linewidth=width)

    return draw


def cdf(values: Array, low: float, high: float) -> tuple[Array, Array]:
    """Return the empirical distribution of sorted values as a step path from one end of the axis to the other."""
    shares = np.arange(1, len(values) + 1) / len(values)
    x = np.concatenate([[low], values.repeat(2), [high]])
    return x, np.concatenate([[0.0, 0.0], shares.repeat(2)[:-1], [1.0]])


def row_panel(rows: Rows, layers: Sequence[Layer], x_axis: Axis, margin: float = 0.6) -> Panel:
    """Return a panel with one named row per entry. `margin`, in rows, is added beyond the outermost rows."""
    return Panel(
        rows.box,
        layers,
        x=x_axis,
        y=Axis(limits=(-margin, len(rows.names) - 1 + margin)),
        finish=(row_names(rows.y, rows.names), drawing.hide_y_axis),
    )


def row_names(y: ArrayLike, names: Sequence[str]) -> Layer:
    """Label these heights with the row names."""
    return lambda axes: axes.set_yticks(y, names, color=drawing.light("ink"))
