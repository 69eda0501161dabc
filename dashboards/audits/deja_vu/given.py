"""What a given encoder tells of pictures it was trained on and of held-out ones, beside its reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from dashboards import drawing, layout, legend
from dashboards.audits.deja_vu import attacked
from dashboards.audits.deja_vu.courses import NAMES as ROLES
from dashboards.audits.deja_vu.courses import REFERENCE, TARGET, Course, course, draw, percent_of
from dashboards.columns import integers, texts
from dashboards.figure import Figure

CORRECTED = "corrected"
NAMES = dict(zip(ROLES, ("given encoder", "reference"), strict=True))
LOOKS = dict(zip(ROLES, (TARGET, REFERENCE), strict=True))
SETS = {"A": "the encoder was trained on them", "B": "held out"}
HIGH, APART = 1.55, 0.6  # inches of a panel, and between two


def accuracy_of_given(table: pa.Table) -> Figure | None:
    """The accuracies of both models on both sets, and the corrected score below; None for models trained here."""
    if not {*attacked.Attack._fields, "way"} <= set(table.column_names):
        return None
    found = attacked.attacks(table)
    if not found or CORRECTED not in texts(table, "way"):
        return None
    last = attacked.decisive(found)
    rows = attacked.of(table, last)
    percent = percent_of(rows)
    panels = {
        name: {column: shown for column in NAMES if (shown := course(of_way(rows, name), "percent", column))}
        for name in SETS
    }
    score = course(of_way(rows, CORRECTED), "percent", "score")
    if score is None:
        return None
    n = int(integers(of_way(rows, CORRECTED), "pictures").max())
    caption = (
        "Neighbours of a picture's background vote for the object that was before it. The share they name rightly "
        "among the pictures on which they agree most, by the given encoder and by its reference: of pictures that the "
        "encoder was trained on, above, and of pictures that neither was trained on. Below, the corrected deja vu "
        "score: what the encoder tells more than the reference, less the same of held-out pictures; 0 where nothing is "
        f"memorised. Upright: at {percent} %, where it decides. Bands: 95 % intervals over pictures, n {n:,} in all, "
        f"at layer {last.layer} of the reference, of {last.k} neighbours."
    )
    alt = " ".join(
        [f"{SETS[name].capitalize()}: {told(of_set, percent)} named rightly." for name, of_set in panels.items()]
        + [f"Corrected deja vu score at {percent} %: {at(score, percent)}."]
    )
    title = "Does the encoder tell more of the pictures it was trained on?"
    return Figure("accuracy", title, caption, alt, drawn(panels, score, percent))


def of_way(rows: pa.Table, way: str) -> pa.Table:
    return rows.take(pa.array(np.flatnonzero(texts(rows, "way") == way)))


def told(shown: dict[str, Course], percent: int) -> str:
    """Both accuracies at this percentage, in words."""
    return ", ".join(f"{NAMES[name]} {at(each, percent)}" for name, each in shown.items())


def at(shown: Course, percent: int) -> str:
    return shown.in_words(int(np.abs(shown.places - percent).argmin()))


def drawn(panels: dict[str, dict[str, Course]], score: Course, percent: int) -> str:
    """The panels as SVG, below one another."""
    step = HIGH + APART
    figure = drawing.canvas(step * 3 + 0.1 + legend.ROW)
    for number, (name, shown) in enumerate(panels.items()):
        axes = layout.wide(figure, 0.5 + step * (2 - number), HIGH)
        upright(axes, percent)
        for column, each in reversed(shown.items()):
            draw(axes, each, LOOKS[column])
        highest = max((float(np.nanmax(each.high)) for of in panels.values() for each in of.values()), default=1.0)
        axes.set_ylim(*drawing.span([0.0, max(highest, 0.01)]))
        axes.set_title(f"{name}: {SETS[name]}", fontsize=drawing.TEXT - 1)
        axes.set_ylabel("named rightly, share")
        drawing.ticks(axes, 6, 4)
    axes = layout.wide(figure, 0.5, HIGH)
    axes.axhline(0, **drawing.NULL)
    upright(axes, percent)
    draw(axes, score, TARGET)
    ends = [float(value) for values in (score.low, score.high) for value in values[~np.isnan(values)]]
    axes.set_ylim(*drawing.span([0.0, *ends]))
    axes.set_xlabel("most confident pictures, %")
    axes.set_ylabel("corrected score")
    drawing.ticks(axes, 6, 4)
    legend.above(figure, entries())
    return drawing.svg(figure, "accuracy")


def upright(axes: Any, percent: int) -> None:
    axes.axvline(percent, color=drawing.light("muted"), linewidth=0.9)
    axes.set_xlim(0, 101)


def entries() -> list[Any]:
    return [
        legend.line(name, color=drawing.light(LOOKS[column][0]), linestyle=LOOKS[column][2], linewidth=1.5)
        for column, name in NAMES.items()
    ]
