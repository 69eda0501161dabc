"""The answer: a decision about each target, and the share of D_Q that it may hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from dashboards import drawing, layout, legend
from dashboards.audits.forgetting import targets
from dashboards.chart import Axis, Chart, Figure, Layer, line, marks, row_panel, upright
from dashboards.columns import with_columns
from dashboards.summary import Row, finite, format_range

SHARES = ("share", "share_low", "share_high")
NEEDED = {"name", "effect", "p_adjusted", *SHARES, "decision", "models", "images", "controls"}


@with_columns(NEEDED)
def decisions(table: pa.Table, negligible: float | None) -> Figure | None:
    """Draw one row per target: the share of D_Q that it holds, with limits, marked by its decision."""
    decided = [row for row in table.to_pylist() if row["p_adjusted"] is not None]
    if not decided:
        return None
    visible_rows = decided[: layout.MOST]
    caption = (
        f"{figure_caption(visible_rows, negligible)}{layout.left_out_note(len(visible_rows), len(decided), 'targets')}"
    )
    handles = legend_entries(visible_rows, negligible)
    rows = layout.rows([row["name"] for row in visible_rows], targets.legend_height(-(-len(handles) // 2)))
    layers: list[Layer] = [] if negligible is None else [upright(100 * negligible, targets.BOUND)]
    for row, height in zip(visible_rows, rows.y.tolist(), strict=True):
        colour, marker = targets.DECISIONS.get(row["decision"], targets.DECISIONS["undecided"])
        share, low, high = (100 * row[name] if finite(row["share"]) else 0 for name in SHARES)
        if finite(row["share"]):
            layers.append(line([low, high], [height] * 2, colour, linewidth=2, solid_capstyle="butt"))
        layers.append(marks([share], [height], colour, marker, 6.5))
    largest = max(
        [100 * row["share_high"] for row in visible_rows if finite(row["share"])] + [100 * (negligible or 0.1)]
    )
    across = Axis("share of D_Q held, %", drawing.padded_limits([0.0, largest], 0.04))
    return Chart(
        "decisions",
        "Have the models forgotten D_Q?",
        caption,
        " ".join(_describe_decision(row) for row in visible_rows),
        rows.height,
        [row_panel(rows, layers, across)],
        handles,
    ).figure()


def legend_entries(rows: Sequence[Row], negligible: float | None) -> list[Any]:
    """Return legend entries for the decisions that occur."""
    present = {row["decision"] for row in rows}
    handles = []
    for decision, (colour, marker) in targets.DECISIONS.items():
        if decision in present:
            handles.append(
                legend.line(decision, color=drawing.light(colour), marker=marker, markersize=6.5, linewidth=2)
            )
    if negligible is not None:
        handles.append(legend.line(f"{100 * negligible:g} %: negligible", **targets.BOUND))
    return handles


def figure_caption(rows: Sequence[Row], negligible: float | None) -> str:
    """Return the caption: estimate, rule, and the numbers of models and images."""
    if negligible is None:
        bound = "a negligible share"
    else:
        bound = f"{100 * negligible:g} %"
    numbers = {}
    for name in ("models", "images", "controls"):
        numbers[name] = format_range([row[name] or 0 for row in rows])
    return (
        "The share of D_Q that models with the target's effect hold, estimated from models trained on known shares. "
        "The line ends at the lower and the upper limit, each at 95 % on its side; an upper limit of 100 % includes "
        "every share beyond the largest known one. Not forgotten: more certain about D_Q than chance explains "
        f"(randomisation test, p <= .025 over all targets). Forgotten: no such difference, and an upper limit of at "
        f"most {bound}. Not assessable: outputs on the control set differ from those of calibration models. n: "
        f"{numbers['models']} models of each target, {numbers['images']} images of D_Q, {numbers['controls']} of the "
        "control set."
    )


def _describe_decision(row: Row) -> str:
    words = f"{row['name']}: {row['decision']}, p = {drawing.format_number(row['p_adjusted'])}"
    if finite(row["share"]):
        ends = drawing.format_interval(100 * row["share_low"], 100 * row["share_high"])
        words += f", {drawing.format_number(100 * row['share'])} %{ends} of D_Q held"
    return f"{words}."
