"""What a given encoder tells of pictures it was trained on and of held-out ones, beside its reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from dashboards import drawing, layout, legend
from dashboards.audits.deja_vu import attacks
from dashboards.audits.deja_vu.curves import NAMES as ROLES
from dashboards.audits.deja_vu.curves import REFERENCE, TARGET, Curve, decisive_percent, draw_curve, read_curve
from dashboards.columns import integers, texts
from dashboards.figure import Figure

CORRECTED = "corrected"
NAMES = dict(zip(ROLES, ("given encoder", "reference"), strict=True))
LOOKS = dict(zip(ROLES, (TARGET, REFERENCE), strict=True))
SETS = {"A": "the encoder was trained on them", "B": "held out"}
HIGH, APART = 1.55, 0.6  # inches of a panel, and between two


def accuracy_of_given(table: pa.Table) -> Figure | None:
    """The accuracies of both models on both sets, and the corrected score below; None for models trained here."""
    if not {*attacks.Attack._fields, "way"} <= set(table.column_names):
        return None
    found = attacks.read_attacks(table)
    if not found or CORRECTED not in texts(table, "way"):
        return None
    last = attacks.decisive_attack(found)
    rows = attacks.attack_rows(table, last)
    percent = decisive_percent(rows)
    panels = {
        name: {column: shown for column in NAMES if (shown := read_curve(way_rows(rows, name), "percent", column))}
        for name in SETS
    }
    score = read_curve(way_rows(rows, CORRECTED), "percent", "score")
    if score is None:
        return None
    n = int(integers(way_rows(rows, CORRECTED), "pictures").max())
    caption = (
        "Neighbours of a picture's background vote for the object that was before it. The share they name rightly "
        "among the pictures on which they agree most, by the given encoder and by its reference: of pictures that the "
        "encoder was trained on, above, and of pictures that neither was trained on. Below, the corrected deja vu "
        "score: what the encoder tells more than the reference, less the same of held-out pictures; 0 where nothing is "
        f"memorised. Upright: at {percent} %, where it decides. Bands: 95 % intervals over pictures, n {n:,} in all, "
        f"at layer {last.layer} of the reference, of {last.k} neighbours."
    )
    alt = " ".join(
        [
            f"{SETS[name].capitalize()}: {describe_accuracies(of_set, percent)} named rightly."
            for name, of_set in panels.items()
        ]
        + [f"Corrected deja vu score at {percent} %: {describe_estimate(score, percent)}."]
    )
    title = "Does the encoder tell more of the pictures it was trained on?"
    return Figure("accuracy", title, caption, alt, draw_svg(panels, score, percent))


def way_rows(rows: pa.Table, way: str) -> pa.Table:
    return rows.take(pa.array(np.flatnonzero(texts(rows, "way") == way)))


def describe_accuracies(shown: dict[str, Curve], percent: int) -> str:
    """Both accuracies at this percentage, in words."""
    return ", ".join(f"{NAMES[name]} {describe_estimate(each, percent)}" for name, each in shown.items())


def describe_estimate(shown: Curve, percent: int) -> str:
    return shown.describe(int(np.abs(shown.places - percent).argmin()))


def draw_svg(panels: dict[str, dict[str, Curve]], score: Curve, percent: int) -> str:
    """The panels as SVG, below one another."""
    step = HIGH + APART
    figure = drawing.canvas(step * 3 + 0.1 + legend.ROW)
    for number, (name, shown) in enumerate(panels.items()):
        axes = layout.wide_axes(figure, 0.5 + step * (2 - number), HIGH)
        draw_percent_line(axes, percent)
        for column, each in reversed(shown.items()):
            draw_curve(axes, each, LOOKS[column])
        highest = max((float(np.nanmax(each.high)) for of in panels.values() for each in of.values()), default=1.0)
        axes.set_ylim(*drawing.padded_limits([0.0, max(highest, 0.01)]))
        axes.set_title(f"{name}: {SETS[name]}", fontsize=drawing.TEXT - 1)
        axes.set_ylabel("named rightly, share")
        drawing.set_ticks(axes, 6, 4)
    axes = layout.wide_axes(figure, 0.5, HIGH)
    axes.axhline(0, **drawing.NULL)
    draw_percent_line(axes, percent)
    draw_curve(axes, score, TARGET)
    ends = [float(value) for values in (score.low, score.high) for value in values[~np.isnan(values)]]
    axes.set_ylim(*drawing.padded_limits([0.0, *ends]))
    axes.set_xlabel("most confident pictures, %")
    axes.set_ylabel("corrected score")
    drawing.set_ticks(axes, 6, 4)
    legend.add_above(figure, legend_entries())
    return drawing.svg(figure, "accuracy")


def draw_percent_line(axes: Any, percent: int) -> None:
    axes.axvline(percent, color=drawing.light("muted"), linewidth=0.9)
    axes.set_xlim(0, 101)


def legend_entries() -> list[Any]:
    return [
        legend.line(name, color=drawing.light(LOOKS[column][0]), linestyle=LOOKS[column][2], linewidth=1.5)
        for column, name in NAMES.items()
    ]
