"""Compares the cells of a sweep: scores, learning curves and losses, as in figure 4."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dashboards import drawing, layout, legend
from dashboards.audits.density.curves import MARKED, epoch_axis, loss_limits, read_losses
from dashboards.audits.density.observations import SCORES, Observations, Statistics, robust_limits
from dashboards.audits.density.strips import Strip, draw_strips, strip
from dashboards.chart import (
    Array,
    Axis,
    Chart,
    Curve,
    Facet,
    Figure,
    Layer,
    Panel,
    curve,
    facet_panels,
    level,
    line,
    upright,
)
from dashboards.run import Run
from dashboards.summary import format_range, shorten
from dashboards.sweep import LINES, name_cells
from tasks.audits.density.highly_memorised import HIGH

BINS = 60
# Panel heights in inches.
PANEL = 1.6
LOSSES = 2.4
# Statistics drawn by epoch: (score, statistic) and name.
FOLLOWED = {
    ("published", "quantile 0.999"): "99.9 % quantile of M as published",
    ("published", "quantile 0.95"): "95 % quantile of M as published",
    ("matched", "quantile 0.95"): "95 % quantile of M, matched counts",
}


@dataclass(frozen=True)
class Cell:
    """A cell named by its setting. Its style depends on its index and is the same in every figure."""

    name: str
    run: Run
    index: int

    @cached_property
    def scores(self) -> dict[str, Array]:
        """The defined values of each score."""
        return Observations(self.run.table("scores")).known_scores

    @property
    def look(self) -> tuple[str, str, Any]:
        return drawing.SERIES[self.index]


def compare_cells(run: Run) -> Iterable[Figure | None]:
    """Return figures that compare the cells. If there are too many cells for lines, only their spreads are compared."""
    setting, names, _ = name_cells(run)
    cells = [Cell(name, cell, index) for index, (name, cell) in enumerate(zip(names, run.cells, strict=False))]
    if not cells:
        return ()
    if len(cells) > LINES:
        return (_compare_spreads(cells, setting),)
    return _compare_densities(cells, setting), _compare_learning_curves(cells, setting), _compare_losses(cells, setting)


def _compare_densities(cells: list[Cell], setting: str) -> Figure | None:
    """Draw one line per cell: the score distribution and its 95 % quantile, as in figure 4c."""
    cells_with_scores = [cell for cell in cells if cell.scores]
    if len(cells_with_scores) < 2:
        return None
    all_scores = [values for cell in cells_with_scores for values in cell.scores.values()]
    limits = robust_limits(all_scores, [0.0])
    caption = (
        f"The share of observations in each of {BINS} bins of M; the vertical stroke with a mark is a "
        f"cell's {HIGH:.0%} quantile. Dashed: 0. n: {format_range([len(values) for values in all_scores])} "
        f"observations of each cell; no intervals.{_describe_cut(all_scores, limits)}"
    )
    existing_scores = {score for cell in cells_with_scores for score in cell.scores}
    scores = [score for score in SCORES if score in existing_scores]
    edges = np.linspace(*limits, BINS + 1)
    facets = []
    for score in scores:
        lines = [_draw_density(cell, cell.scores[score], edges) for cell in cells_with_scores if score in cell.scores]
        y_axis = Axis("share per nat", max_ticks=4)
        lifted = [lambda axes: axes.set_ylim(bottom=0)]
        facets.append(Facet([upright(0), *lines], SCORES[score], y_axis, finish=lifted))
    panels = facet_panels(facets, PANEL, Axis("nats", limits, 6))
    alt = " ".join(strip.describe() for strip in _cell_strips(cells_with_scores))
    return _cell_chart(
        "densities", f"How do the scores change with {setting}?", caption, alt, cells_with_scores, panels
    )


def _describe_cut(all_scores: list[Array], limits: tuple[float, float]) -> str:
    """Describe the scores beyond the axis. Returns an empty string if there are none."""
    outside = []
    for values in all_scores:
        outside.append(values[(values < limits[0]) | (values > limits[1])])
    max_count = max(map(len, outside))
    far = np.concatenate(outside)
    if not len(far):
        return ""
    return (
        f" The axis is cut: outside it are at most {max_count:,} scores of a "
        f"cell, from {drawing.format_number(float(far.min()))} "
        f"to {drawing.format_number(float(far.max()))}."
    )


def _draw_density(cell: Cell, values: Array, edges: Array) -> Layer:
    """Draw the density and the 95 % quantile of a cell's scores."""
    colour, marker, dash = cell.look
    heights = np.histogram(values, edges)[0] / len(values) / (edges[1] - edges[0])
    high = float(np.quantile(values, HIGH))

    def draw(axes: Any) -> None:
        line((edges[1:] + edges[:-1]) / 2, heights, colour, linestyle=dash, linewidth=1.5)(axes)
        top = 0.12 * max(float(heights.max()), axes.get_ylim()[1])
        line([high, high], [0, top], colour, linewidth=1.5)(axes)
        line([high], [top], colour, marker=marker, markersize=6, linestyle="none", linewidth=1.5)(axes)

    return draw


CellCurves = dict[str, list[tuple[Cell, Curve]]]  # statistic name -> cells that have it


def _compare_learning_curves(cells: list[Cell], setting: str) -> Figure | None:
    """Draw high quantiles of the scores by epoch, with one line per cell (figure 4b)."""
    statistics = [Statistics(cell.run.table("distribution")) for cell in cells]
    curves: CellCurves = {}
    for (score, statistic), name in FOLLOWED.items():
        of_cells = (
            (cell, cell_statistics.curve(score, statistic))
            for cell, cell_statistics in zip(cells, statistics, strict=True)
        )
        cells_with_curve = []
        for cell, course in of_cells:
            if course is not None:
                cells_with_curve.append((cell, course))
        if len(cells_with_curve) > 1 and max(len(course.places) for _, course in cells_with_curve) > 1:
            curves[name] = cells_with_curve
    if not curves:
        return None
    repetitions = format_range([course.n for of_name in curves.values() for _, course in of_name])
    caption = (
        "Statistics over all observations, after the evaluated epochs. Shade: 95 % intervals by the "
        f"jackknife; n: {repetitions} repetitions of each cell. Dashed: 0."
    )
    descriptions = []
    for name, of_name in curves.items():
        words = ", ".join(f"{cell.name} {course.describe()}" for cell, course in of_name)
        descriptions.append(f"{name} after epoch {of_name[0][1].places[-1]}: {words}.")
    alt = " ".join(descriptions)
    indices_with_curves = {cell.index for of_name in curves.values() for cell, _ in of_name}
    cells_with_curves = [cell for cell in cells if cell.index in indices_with_curves]
    facets = []
    for name, of_name in curves.items():
        lines = [curve(course, cell.look, marked=MARKED) for cell, course in of_name]
        facets.append(Facet([level(0), *lines], f"{name}, nats"))
    epochs = epoch_axis(course for of_name in curves.values() for _, course in of_name)
    panels = facet_panels(facets, PANEL, epochs)
    return _cell_chart(
        "courses", f"When do models begin to memorise, by {setting}?", caption, alt, cells_with_curves, panels
    )


CellLosses = list[tuple[Cell, dict[str, Curve]]]  # cells and their losses by split


def _compare_losses(cells: list[Cell], setting: str) -> Figure | None:
    """Draw training and test loss by epoch (figure 4a).

    They come from models trained without a fold or from the model trained on all data.
    """
    cells_with_losses: CellLosses = []
    for cell in cells:
        by_kind = read_losses(cell.run.table("losses"))
        models = "whole"
        if ("folds", "test") in by_kind:
            models = "folds"
        if {(models, "train"), (models, "test")} <= set(by_kind):
            cells_with_losses.append((cell, {split: by_kind[models, split] for split in ("test", "train")}))
    if len(cells_with_losses) < 2:
        return None
    all_losses = [loss for _, of_cell in cells_with_losses for loss in of_cell.values()]
    caption = (
        "Thick: the loss on the test split; thin: on training images during the epoch. Nats per "
        f"image, the mean of {format_range([loss.n for loss in all_losses])} trainings of each cell; their intervals "
        "are in the table of losses. Losses of the first epochs may exceed the axis."
    )
    alt = " ".join(
        f"{cell.name} after epoch {of_cell['test'].places[-1]}: test "
        f"{drawing.format_number(float(of_cell['test'].value[-1]))}, train "
        f"{drawing.format_number(float(of_cell['train'].value[-1]))}, gap "
        f"{drawing.format_number(float(of_cell['test'].value[-1] - of_cell['train'].value[-1]))}."
        for cell, of_cell in cells_with_losses
    )
    lines = [
        line(of_cell[split].places, of_cell[split].value, cell.look[0], linewidth=width, linestyle=cell.look[2])
        for cell, of_cell in cells_with_losses
        for split, width in (("test", 2.2), ("train", 0.9))
    ]
    y_axis = Axis("loss, nats per image", loss_limits(all_losses))
    panels = facet_panels([Facet(lines, "thick: test split; thin: trained on", y_axis)], LOSSES, epoch_axis(all_losses))
    plotted_cells = [cell for cell, _ in cells_with_losses]
    return _cell_chart("losses", f"Do the losses diverge, by {setting}?", caption, alt, plotted_cells, panels, LOSSES)


def _compare_spreads(cells: list[Cell], setting: str) -> Figure | None:
    """Draw one row per cell when there are too many cells for lines."""
    rows = _cell_strips(cells)
    if len(rows) < 2:
        return None
    drawn_rows = rows[: layout.MOST]
    rest = ""
    if len(rows) > len(drawn_rows):
        rest = f" The first {len(drawn_rows)} of {len(rows)} cells."
    caption = (
        "A row is a cell. Mark: the median over its observations; line: their central 90 %, from the 5 % to the 95 % "
        f"quantile. Dashed: 0. No intervals.{rest}"
    )
    return draw_strips(drawn_rows, "densities", f"How do the scores change with {setting}?", caption)


def _cell_strips(cells: list[Cell]) -> list[Strip]:
    """Return the strips of the cells that have scores."""
    rows = (strip(cell.name, cell.scores) for cell in cells)
    return [row for row in rows if row is not None]


def _cell_chart(
    name: str, title: str, caption: str, alt: str, cells: Sequence[Cell], panels: Sequence[Panel], step: float = PANEL
) -> Figure:
    """Draw panels below the legend of cells, with `step` inches from one panel to the next."""
    legend_columns = legend.columns([cell.name for cell in cells])
    entries = []
    for cell in cells:
        entries.append(
            legend.series_entry(shorten(cell.name, 2 * legend.ENTRY), cell.look, linewidth=1.5, markersize=5)
        )
    height = step * len(panels) + legend.height(len(cells), legend_columns) + 0.4
    return Chart(name, title, caption, alt, height, panels, entries, legend_columns).figure()
