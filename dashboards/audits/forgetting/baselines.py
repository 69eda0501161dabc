"""Published unlearning measures for each target, compared with their values after retraining."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dashboards import drawing, layout, legend
from dashboards.chart import Array, Axis, Chart, Figure, Panel, marks
from dashboards.columns import integers, numbers, texts, with_columns
from dashboards.summary import fit_words, format_range

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMES: Mapping[str, str] = {"u_lira": "U-LiRA accuracy", "quality": "forgetting quality", "privleak": "PrivLeak"}
NEEDED = {f"{name}{end}" for name in NAMES for end in ("", "_low", "_high")} | {"name", "models", "quality_null"}
# Names that fit on narrow axes.
AXES: Mapping[str, str] = {"u_lira": "U-LiRA", "quality": "quality", "privleak": "PrivLeak"}
GAP = 0.2  # inches between panels
STEP = 0.3  # inches per row


@with_columns(NEEDED)
def baselines(table: pa.Table) -> Figure | None:
    """Draw one panel per measure and one row per target. Returns None if no target has a value."""
    visible_rows = table.slice(0, layout.MOST)
    names = texts(visible_rows, "name").tolist()
    values = {name: numbers(visible_rows, name) for name in NAMES}
    if all(np.isnan(rows).all() for rows in values.values()):
        return None
    caption = (
        "Published measures of unlearning, from the same confidences, with the calibration models as retrained models. "
        "Dashed: the value after retraining. U-LiRA: accuracy of an attacker who distinguishes an unlearned from a "
        "retrained model, image by image. Forgetting quality (NeurIPS 2023): 1 if no attack succeeds; with few models, "
        "attacks also succeed by chance. PrivLeak (MUSE): below 0 the target is more certain about D_Q than about the "
        "control set, above 0 less certain. These measures decide nothing here. Bars: 95 % intervals over models. n: "
        f"{format_range(integers(visible_rows, 'models').tolist())} of each target."
        f"{layout.left_out_note(visible_rows.num_rows, table.num_rows, 'targets')}"
    )
    alt = " ".join(_describe_measures(visible_rows, row, name) for row, name in enumerate(names))
    short = [fit_words(name.split(", "), layout.LETTERS) for name in names]
    label_width = 0.25 + 0.085 * max(map(len, short))
    width = (drawing.WIDTH - label_width - layout.RIGHT - 2 * GAP) / len(NAMES)
    panels = []
    for index, column in enumerate(AXES):
        box = (label_width + index * (width + GAP), 0.5, width, STEP * len(names))
        panels.append(_measure_panel(box, visible_rows, column, values[column], [""] * len(short) if index else short))
    return Chart(
        "baselines",
        "What do published measures of unlearning show?",
        caption,
        alt,
        STEP * len(names) + 0.8,
        panels,
        [legend.line("after retraining", **drawing.NULL)],
    ).figure()


def _describe_measures(table: pa.Table, row: int, name: str) -> str:
    descriptions = []
    for column, title in NAMES.items():
        value, low, high = (numbers(table, f"{column}{end}")[row] for end in ("", "_low", "_high"))
        if np.isnan(value):
            descriptions.append(f"{title} none")
        else:
            if np.isnan(low):
                interval = ""
            else:
                interval = f" [{drawing.format_number(low)}, {drawing.format_number(high)}]"
            descriptions.append(f"{title} {drawing.format_number(value)}{interval}")
    return f"{name}: {', '.join(descriptions)}."


def _measure_panel(box: layout.Box, table: pa.Table, column: str, values: Array, names: Sequence[str]) -> Panel:
    """Draw a measure for each target with an interval, compared with the value after retraining."""
    y = np.arange(len(names))[::-1]
    nulls = null_values(table, column)
    low, high = (numbers(table, f"{column}_{end}") for end in ("low", "high"))
    has_interval = ~np.isnan(low)
    all_values = np.concatenate([values, low, high, nulls])
    finite_values = all_values[~np.isnan(all_values)].tolist()

    def draw_intervals(axes: Axes) -> None:
        axes.plot(np.stack([nulls, nulls]), np.stack([y - 0.4, y + 0.4]), **drawing.NULL)
        axes.hlines(
            y[has_interval], low[has_interval], high[has_interval], linewidth=1.8, color=drawing.light("accent")
        )

    def finish(axes: Axes) -> None:
        axes.set_yticks(y, names, color=drawing.light("ink"))
        axes.set_xlabel(AXES[column], fontsize=drawing.TEXT - 1)
        drawing.hide_y_axis(axes)

    return Panel(
        box,
        [draw_intervals, marks(values, y, "accent", "D", 4.5)],
        Axis(limits=drawing.padded_limits(finite_values) if finite_values else None, max_ticks=2),
        Axis(limits=(-0.6, len(names) - 0.4)),
        finish=[finish],
    )


def null_values(table: pa.Table, column: str) -> Array:
    """Return the value of the measure for a retrained target. NaN if it is not measured."""
    if column == "quality":
        return numbers(table, "quality_null")
    null: Array = np.where(np.isnan(numbers(table, column)), np.nan, 0.5 if column == "u_lira" else 0.0)
    return null
