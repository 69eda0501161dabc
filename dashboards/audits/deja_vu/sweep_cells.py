"""A sweep's cells together: accuracies, courses of the score, and what is memorised: figures 3, 4, 5, 9 and 13."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from dashboards import drawing, layout, legend
from dashboards.audits.deja_vu import attacks
from dashboards.audits.deja_vu.accuracy import (
    MOST,
    Accuracies,
    accuracies,
    draw_small_panels,
    highest_accuracy,
    legend_entries,
    small_panels_height,
)
from dashboards.audits.deja_vu.categories import COMPARED
from dashboards.audits.deja_vu.curves import (
    GAP,
    TARGET,
    Curve,
    axis_limits,
    decisive_percent,
    draw_curve,
    read_curve,
    rows_at_percent,
)
from dashboards.audits.deja_vu.probes import gaps
from dashboards.estimates import shorten
from dashboards.figure import Figure
from dashboards.run import Run
from dashboards.sweep import LINES, value_label, varied_fields, varied_settings

LETTERS = 17  # above a small panel


@dataclass(frozen=True)
class Cell:
    """A cell named by its setting, with the tables of both ways that are stored of it.

    `short` are the setting's values alone.
    """

    name: str
    short: str
    run: Run

    @cached_property
    def scores(self) -> pa.Table:
        return attacks.both_ways_rows(self.run.table("scores"))

    @cached_property
    def decisive(self) -> attacks.Attack | None:
        found = attacks.read_attacks(self.scores)
        return attacks.decisive_attack(found) if found else None

    @cached_property
    def percent(self) -> int:
        return decisive_percent(self.scores)

    def accuracies(self) -> Accuracies | None:
        """Both models' accuracies for the attack that decides."""
        return None if self.decisive is None else accuracies(self.scores, self.decisive, self.name)

    def score_curve(self) -> Curve | None:
        """The score by epoch."""
        if self.decisive is None:
            return None
        chosen = attacks.attacks_along(attacks.read_attacks(self.scores), "epoch")
        rows = rows_at_percent(self.scores, self.percent)
        return read_curve(pa.concat_tables([attacks.attack_rows(rows, each) for each in chosen]), "epoch", "score")

    def shares(self) -> dict[str, Curve]:
        """The share of memorised and of misrepresented pictures, at the last epoch."""
        table = attacks.both_ways_rows(self.run.table("categories"))
        found = attacks.read_attacks(table)
        rows = attacks.attack_rows(table, attacks.decisive_attack(found)) if found else table
        return {name: each for name in COMPARED if (each := read_curve(rows, "epoch", name)) is not None}

    def probe_gap(self) -> Curve | None:
        """The gap of the linear probe for the attack that decides, at one place; None where there is none."""
        probed = gaps(self.run.table("probe"))
        found = None if self.decisive is None else probed.get(self.decisive[:2])
        if found is None:
            return None
        values = (np.array([end], np.float64) for end in (found.value, found.low, found.high))
        return Curve(np.zeros(1), *values)


def compare_cells(run: Run) -> Iterator[Figure]:
    """Figures that compare the cells, each as far as two of them have what it shows."""
    settings = varied_settings(run.cells)
    varied = varied_fields(settings)
    names = [", ".join(f"{field} {value_label(setting[field])}" for field in varied) for setting in settings]
    values = [", ".join(value_label(setting[field]) for field in varied) for setting in settings]
    found = [Cell(*each) for each in zip(names, values, run.cells, strict=True)]
    if not varied or len(found) < 2:
        return
    what = " and ".join(varied)
    drawn = (
        compare_accuracies(found, what),
        compare_score_curves(found, what),
        compare_shares(found, what),
        compare_gaps(found, what),
    )
    yield from (figure for figure in drawn if figure is not None)


def cell_labels(cells: Sequence[Cell], most: int) -> list[str]:
    """The names of cells, or their values alone where a name has more letters than this."""
    return [cell.short if max(len(each.name) for each in cells) > most else cell.name for cell in cells]


def compare_accuracies(cells: list[Cell], what: str) -> Figure | None:
    """A small panel for each cell: both models' accuracies over the share of most confident pictures."""
    found = [(cell, each) for cell in cells if (each := cell.accuracies()) is not None]
    if len(found) < 2:
        return None
    titles = cell_labels([cell for cell, _ in found], LETTERS)
    shown = [
        Accuracies(each.of_model, shorten(title, LETTERS))
        for (_, each), title in zip(found[:MOST], titles, strict=False)
    ]
    percent = found[0][0].percent
    figure = drawing.canvas(small_panels_height(len(shown)) + legend.ROW + 0.1)
    draw_small_panels(figure, shown, percent, (0.0, highest_accuracy(shown)))
    legend.add_above(figure, legend_entries())
    caption = (
        "Named rightly, as a share, over the percentage of most confident pictures: by the model that was trained on "
        "them and by one that was not, both ways averaged, with 95 % intervals over pictures. The distance of the two "
        f"is the deja vu score; upright: {percent} %, where it decides. A panel is a cell, after its last epoch."
        f"{layout.left_out_note(len(shown), len(found), 'cells')}"
    )
    alt = " ".join(f"{cell.name}: {each.describe(cell.percent)}." for cell, each in found)
    title = f"How often is the object named, by {what}?"
    return Figure("accuracies", title, caption, alt, drawing.svg(figure, "accuracies"))


def compare_score_curves(cells: list[Cell], what: str) -> Figure | None:
    """The score by epoch, a line for each cell; None where no cell has several epochs."""
    found = [(cell, each) for cell in cells if (each := cell.score_curve()) is not None]
    if len(found) < 2 or max(len(each.places) for _, each in found) < 2:
        return None
    shown = found[:LINES]
    beside = legend.columns([cell.name for cell, _ in shown])
    figure = drawing.canvas(2.85 + legend.height(len(shown), beside))
    axes = layout.wide_axes(figure, 0.55, 2.2)
    axes.axhline(0, **drawing.NULL)
    for (_, each), look in zip(shown, drawing.SERIES, strict=False):
        draw_curve(axes, each, look)
    last = max(float(each.places[-1]) for _, each in shown)
    axes.set_xlim(*drawing.padded_limits([0.0, last], 0.03))
    axes.set_ylim(*axis_limits([each for _, each in shown]))
    drawing.set_ticks(axes, 6, 5, whole=True)
    axes.set_xlabel("epoch")
    axes.set_ylabel("deja vu score")
    labels = [shorten(cell.name, 2 * legend.ENTRY) for cell, _ in shown]
    legend.add_above(figure, legend.series(labels, linewidth=1.5, markersize=5), beside)
    caption = (
        f"The deja vu score at {shown[0][0].percent} % after the epochs at which the models were asked. Dashed line: "
        "0, nothing memorised. Bands: 95 % intervals over pictures."
        f"{layout.left_out_note(len(shown), len(found), 'cells')}"
    )
    alt = " ".join(f"{cell.name}: {each.describe()} after epoch {each.places[-1]:g}." for cell, each in found)
    return Figure("courses", f"When does memory show, by {what}?", caption, alt, drawing.svg(figure, "courses"))


Looks = dict[str, tuple[str, str, Any]]


def compare_shares(cells: list[Cell], what: str) -> Figure | None:
    """A row for each cell: the shares of memorised and misrepresented pictures."""
    rows = [(cell, shares) for cell in cells if len(shares := cell.shares()) == len(COMPARED)]
    if len(rows) < 2:
        return None
    caption = (
        "The share of pictures that the model trained on them alone names rightly (memorised), and of those that the "
        "other model alone does (misrepresented), which says how many are memorised by chance. After the last epoch, "
        f"with 95 % intervals over pictures.{layout.left_out_note(min(len(rows), layout.MOST), len(rows), 'cells')}"
    )
    title = f"How many pictures are memorised, by {what}?"
    return Figure("shares", title, caption, describe_cells(rows), draw_rows(rows, COMPARED, "shares"))


def compare_gaps(cells: list[Cell], what: str) -> Figure | None:
    """A row for each cell: the score beside the gap of the linear probe."""
    names: Looks = {"deja vu score": TARGET, "linear probe, train - test": GAP}
    rows: Rows = []
    for cell in cells:
        score, gap = cell.score_curve(), cell.probe_gap()
        if score is not None and gap is not None:
            at_end = Curve(*(values[-1:] for values in (score.places, score.value, score.low, score.high)))
            rows.append((cell, dict(zip(names, (at_end, gap), strict=True))))
    if len(rows) < 2:
        return None
    caption = (
        "The deja vu score, and the accuracy of a linear probe on pictures that its model was trained on less that on "
        "others, the usual sign of overfitting: what is memorised need not show there. After the last epoch, with 95 % "
        f"intervals over pictures. Dashed: 0.{layout.left_out_note(min(len(rows), layout.MOST), len(rows), 'cells')}"
    )
    title = f"Does overfitting tell what is memorised, by {what}?"
    return Figure("gaps", title, caption, describe_cells(rows), draw_rows(rows, names, "gaps"))


Rows = list[tuple[Cell, dict[str, Curve]]]  # with its estimates at its last epoch


def describe_cells(rows: Rows) -> str:
    return " ".join(
        f"{cell.name}: {', '.join(f'{what} {each.describe()}' for what, each in shown.items())}."
        for cell, shown in rows
    )


def draw_rows(rows: Rows, looks: Looks, name: str) -> str:
    """The estimates as SVG: a row for each cell, on one scale with a line at 0."""
    rows = rows[: layout.MOST]
    figure, axes, heights = layout.row_axes(cell_labels([cell for cell, _ in rows], layout.LETTERS), legend.ROW + 0.08)
    axes.axvline(0, **drawing.NULL)
    for at, (label, (colour, marker, _)) in enumerate(looks.items()):
        look: dict[str, Any] = {"color": drawing.light(colour)}
        y = heights + ((len(looks) - 1) / 2 - at) * 0.36
        ends = np.array([(shown[label].low[-1], shown[label].value[-1], shown[label].high[-1]) for _, shown in rows])
        across, up = drawing.segment_path(y, ends[:, 0], ends[:, 2])
        axes.plot(up, across, linewidth=1.8, solid_capstyle="butt", **look)
        axes.plot(ends[:, 1], y, marker, markersize=4.5, linestyle="none", **look)
    axes.set_xlim(*axis_limits([each for _, shown in rows for each in shown.values()]))
    axes.set_xlabel("share of pictures" if name == "shares" else "share")
    legend.add_above(
        figure,
        [
            legend.line(label, color=drawing.light(colour), marker=marker, linewidth=1.8, markersize=4.5)
            for label, (colour, marker, _) in looks.items()
        ],
    )
    return drawing.svg(figure, name)
