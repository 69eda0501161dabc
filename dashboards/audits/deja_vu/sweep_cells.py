"""Compares the cells of a sweep, as in figures 3, 4, 5, 9 and 13.

The figures show accuracies, scores during training, and categories.
"""

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
    MAX_SMALL_PANELS,
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

LETTERS = 17  # letters above a small panel


@dataclass(frozen=True)
class Cell:
    """A sweep cell with stored tables, named by its setting. `short` contains only the values in the setting."""

    name: str
    short: str
    run: Run

    @cached_property
    def scores(self) -> pa.Table:
        return attacks.both_ways_rows(self.run.table("scores"))

    @cached_property
    def decisive(self) -> attacks.Attack | None:
        all_attacks = attacks.read_attacks(self.scores)
        if all_attacks:
            return attacks.decisive_attack(all_attacks)
        return None

    @cached_property
    def percent(self) -> int:
        return decisive_percent(self.scores)

    def accuracies(self) -> Accuracies | None:
        """Return both models' accuracies for the decisive attack."""
        if self.decisive is None:
            return None
        return accuracies(self.scores, self.decisive, self.name)

    def score_curve(self) -> Curve | None:
        """Return the score by epoch."""
        if self.decisive is None:
            return None
        epoch_attacks = attacks.attacks_along(attacks.read_attacks(self.scores), "epoch")
        rows = rows_at_percent(self.scores, self.percent)
        return read_curve(
            pa.concat_tables([attacks.attack_rows(rows, attack) for attack in epoch_attacks]), "epoch", "score"
        )

    def shares(self) -> dict[str, Curve]:
        """Return the shares of memorised and misrepresented images at the last epoch."""
        table = attacks.both_ways_rows(self.run.table("categories"))
        all_attacks = attacks.read_attacks(table)
        if all_attacks:
            rows = attacks.attack_rows(table, attacks.decisive_attack(all_attacks))
        else:
            rows = table
        return {name: share for name in COMPARED if (share := read_curve(rows, "epoch", name)) is not None}

    def probe_gap(self) -> Curve | None:
        """Return the gap of the linear probe for the decisive attack. Returns None if there is none."""
        probed = gaps(self.run.table("probe"))
        if self.decisive is None:
            estimate = None
        else:
            estimate = probed.get(self.decisive[:2])
        if estimate is None:
            return None
        values = (np.array([end], np.float64) for end in (estimate.value, estimate.low, estimate.high))
        return Curve(np.zeros(1), *values)


def compare_cells(run: Run) -> Iterable[Figure | None]:
    """Return figures that compare cells. A figure is drawn if at least two cells have the data for it."""
    setting, names, values = name_cells(run)
    cells = [Cell(name, short, cell) for name, short, cell in zip(names, values, run.cells, strict=False)]
    if not cells:
        return ()
    return (
        _compare_accuracies(cells, setting),
        _compare_score_curves(cells, setting),
        _compare_shares(cells, setting),
        _compare_gaps(cells, setting),
    )


def _cell_labels(cells: Sequence[Cell], max_letters: int) -> list[str]:
    """Return the cell names, or only their values if a name is longer than `max_letters`."""
    if max((len(cell.name) for cell in cells), default=0) > max_letters:
        return [cell.short for cell in cells]
    return [cell.name for cell in cells]


def _compare_accuracies(cells: list[Cell], setting: str) -> Figure | None:
    """Draw one small panel per cell: both models' accuracies against the share of most confident images."""
    cells_with_data = [(cell, estimates) for cell in cells if (estimates := cell.accuracies()) is not None]
    if len(cells_with_data) < 2:
        return None
    titles = _cell_labels([cell for cell, _ in cells_with_data], LETTERS)
    drawn_panels = [
        Accuracies(estimates.of_model, shorten(title, LETTERS))
        for (_, estimates), title in zip(cells_with_data[:MAX_SMALL_PANELS], titles, strict=False)
    ]
    percent = cells_with_data[0][0].percent
    caption = (
        "The share named correctly by the percentage of most confident images: by the model that was trained on them "
        "and by the other model, mean of both directions, with 95 % intervals over images. Difference: the deja vu "
        f"score; vertical line: the decisive {percent} %. A panel is a cell, after its last epoch."
        f"{layout.left_out_note(len(drawn_panels), len(cells_with_data), 'cells')}"
    )
    alt = " ".join(f"{cell.name}: {estimates.describe(cell.percent)}." for cell, estimates in cells_with_data)
    return Chart(
        "accuracies",
        f"How often is the object named, by {setting}?",
        caption,
        alt,
        small_panels_height(len(drawn_panels)) + legend.ROW + 0.1,
        small_panels(drawn_panels, percent, (0.0, highest_accuracy(drawn_panels))),
        legend_entries(),
    ).figure()


def _compare_score_curves(cells: list[Cell], setting: str) -> Figure | None:
    """Draw the score by epoch, with one line per cell. Returns None if no cell has several epochs."""
    cells_with_data = [(cell, scores) for cell in cells if (scores := cell.score_curve()) is not None]
    if len(cells_with_data) < 2 or max(len(scores.places) for _, scores in cells_with_data) < 2:
        return None
    drawn_cells = cells_with_data[:LINES]
    caption = (
        f"The deja vu score at {drawn_cells[0][0].percent} % after the evaluated epochs. Dashed line: 0, "
        "no memorisation. Bands: 95 % intervals over images."
        f"{layout.left_out_note(len(drawn_cells), len(cells_with_data), 'cells')}"
    )
    alt = " ".join(
        f"{cell.name}: {scores.describe()} after epoch {scores.places[-1]:g}." for cell, scores in cells_with_data
    )
    last = max(float(scores.places[-1]) for _, scores in drawn_cells)
    legend_columns = legend.columns([cell.name for cell, _ in drawn_cells])
    panel = Panel(
        layout.wide_box(0.55, 2.2),
        [level(0), *(curve(scores, look) for (_, scores), look in zip(drawn_cells, drawing.SERIES, strict=False))],
        Axis("epoch", drawing.padded_limits([0.0, last], 0.03), 6, integer_ticks=True),
        Axis("deja vu score", axis_limits([scores for _, scores in drawn_cells])),
    )
    return Chart(
        "courses",
        f"When does memorisation appear, by {setting}?",
        caption,
        alt,
        2.85 + legend.height(len(drawn_cells), legend_columns),
        [panel],
        legend.series([shorten(cell.name, 2 * legend.ENTRY) for cell, _ in drawn_cells], linewidth=1.5, markersize=5),
        legend_columns,
    ).figure()


Looks = dict[str, tuple[str, str, Any]]


def _compare_shares(cells: list[Cell], setting: str) -> Figure | None:
    """Draw one row per cell: the shares of memorised and misrepresented images."""
    rows = [(cell, shares) for cell in cells if len(shares := cell.shares()) == len(COMPARED)]
    if len(rows) < 2:
        return None
    caption = (
        "The share of images that only the model trained on them names correctly (memorised), and that only the other "
        "model does (misrepresented), which estimates how many are memorised by chance. After the last epoch, "
        f"with 95 % intervals over images.{layout.left_out_note(min(len(rows), layout.MOST), len(rows), 'cells')}"
    )
    title = f"How many images are memorised, by {setting}?"
    return _row_chart("shares", title, caption, rows, COMPARED, "share of images")


def _compare_gaps(cells: list[Cell], setting: str) -> Figure | None:
    """Draw one row per cell: the score and the gap of the linear probe."""
    rows: Rows = []
    for cell in cells:
        score = cell.score_curve()
        gap = cell.probe_gap()
        if score is not None and gap is not None:
            at_end = Curve(*(values[-1:] for values in (score.places, score.value, score.low, score.high)))
            rows.append((cell, dict(zip(LOOKS, (at_end, gap), strict=True))))
    if len(rows) < 2:
        return None
    caption = (
        "The deja vu score, and the accuracy of a linear probe on training images of its model minus that on other "
        "images, a common indicator of overfitting that need not reveal memorisation. After the last epoch, with 95 % "
        f"intervals over images. Dashed: 0.{layout.left_out_note(min(len(rows), layout.MOST), len(rows), 'cells')}"
    )
    title = f"Does overfitting indicate memorisation, by {setting}?"
    return _row_chart("gaps", title, caption, rows, LOOKS, "share")


Rows = list[tuple[Cell, dict[str, Curve]]]  # cell, and its estimates at its last epoch


def _describe_cells(rows: Rows) -> str:
    descriptions = []
    for cell, of_cell in rows:
        words = ", ".join(f"{label} {estimates.describe()}" for label, estimates in of_cell.items())
        descriptions.append(f"{cell.name}: {words}.")
    return " ".join(descriptions)


def _row_chart(name: str, title: str, caption: str, all_rows: Rows, looks: Looks, unit: str) -> Figure:
    """Draw the estimates with one row per cell, on a common scale with a line at 0."""
    drawn_rows = all_rows[: layout.MOST]
    rows = layout.rows(_cell_labels([cell for cell, _ in drawn_rows], layout.LETTERS), legend.ROW + 0.08)
    layers: list[Layer] = [upright(0)]
    for index, (label, (colour, marker, _)) in enumerate(looks.items()):
        y = rows.y + ((len(looks) - 1) / 2 - index) * 0.36
        ends = [
            (estimates[label].low[-1], estimates[label].value[-1], estimates[label].high[-1])
            for _, estimates in drawn_rows
        ]
        low, value, high = np.array(ends).T
        layers += [intervals(y, low, high, colour, level=True), marks(value, y, colour, marker, 4.5)]
    limits = axis_limits([estimates for _, of_cell in drawn_rows for estimates in of_cell.values()])
    return Chart(
        name,
        title,
        caption,
        _describe_cells(all_rows),
        rows.height,
        [row_panel(rows, layers, Axis(unit, limits))],
        [
            legend.line(label, color=drawing.light(colour), marker=marker, linewidth=1.8, markersize=4.5)
            for label, (colour, marker, _) in looks.items()
        ],
    ).figure()
