"""A sweep's cells together: accuracies, courses of the score, and what is memorised: figures 3, 4, 5, 9 and 13."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    highest_accuracy,
    legend_entries,
    small_panels,
    small_panels_height,
)
from dashboards.audits.deja_vu.attacks import axis_limits, decisive_percent, read_curve, rows_at_percent
from dashboards.audits.deja_vu.categories import COMPARED
from dashboards.audits.deja_vu.scores import LOOKS, gaps
from dashboards.chart import (
    Axis,
    Chart,
    Curve,
    Figure,
    Layer,
    Panel,
    curve,
    intervals,
    level,
    marks,
    row_panel,
    upright,
)
from dashboards.run import Run
from dashboards.summary import shorten
from dashboards.sweep import LINES, name_cells

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


def compare_cells(run: Run) -> Iterable[Figure | None]:
    """Figures that compare the cells, each as far as two of them have what it shows."""
    what, names, values = name_cells(run)
    found = [Cell(*each) for each in zip(names, values, run.cells, strict=False)]
    if not found:
        return ()
    return (
        _compare_accuracies(found, what),
        _compare_score_curves(found, what),
        _compare_shares(found, what),
        _compare_gaps(found, what),
    )


def _cell_labels(cells: Sequence[Cell], most: int) -> list[str]:
    """The names of cells, or their values alone where a name has more letters than this."""
    return [cell.short if max(len(each.name) for each in cells) > most else cell.name for cell in cells]


def _compare_accuracies(cells: list[Cell], what: str) -> Figure | None:
    """A small panel for each cell: both models' accuracies over the share of most confident pictures."""
    found = [(cell, each) for cell in cells if (each := cell.accuracies()) is not None]
    if len(found) < 2:
        return None
    titles = _cell_labels([cell for cell, _ in found], LETTERS)
    shown = [
        Accuracies(each.of_model, shorten(title, LETTERS))
        for (_, each), title in zip(found[:MOST], titles, strict=False)
    ]
    percent = found[0][0].percent
    caption = (
        "Named rightly, as a share, over the percentage of most confident pictures: by the model that was trained on "
        "them and by one that was not, both ways averaged, with 95 % intervals over pictures. The distance of the two "
        f"is the deja vu score; upright: {percent} %, where it decides. A panel is a cell, after its last epoch."
        f"{layout.left_out_note(len(shown), len(found), 'cells')}"
    )
    alt = " ".join(f"{cell.name}: {each.describe(cell.percent)}." for cell, each in found)
    return Chart(
        "accuracies",
        f"How often is the object named, by {what}?",
        caption,
        alt,
        small_panels_height(len(shown)) + legend.ROW + 0.1,
        small_panels(shown, percent, (0.0, highest_accuracy(shown))),
        legend_entries(),
    ).figure()


def _compare_score_curves(cells: list[Cell], what: str) -> Figure | None:
    """The score by epoch, a line for each cell; None where no cell has several epochs."""
    found = [(cell, each) for cell in cells if (each := cell.score_curve()) is not None]
    if len(found) < 2 or max(len(each.places) for _, each in found) < 2:
        return None
    shown = found[:LINES]
    caption = (
        f"The deja vu score at {shown[0][0].percent} % after the epochs at which the models were asked. Dashed line: "
        "0, nothing memorised. Bands: 95 % intervals over pictures."
        f"{layout.left_out_note(len(shown), len(found), 'cells')}"
    )
    alt = " ".join(f"{cell.name}: {each.describe()} after epoch {each.places[-1]:g}." for cell, each in found)
    last = max(float(each.places[-1]) for _, each in shown)
    beside = legend.columns([cell.name for cell, _ in shown])
    panel = Panel(
        layout.wide_box(0.55, 2.2),
        [level(0), *(curve(each, look) for (_, each), look in zip(shown, drawing.SERIES, strict=False))],
        Axis("epoch", drawing.padded_limits([0.0, last], 0.03), 6, whole=True),
        Axis("deja vu score", axis_limits([each for _, each in shown])),
    )
    return Chart(
        "courses",
        f"When does memory show, by {what}?",
        caption,
        alt,
        2.85 + legend.height(len(shown), beside),
        [panel],
        legend.series([shorten(cell.name, 2 * legend.ENTRY) for cell, _ in shown], linewidth=1.5, markersize=5),
        beside,
    ).figure()


Looks = dict[str, tuple[str, str, Any]]


def _compare_shares(cells: list[Cell], what: str) -> Figure | None:
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
    return _row_chart("shares", title, caption, rows, COMPARED, "share of pictures")


def _compare_gaps(cells: list[Cell], what: str) -> Figure | None:
    """A row for each cell: the score beside the gap of the linear probe."""
    rows: Rows = []
    for cell in cells:
        score, gap = cell.score_curve(), cell.probe_gap()
        if score is not None and gap is not None:
            at_end = Curve(*(values[-1:] for values in (score.places, score.value, score.low, score.high)))
            rows.append((cell, dict(zip(LOOKS, (at_end, gap), strict=True))))
    if len(rows) < 2:
        return None
    caption = (
        "The deja vu score, and the accuracy of a linear probe on pictures that its model was trained on less that on "
        "others, the usual sign of overfitting: what is memorised need not show there. After the last epoch, with 95 % "
        f"intervals over pictures. Dashed: 0.{layout.left_out_note(min(len(rows), layout.MOST), len(rows), 'cells')}"
    )
    title = f"Does overfitting tell what is memorised, by {what}?"
    return _row_chart("gaps", title, caption, rows, LOOKS, "share")


Rows = list[tuple[Cell, dict[str, Curve]]]  # with its estimates at its last epoch


def _describe_cells(rows: Rows) -> str:
    return " ".join(
        f"{cell.name}: {', '.join(f'{what} {each.describe()}' for what, each in shown.items())}."
        for cell, shown in rows
    )


def _row_chart(name: str, title: str, caption: str, found: Rows, looks: Looks, unit: str) -> Figure:
    """The estimates, a row for each cell, on one scale with a line at 0."""
    shown = found[: layout.MOST]
    rows = layout.rows(_cell_labels([cell for cell, _ in shown], layout.LETTERS), legend.ROW + 0.08)
    layers: list[Layer] = [upright(0)]
    for at, (label, (colour, marker, _)) in enumerate(looks.items()):
        y = rows.y + ((len(looks) - 1) / 2 - at) * 0.36
        ends = [(each[label].low[-1], each[label].value[-1], each[label].high[-1]) for _, each in shown]
        low, value, high = np.array(ends).T
        layers += [intervals(y, low, high, colour, level=True), marks(value, y, colour, marker, 4.5)]
    limits = axis_limits([each for _, of_cell in shown for each in of_cell.values()])
    return Chart(
        name,
        title,
        caption,
        _describe_cells(found),
        rows.height,
        [row_panel(rows, layers, Axis(unit, limits))],
        [
            legend.line(label, color=drawing.light(colour), marker=marker, linewidth=1.8, markersize=4.5)
            for label, (colour, marker, _) in looks.items()
        ],
    ).figure()
