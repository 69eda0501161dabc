"""A sweep's cells in one figure each of scores, courses and losses, as in figure 4."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dashboards import drawing, layout, legend
from dashboards.audits.density import kinds, strips
from dashboards.audits.density.axis_limits import robust_limits
from dashboards.audits.density.learning_curve import draw_curve
from dashboards.audits.density.losses import Loss, loss_limits, read_losses
from dashboards.audits.density.observations import Array, Observations
from dashboards.audits.density.score_statistics import Curve, Statistics
from dashboards.estimates import shorten
from dashboards.figure import Figure
from dashboards.run import Run
from dashboards.sweep import LINES, value_label, varied_fields, varied_settings
from tasks.audits.density.highly_memorised import HIGH

BINS = 60
PANEL = 1.6  # inches
# What is followed over the epochs: (score, statistic) and its name.
FOLLOWED = {
    ("published", "quantile 0.999"): "99.9 % quantile of M as published",
    ("published", "quantile 0.95"): "95 % quantile of M as published",
    ("matched", "quantile 0.95"): "95 % quantile of M, matched counts",
}


@dataclass(frozen=True)
class Cell:
    """A cell named by its setting. Its look follows from its place, the same in every figure."""

    name: str
    run: Run
    place: int

    @cached_property
    def scores(self) -> dict[str, Array]:
        """Each score of all observations that have it."""
        scores = Observations(self.run.table("scores")).scores
        return {score: values[~np.isnan(values)] for score, values in scores.items()}

    @property
    def look(self) -> tuple[str, str, Any]:
        return drawing.SERIES[self.place]


def compare_cells(run: Run) -> Iterator[Figure]:
    """Figures that compare the cells; their spreads alone if there are too many for lines."""
    settings = varied_settings(run.cells)
    varied = varied_fields(settings)
    names = [", ".join(f"{field} {value_label(setting[field])}" for field in varied) for setting in settings]
    cells = [Cell(name, cell, at) for at, (name, cell) in enumerate(zip(names, run.cells, strict=True))]
    if not varied or len(cells) < 2:
        return
    what = " and ".join(varied)
    drawn = (
        (compare_densities(cells, what), compare_learning_curves(cells, what), compare_losses(cells, what))
        if len(cells) <= LINES
        else (compare_spreads(cells, what),)
    )
    yield from (figure for figure in drawn if figure is not None)


def compare_densities(cells: list[Cell], what: str) -> Figure | None:
    """A line for each cell: how its scores are distributed, with its 95 % quantile marked: figure 4c."""
    there = [cell for cell in cells if cell.scores]
    if len(there) < 2:
        return None
    everything = [values for cell in there for values in cell.scores.values()]
    limits = robust_limits(everything, [0.0])
    sizes = sorted({len(values) for values in everything})
    n = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
    caption = (
        f"The share of observations in each of {BINS} bins of M, as a line; the upright stroke with the mark is a "
        f"cell's {HIGH:.0%} quantile. Dashed: 0. n: {n} observations of each cell; no intervals."
        f"{describe_cut(everything, limits)}"
    )
    alt = " ".join(strip.describe() for strip in cell_strips(there))
    return Figure("densities", f"How do the scores change with {what}?", caption, alt, draw_densities(there, limits))


def draw_densities(cells: list[Cell], limits: tuple[float, float]) -> str:
    """The densities as SVG, a panel for each score."""
    scores = [score for score in kinds.SCORES if any(score in cell.scores for cell in cells)]
    edges = np.linspace(*limits, BINS + 1)
    figure, panels = cell_panels(cells, len(scores))
    for axes, score in zip(panels, scores, strict=True):
        axes.set_title(kinds.SCORES[score], fontsize=drawing.TEXT)
        axes.axvline(0, **drawing.NULL)
        for cell in cells:
            if score in cell.scores:
                draw_density(axes, cell, cell.scores[score], edges)
        axes.set_xlim(*limits)
        axes.set_ylim(bottom=0)
        drawing.set_ticks(axes, 6, 4)
        axes.set_ylabel("share per nat")
    panels[-1].set_xlabel("nats")
    return drawing.svg(figure, "densities")


def describe_cut(everything: list[Array], limits: tuple[float, float]) -> str:
    """The scores beyond the axis, in words; empty where there is none."""
    beyond = [values[(values < limits[0]) | (values > limits[1])] for values in everything]
    most, far = max(map(len, beyond)), np.concatenate(beyond)
    if not len(far):
        return ""
    return (
        f" The axis is cut: beyond it lie at most {most:,} scores of a "
        f"cell, from {drawing.format_number(float(far.min()))} "
        f"to {drawing.format_number(float(far.max()))}."
    )


def draw_density(axes: Any, cell: Cell, values: Array, edges: Array) -> None:
    """The density of a cell's scores, with its 95 % quantile."""
    colour, marker, dash = cell.look
    look = {"color": drawing.light(colour), "linewidth": 1.5}
    heights = np.histogram(values, edges)[0] / len(values) / (edges[1] - edges[0])
    middles = (edges[1:] + edges[:-1]) / 2
    axes.plot(middles, heights, linestyle=dash, **look)
    high = float(np.quantile(values, HIGH))
    top = 0.12 * max(float(heights.max()), axes.get_ylim()[1])
    axes.plot([high, high], [0, top], **look)
    axes.plot([high], [top], marker, markersize=6, **look)


CellCurves = dict[str, list[tuple[Cell, Curve]]]  # what is followed -> the cells with it


def compare_learning_curves(cells: list[Cell], what: str) -> Figure | None:
    """High quantiles of the scores by epoch, a line for each cell: figure 4b."""
    statistics = [Statistics(cell.run.table("distribution")) for cell in cells]
    curves: CellCurves = {}
    for (score, statistic), name in FOLLOWED.items():
        of_cells = ((cell, of.curve(score, statistic)) for cell, of in zip(cells, statistics, strict=True))
        followed = [(cell, course) for cell, course in of_cells if course is not None]
        if len(followed) > 1 and max(len(course.epochs) for _, course in followed) > 1:
            curves[name] = followed
    if not curves:
        return None
    n = sorted({course.n for of_name in curves.values() for _, course in of_name})
    repetitions = f"{n[0]}" if len(n) == 1 else f"{n[0]} to {n[-1]}"
    caption = (
        "Over all observations, after the epochs at which the models were asked. Shade: 95 % intervals by the "
        f"jackknife; n: {repetitions} repetitions of each cell. Dashed: 0."
    )
    alt = " ".join(
        f"{name} after epoch {of_name[0][1].epochs[-1]}: "
        f"{', '.join(f'{cell.name} {course.describe()}' for cell, course in of_name)}."
        for name, of_name in curves.items()
    )
    there = [cell for cell in cells if any(cell is other for of_name in curves.values() for other, _ in of_name)]
    title = f"When do models begin to memorise, by {what}?"
    return Figure("courses", title, caption, alt, draw_learning_curves(there, curves))


def draw_learning_curves(cells: list[Cell], curves: CellCurves) -> str:
    """The courses as SVG, a panel for each quantile."""
    figure, panels = cell_panels(cells, len(curves))
    last = max(int(course.epochs[-1]) for of_name in curves.values() for _, course in of_name)
    for axes, (name, of_name) in zip(panels, curves.items(), strict=True):
        axes.set_title(f"{name}, nats", fontsize=drawing.TEXT)
        axes.axhline(0, **drawing.NULL)
        for cell, course in of_name:
            draw_curve(axes, course, *cell.look)
        axes.set_xlim(*drawing.padded_limits([0.0, float(last)], 0.03))
        drawing.set_ticks(axes, 6, 4, whole=True)
    panels[-1].set_xlabel("epoch")
    return drawing.svg(figure, "courses")


CellLosses = list[tuple[Cell, dict[str, Loss]]]  # cells, each with its losses by split


def compare_losses(cells: list[Cell], what: str) -> Figure | None:
    """Training and test loss by epoch, of the models with a fold left out or of that of all data: figure 4a."""
    trained: CellLosses = []
    for cell in cells:
        by_kind = read_losses(cell.run.table("losses"))
        models = "folds" if ("folds", "test") in by_kind else "whole"
        if {(models, "train"), (models, "test")} <= set(by_kind):
            trained.append((cell, {split: by_kind[models, split] for split in ("test", "train")}))
    if len(trained) < 2:
        return None
    n = sorted({loss.n for _, of_cell in trained for loss in of_cell.values()})
    trainings = f"{n[0]}" if len(n) == 1 else f"{n[0]} to {n[-1]}"
    caption = (
        "Thick: the loss on the test split; thin: on the images trained on, as they were seen in the epoch. Nats per "
        f"image, the mean of {trainings} trainings of each cell; their intervals are in the table of losses. Losses of "
        "the first epochs may lie above what is drawn."
    )
    alt = " ".join(
        f"{cell.name} after epoch {of_cell['test'].epochs[-1]}: test "
        f"{drawing.format_number(float(of_cell['test'].estimate[-1]))}, train "
        f"{drawing.format_number(float(of_cell['train'].estimate[-1]))}, gap "
        f"{drawing.format_number(float(of_cell['test'].estimate[-1] - of_cell['train'].estimate[-1]))}."
        for cell, of_cell in trained
    )
    return Figure("losses", f"Do the losses part, by {what}?", caption, alt, draw_losses(trained))


def draw_losses(trained: CellLosses) -> str:
    """The losses as SVG."""
    figure, (axes,) = cell_panels([cell for cell, _ in trained], 1, 2.4)
    for cell, of_cell in trained:
        colour, _, dash = cell.look
        for split, width in (("test", 2.2), ("train", 0.9)):
            loss = of_cell[split]
            axes.plot(loss.epochs, loss.estimate, color=drawing.light(colour), linewidth=width, linestyle=dash)
    everything = [loss for _, of_cell in trained for loss in of_cell.values()]
    axes.set_ylim(*loss_limits(everything))
    axes.set_xlim(*drawing.padded_limits([0.0, float(max(int(loss.epochs[-1]) for loss in everything))], 0.03))
    drawing.set_ticks(axes, 6, 5, whole=True)
    axes.set_xlabel("epoch")
    axes.set_ylabel("loss, nats per image")
    axes.set_title("thick: test split; thin: trained on", fontsize=drawing.TEXT)
    return drawing.svg(figure, "losses")


def compare_spreads(cells: list[Cell], what: str) -> Figure | None:
    """A row for each cell, where there are too many for lines."""
    rows = cell_strips(cells)
    if len(rows) < 2:
        return None
    shown = rows[: layout.MOST]
    rest = f" The first {len(shown)} of {len(rows)} cells." if len(rows) > len(shown) else ""
    caption = (
        "A row is a cell. Mark: the median over its observations; line: their middle 90 %, from the 5 % to the 95 % "
        f"quantile. Dashed: 0. No intervals.{rest}"
    )
    alt = " ".join(row.describe() for row in shown)
    title = f"How do the scores change with {what}?"
    return Figure("densities", title, caption, alt, strips.draw_strips(shown, "densities"))


def cell_strips(cells: list[Cell]) -> list[strips.Strip]:
    """The strips of the cells that have scores."""
    rows = (strips.strip(cell.name, cell.scores) for cell in cells)
    return [row for row in rows if row is not None]


def cell_panels(cells: list[Cell], panels: int, panel: float = PANEL) -> tuple[Any, list[Any]]:
    """A figure with its axes from the top down, the ticks of epochs or nats below the last, and the cells' legend."""
    beside = legend.columns([cell.name for cell in cells])
    figure = drawing.canvas(panel * panels + legend.height(len(cells), beside) + 0.4)
    placed = layout.stack_axes(figure, panels, panel)
    for axes in placed[:-1]:
        axes.tick_params(labelbottom=False)
    entries = []
    for cell in cells:
        colour, marker, dash = cell.look
        look = {"color": drawing.light(colour), "marker": marker, "linestyle": dash, "linewidth": 1.5, "markersize": 5}
        entries.append(legend.line(shorten(cell.name, 2 * legend.ENTRY), **look))
    legend.add_above(figure, entries, beside)
    return figure, placed
