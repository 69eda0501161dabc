"""Charts: panels of layers on two axes, with legend, caption and alternative text; declared first, then drawn once.

A layer is a function that draws on axes: a line, a band, bars, a histogram, or a drawing for one figure. A panel
draws its layers in order and then sets its axes. Boxes are in inches from the lower left corner of the figure.
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
Look = Mapping[str, Any]  # matplotlib's properties of a line
Listing = tuple[float, Sequence[tuple[str, legend.Series, str]], str]  # inches, entries and their heading
MARKED = 15  # points of a curve up to which each has a mark


@dataclass(frozen=True)
class Figure:
    """One figure of a page; `name` is also the stem of its file.

    `svg` is a complete `<svg>` element in the colours of `dashboards.drawing`, which a page may replace. `alt`
    describes the figure as text with its main numbers; `caption` explains how to read it: n, units, null value.
    """

    name: str
    title: str
    caption: str
    alt: str
    svg: str


@dataclass(frozen=True)
class Axis:
    """An axis of a panel: its label, its ends, and its ticks.

    There are at most `max_ticks` round ticks (None: matplotlib's default), integers if `integer_ticks`; or the
    labelled ticks of `ticks`. A logarithmic x axis needs, in `log`, the values that it must contain.
    """

    label: str = ""
    limits: tuple[float, float] | None = None
    max_ticks: int | None = 5
    integer_ticks: bool = False
    ticks: tuple[ArrayLike, Sequence[str]] | None = None
    has_grid: bool = True  # of an axis across
    has_tick_labels: bool = True
    log: Sequence[float] | None = None


@dataclass(frozen=True)
class Panel:
    """Layers, drawn in order on their axes. `finish` sets properties that `Axis` does not cover."""

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
    """One of several stacked panels; `x` is its own x axis, None if all panels share one."""

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
    """Stacked panels, the first one at the top; a shared axis `x` is labelled only below the lowest panel.

    Each panel takes `height` inches, of which `gap` are free, and `foot` inches are below the lowest panel.
    The margins are the inches to the left and to the right of all panels.
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
    """Panels in a figure of `height` inches, below their legend; `listing` is a legend with values below the panels."""

    name: str
    title: str
    caption: str
    alt: str
    height: float
    panels: Sequence[Panel]
    legend: Sequence[Artist] = ()
    columns: int = 2
    listing: Listing | None = None
    notes: Sequence[tuple[float, float, str, Look]] = ()  # texts at shares of width and height

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
    """Estimates and intervals at ascending positions; NaN if missing. All arrays have shape (places,)."""

    places: NDArray[Any]
    value: Array
    low: Array
    high: Array
    n: int = field(default=0, kw_only=True)  # sample size; 0 if unknown

    def describe(self, index: int = -1) -> str:
        """The estimate at one position and its interval, as text."""
        ends = drawing.format_interval(float(self.low[index]), float(self.high[index]))
        return f"{drawing.format_number(float(self.value[index]))}{ends}"

    @property
    def has_interval(self) -> NDArray[np.bool_]:
        """Whether each position has an interval."""
        return ~np.isnan(self.low) & ~np.isnan(self.high)


def curve(
    estimates: Curve, series: legend.Series, width: float = 1.5, alpha: float = 0.15, marked: int = MARKED
) -> Layer:
    """The estimates as a line over the band of their intervals; a single estimate over a bar."""
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
    """A line, marks or both, with matplotlib's properties of a line."""
    return lambda axes: axes.plot(x, y, color=drawing.light(colour), **look)


def marks(x: ArrayLike, y: ArrayLike, colour: str, marker: str, size: float, **look: Any) -> Layer:
    """Marks without a line."""
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
    """A bar from low to high at each place, upright or `level`, as one path."""
    x, y = drawing.segment_path(places, low, high)
    return line(*((y, x) if level else (x, y)), colour, linewidth=width, solid_capstyle="butt", **look)


def estimate_marks(
    places: ArrayLike, rows: Sequence[Row], colour: str, width: float = 1.8, level: bool = False, **look: Any
) -> Layer:
    """Estimates and intervals of summary rows at these positions; with `level`, at these heights."""
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
    """The area between two lines, without an edge."""
    return lambda axes: axes.fill_between(x, low, high, color=drawing.light(colour), linewidth=0, **look)


def level(y: float, look: Look = drawing.NULL) -> Layer:
    """A horizontal line across the panel; by default in the style of the null value."""
    return lambda axes: axes.axhline(y, **look)


def upright(x: float, look: Look = drawing.NULL) -> Layer:
    """A vertical line across the panel; by default in the style of the null value."""
    return lambda axes: axes.axvline(x, **look)


def span(low: float, high: float, colour: str, across: bool = False) -> Layer:
    """A background band between two values of the x axis, or with `across` of the y axis."""
    look: Look = {"color": drawing.light(colour), "linewidth": 0, "zorder": 0}
    return lambda axes: (axes.axhspan if across else axes.axvspan)(low, high, **look)


def annotation(
    words: str, point: tuple[float, float], offset: tuple[float, float] = (0, 0), system: Any = "data", **look: Any
) -> Layer:
    """Text at a point of one of matplotlib's coordinate systems, shifted by `offset` typographic points."""
    defaults: dict[str, Any] = {"xycoords": system, "textcoords": "offset points", "fontsize": drawing.TEXT - 1}
    return lambda axes: axes.annotate(words, point, offset, **defaults | look)


def histogram(counts: ArrayLike, edges: ArrayLike, colour: str, width: float = 1.2) -> Layer:
    """Counts in bins: filled with the band of the colour, below a line of the colour itself."""

    def draw(axes: Axes) -> None:
        axes.stairs(counts, edges, fill=True, color=drawing.light(f"{colour}-band"))
        axes.stairs(counts, edges, color=drawing.light(colour), linewidth=width)

    return draw


def cdf(values: Array, low: float, high: float) -> tuple[Array, Array]:
    """The empirical distribution of sorted values as a path in steps, from one end of an axis to the other."""
    shares = np.arange(1, len(values) + 1) / len(values)
    x = np.concatenate([[low], values.repeat(2), [high]])
    return x, np.concatenate([[0.0, 0.0], shares.repeat(2)[:-1], [1.0]])


def row_panel(rows: Rows, layers: Sequence[Layer], x_axis: Axis, margin: float = 0.6) -> Panel:
    """A panel with a row for each name, and a margin, in rows, beyond the outermost rows."""
    return Panel(
        rows.box,
        layers,
        x=x_axis,
        y=Axis(limits=(-margin, len(rows.names) - 1 + margin)),
        finish=(row_names(rows.y, rows.names), drawing.hide_y_axis),
    )


def row_names(y: ArrayLike, names: Sequence[str]) -> Layer:
    """The names of rows as tick labels at these heights."""
    return lambda axes: axes.set_yticks(y, names, color=drawing.light("ink"))
