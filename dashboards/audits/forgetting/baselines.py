"""What the field's measures of unlearning say of each target, beside what they say after retraining."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dashboards import drawing, layout, legend
from dashboards.audits.forgetting.targets import format_range
from dashboards.columns import integers, numbers, texts
from dashboards.estimates import fit_words
from dashboards.figure import Figure

Array = NDArray[np.float64]
NAMES: Mapping[str, str] = {"u_lira": "U-LiRA accuracy", "quality": "forgetting quality", "privleak": "PrivLeak"}
NEEDED = {f"{name}{end}" for name in NAMES for end in ("", "_low", "_high")} | {"name", "models", "quality_null"}
AXES: Mapping[str, str] = {"u_lira": "U-LiRA", "quality": "quality", "privleak": "PrivLeak"}  # narrow
GAP = 0.2  # inches between the panels
STEP = 0.3  # inches of a row


def baselines(table: pa.Table) -> Figure | None:
    """A panel for each measure and a row for each target; None where no target has any of them."""
    if not set(table.column_names) >= NEEDED or not table.num_rows:
        return None
    shown = table.slice(0, layout.MOST)
    names = texts(shown, "name").tolist()
    values = {name: numbers(shown, name) for name in NAMES}
    if all(np.isnan(found).all() for found in values.values()):
        return None
    caption = (
        "The published measures of unlearning, from the same confidences, with calibration models as the retrained "
        "ones. Dashed: what they are after retraining. U-LiRA: how often an attacker tells an unlearned model from a "
        "retrained one, image by image. Forgetting quality (NeurIPS 2023): 1 where no attack gets anywhere; few models "
        "are told apart by chance. PrivLeak (MUSE): below 0 the target is surer of D_Q than of the control set, above "
        "it is less sure. They decide nothing here. Bars: 95 % intervals over models. n: "
        f"{format_range(integers(shown, 'models').tolist())} of each target."
        f"{layout.left_out_note(shown.num_rows, table.num_rows, 'targets')}"
    )
    alt = " ".join(describe_measures(shown, row, name) for row, name in enumerate(names))
    return Figure(
        "baselines", "What do other measures of unlearning say?", caption, alt, draw_svg(shown, names, values)
    )


def describe_measures(table: pa.Table, row: int, name: str) -> str:
    """The three measures of a target, in words."""
    said = []
    for column, called in NAMES.items():
        value, low, high = (numbers(table, f"{column}{end}")[row] for end in ("", "_low", "_high"))
        if np.isnan(value):
            said.append(f"{called} none")
        else:
            interval = "" if np.isnan(low) else f" [{drawing.format_number(low)}, {drawing.format_number(high)}]"
            said.append(f"{called} {drawing.format_number(value)}{interval}")
    return f"{name}: {', '.join(said)}."


def draw_svg(table: pa.Table, names: list[str], values: Mapping[str, Array]) -> str:
    """The panels as SVG, side by side, with the targets' names on the left."""
    short = [fit_words(name.split(", "), layout.LETTERS) for name in names]
    left = 0.25 + 0.085 * max(map(len, short))
    height = STEP * len(names)
    figure = drawing.canvas(height + 0.8)
    width = (drawing.WIDTH - left - layout.RIGHT - 2 * GAP) / len(NAMES)
    y = np.arange(len(names))[::-1]
    look: dict[str, Any] = {"color": drawing.light("accent")}
    for place, (column, called) in enumerate(AXES.items()):
        axes = drawing.add_axes(figure, left + place * (width + GAP), 0.5, width, height)
        drawing.set_ticks(axes, across=2)
        nulls = null_values(table, column)
        axes.plot(np.stack([nulls, nulls]), np.stack([y - 0.4, y + 0.4]), **drawing.NULL)
        found, low, high = values[column], *(numbers(table, f"{column}_{end}") for end in ("low", "high"))
        axes.hlines(y[~np.isnan(low)], low[~np.isnan(low)], high[~np.isnan(low)], linewidth=1.8, **look)
        axes.plot(found, y, "D", markersize=4.5, **look)
        everything = np.concatenate([found, low, high, nulls])
        if not np.isnan(everything).all():
            axes.set_xlim(*drawing.padded_limits(everything[~np.isnan(everything)].tolist()))
        axes.set_ylim(-0.6, len(names) - 0.4)
        axes.set_yticks(y, short if not place else [""] * len(short), color=drawing.light("ink"))
        axes.set_xlabel(called, fontsize=drawing.TEXT - 1)
        drawing.hide_y_axis(axes)
    legend.add_above(figure, [legend.line("after retraining", **drawing.NULL)])
    return drawing.svg(figure, "baselines")


def null_values(table: pa.Table, column: str) -> Array:
    """What the measure is of each target where it is retrained; NaN where it is not measured."""
    if column == "quality":
        return numbers(table, "quality_null")
    null: Array = np.where(np.isnan(numbers(table, column)), np.nan, 0.5 if column == "u_lira" else 0.0)
    return null
