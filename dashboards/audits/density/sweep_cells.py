"""A sweep's cells together: their scores, when they rise, and their losses, as in figure 4 with two learning rates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dashboards import drawing
from dashboards.audits.density import strips, style
from dashboards.audits.density.axis_limits import robust
from dashboards.audits.density.learning_curve import line
from dashboards.audits.density.losses import limits as of_losses
from dashboards.audits.density.losses import read
from dashboards.audits.density.observed import HIGH, Array, Observed
from dashboards.audits.density.score_statistics import Followed, Statistics
from dashboards.estimates import shortened
from dashboards.figure import Figure
from dashboards.run import Run
from dashboards.sweep import ENTRY, LINES, fields, varied_in, word

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
    """A cell by its setting in words. Its look is its place's, the same in every figure."""

    name: str
    run: Run
    place: int

    @cached_property
    def scores(self) -> dict[str, Array]:
        found = Observed(self.run.table("scores")).scores
        return {score: values[~np.isnan(values)] for score, values in found.items()}

    @property
    def look(self) -> tuple[str, str, Any]:
        return drawing.SERIES[self.place]


def cells(run: Run) -> Iterator[Figure]:
    """What the cells have to compare; of many, their spreads alone."""
    settings = varied_in(run.cells)
    varied = fields(settings)
    names = [", ".join(f"{field} {word(setting[field])}" for field in varied) for setting in settings]
    found = [Cell(name, each, at) for at, (name, each) in enumerate(zip(names, run.cells, strict=True))]
    if not varied or len(found) < 2:
        return
    what = " and ".join(varied)
    drawn = (
        (densities(found, what), courses(found, what), losses(found, what))
        if len(found) <= LINES
        else (spreads(found, what),)
    )
    yield from (figure for figure in drawn if figure is not None)


def densities(cells: list[Cell], what: str) -> Figure | None:
    """A line for each cell: how its scores are distributed, with its 95 % quantile marked: figure 4c."""
    there = [each for each in cells if each.scores]
    scores = [score for score in style.SCORES if any(score in each.scores for each in there)]
    if len(there) < 2:
        return None
    limits = robust((values for each in there for values in each.scores.values()), [0.0])
    edges = np.linspace(*limits, BINS + 1)
    figure, panels = canvas(there, len(scores))
    for axes, score in zip(panels, scores, strict=True):
        axes.set_title(style.SCORES[score], fontsize=drawing.TEXT)
        axes.axvline(0, **style.null())
        for each in there:
            if score in each.scores:
                smooth(axes, each, each.scores[score], edges)
        axes.set_xlim(*limits)
        axes.set_ylim(bottom=0)
        drawing.ticks(axes, 6, 4)
        axes.set_ylabel("share per nat")
    axes.set_xlabel("nats")
    beyond = [values[(values < limits[0]) | (values > limits[1])] for each in there for values in each.scores.values()]
    most, far = max(map(len, beyond)), np.concatenate(beyond)
    cut = (
        f" The axis is cut: beyond it lie at most {most:,} scores of a cell, from {drawing.number(float(far.min()))} "
        f"to {drawing.number(float(far.max()))}."
        if len(far)
        else ""
    )
    sizes = sorted({len(values) for each in there for values in each.scores.values()})
    n = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
    caption = (
        f"The share of observations in each of {BINS} bins of M, as a line; the upright stroke with the mark is a "
        f"cell's {HIGH:.0%} quantile. Dashed: 0. n: {n} observations of each cell; no intervals.{cut}"
    )
    alt = " ".join(row.said() for row in of_cells(there))
    title = f"How do the scores change with {what}?"
    return Figure("densities", title, caption, alt, drawing.svg(figure, "densities"))


def smooth(axes: Any, cell: Cell, values: Array, edges: Array) -> None:
    colour, marker, dash = cell.look
    look = {"color": drawing.light(colour), "linewidth": 1.5}
    heights = np.histogram(values, edges)[0] / len(values) / (edges[1] - edges[0])
    middles = (edges[1:] + edges[:-1]) / 2
    axes.plot(middles, heights, linestyle=dash, **look)
    high = float(np.quantile(values, HIGH))
    top = 0.12 * max(float(heights.max()), axes.get_ylim()[1])
    axes.plot([high, high], [0, top], **look)
    axes.plot([high], [top], marker, markersize=6, **look)


def courses(cells: list[Cell], what: str) -> Figure | None:
    """High quantiles of the scores by epoch, a line for each cell: figure 4b."""
    statistics = [Statistics(each.run.table("distribution")) for each in cells]
    found: dict[str, list[tuple[Cell, Followed]]] = {}
    for (score, statistic), name in FOLLOWED.items():
        each_of = ((each, of.followed(score, statistic)) for each, of in zip(cells, statistics, strict=True))
        followed = [(each, of) for each, of in each_of if of is not None]
        if len(followed) > 1 and max(len(of.epochs) for _, of in followed) > 1:
            found[name] = followed
    if not found:
        return None
    there = [each for each in cells if any(each is cell for of in found.values() for cell, _ in of)]
    figure, panels = canvas(there, len(found))
    last = max(int(each.epochs[-1]) for of in found.values() for _, each in of)
    for axes, (name, of) in zip(panels, found.items(), strict=True):
        axes.set_title(f"{name}, nats", fontsize=drawing.TEXT)
        axes.axhline(0, **style.null())
        for cell, each in of:
            line(axes, each, *cell.look)
        axes.set_xlim(*drawing.span([0.0, float(last)], 0.03))
        drawing.ticks(axes, 6, 4, whole=True)
    axes.set_xlabel("epoch")
    n = sorted({each.n for of in found.values() for _, each in of})
    repetitions = f"{n[0]}" if len(n) == 1 else f"{n[0]} to {n[-1]}"
    caption = (
        "Over all observations, after the epochs at which the models were asked. Shade: 95 % intervals by the "
        f"jackknife; n: {repetitions} repetitions of each cell. Dashed: 0."
    )
    alt = " ".join(
        f"{name} after epoch {of[0][1].epochs[-1]}: {', '.join(f'{cell.name} {each.said()}' for cell, each in of)}."
        for name, of in found.items()
    )
    title = f"When do models begin to memorise, by {what}?"
    return Figure("courses", title, caption, alt, drawing.svg(figure, "courses"))


def losses(cells: list[Cell], what: str) -> Figure | None:
    """Training and test loss by epoch, of the models with a fold left out or of that of all data: figure 4a."""
    found = {}
    for each in cells:
        all_of = read(each.run.table("losses"))
        models = "folds" if ("folds", "test") in all_of else "whole"
        if {(models, "train"), (models, "test")} <= set(all_of):
            found[each.name] = (each, {split: all_of[models, split] for split in ("test", "train")})
    if len(found) < 2:
        return None
    there = [each for each, _ in found.values()]
    figure, (axes,) = canvas(there, 1, 2.4)
    for cell, of in found.values():
        colour, _, dash = cell.look
        for split, width in (("test", 2.2), ("train", 0.9)):
            axes.plot(
                of[split].epochs, of[split].estimate, color=drawing.light(colour), linewidth=width, linestyle=dash
            )
    low, high = of_losses([each for _, of in found.values() for each in of.values()])
    axes.set_ylim(low, high)
    last = max(int(each.epochs[-1]) for _, of in found.values() for each in of.values())
    axes.set_xlim(*drawing.span([0.0, float(last)], 0.03))
    drawing.ticks(axes, 6, 5, whole=True)
    axes.set_xlabel("epoch")
    axes.set_ylabel("loss, nats per image")
    axes.set_title("thick: test split; thin: trained on", fontsize=drawing.TEXT)
    n = sorted({each.n for _, of in found.values() for each in of.values()})
    trainings = f"{n[0]}" if len(n) == 1 else f"{n[0]} to {n[-1]}"
    caption = (
        "Thick: the loss on the test split; thin: on the images trained on, as they were seen in the epoch. Nats per "
        f"image, the mean of {trainings} trainings of each cell; their intervals are in the table of losses. Losses of "
        "the first epochs may lie above what is drawn."
    )
    alt = " ".join(
        f"{name} after epoch {of['test'].epochs[-1]}: test {drawing.number(float(of['test'].estimate[-1]))}, train "
        f"{drawing.number(float(of['train'].estimate[-1]))}, gap "
        f"{drawing.number(float(of['test'].estimate[-1] - of['train'].estimate[-1]))}."
        for name, (_, of) in found.items()
    )
    title = f"Do the losses part, by {what}?"
    return Figure("losses", title, caption, alt, drawing.svg(figure, "losses"))


def spreads(cells: list[Cell], what: str) -> Figure | None:
    """A row for each cell, where there are too many for lines."""
    rows = of_cells(cells)
    if len(rows) < 2:
        return None
    shown = rows[: strips.MOST]
    rest = f" The first {len(shown)} of {len(rows)} cells." if len(rows) > len(shown) else ""
    caption = (
        "A row is a cell. Mark: the median over its observations; line: their middle 90 %, from the 5 % to the 95 % "
        f"quantile. Dashed: 0. No intervals.{rest}"
    )
    alt = " ".join(row.said() for row in shown)
    title = f"How do the scores change with {what}?"
    return Figure("densities", title, caption, alt, strips.drawn(shown, "densities"))


def of_cells(cells: list[Cell]) -> list[strips.Strip]:
    found = (strips.strip(each.name, each.scores) for each in cells)
    return [each for each in found if each is not None]


def canvas(cells: list[Cell], panels: int, panel: float = PANEL) -> tuple[Any, list[Any]]:
    """A figure with its axes from the top down, the ticks of epochs or nats below the last, and the cells' legend."""
    labels = [each.name for each in cells]
    beside = 2 if max(map(len, labels)) <= ENTRY else 1
    foot = style.ROW * -(-len(labels) // beside)
    figure = drawing.canvas(panel * panels + foot + 0.4)
    placed = []
    for at in range(panels):
        bottom = 0.5 + panel * (panels - 1 - at)
        axes = drawing.place(figure, style.LEFT, bottom, drawing.WIDTH - style.LEFT - style.RIGHT, panel - 0.4)
        axes.tick_params(labelbottom=at + 1 == panels)
        placed.append(axes)
    handles = []
    for each in cells:
        colour, marker, dash = each.look
        look = {"color": drawing.light(colour), "marker": marker, "linestyle": dash, "linewidth": 1.5, "markersize": 5}
        handles.append(style.of_line(shortened(each.name, 2 * ENTRY), **look))
    style.legend(figure, handles, beside)
    return figure, placed
