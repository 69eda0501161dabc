"""Training accuracies: what a model has not learned it cannot have forgotten."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dashboards import drawing, layout, legend
from dashboards.audits.forgetting import roles
from dashboards.audits.forgetting.targets import ModelGroup, group_name, values_by_group
from dashboards.figure import Figure
from tasks.audits.forgetting.measures.fits import ADEQUATE

Array = NDArray[np.float64]


def fits(table: pa.Table, names: Mapping[int, str]) -> Figure | None:
    """The training accuracy of every model, a row for each role and target."""
    accuracy = values_by_group(table, "train_accuracy")
    if not accuracy:
        return None
    shown = dict(list(accuracy.items())[: layout.MOST])
    titles = {who: group_name(who, names) for who in shown}
    below = sum(int((values < ADEQUATE).sum()) for values in accuracy.values())
    n = sum(map(len, accuracy.values()))
    caption = (
        "Each mark is one training: the share of the images it was trained on that it gets right when it is asked as "
        f"in use, in %. Below the line, {100 * ADEQUATE:g} %, the result warns: {below} of {n} trainings. No "
        f"intervals: every training is shown.{layout.left_out_note(len(shown), len(accuracy), 'rows')}"
    )
    rows = " ".join(
        f"{titles[who]}: {format_percent(values.mean())} in the mean of "
        f"{len(values)}, {format_percent(values.min())} to "
        f"{format_percent(values.max())}."
        for who, values in shown.items()
    )
    alt = f"{below} of {n} below {100 * ADEQUATE:g} %. {rows}"
    return Figure("fits", "Did the models learn what they were trained on?", caption, alt, draw_svg(shown, titles))


def draw_svg(accuracy: Mapping[ModelGroup, Array], titles: Mapping[ModelGroup, str]) -> str:
    """The accuracies as SVG, a row for each role and target."""
    figure, axes, y = layout.row_axes(list(titles.values()), roles.legend_height(2))
    axes.axvline(100 * ADEQUATE, **roles.BOUND)
    look: dict[str, Any] = {"linestyle": "none", "markersize": 5.5}
    for (who, values), height in zip(accuracy.items(), y.tolist(), strict=True):
        colour, marker, _ = roles.ROLES[who[0]]
        apart = height + np.linspace(-0.2, 0.2, len(values)) if len(values) > 1 else np.array([height])
        low = values < ADEQUATE
        axes.plot(100 * values[~low], apart[~low], marker, color=drawing.light(colour), markeredgewidth=0, **look)
        axes.plot(100 * values[low], apart[low], "X", color=drawing.light("ink"), markeredgewidth=0, **look)
    least = min(float(values.min()) for values in accuracy.values())
    axes.set_xlim(*drawing.padded_limits([100 * min(least, ADEQUATE), 100.0], 0.04))
    axes.set_xlabel("accuracy on the images trained on, %")
    marks = {role: roles.ROLES[role][:2] for role in dict.fromkeys(who[0] for who in accuracy)}
    if least < ADEQUATE:
        marks[f"below {100 * ADEQUATE:g} %"] = ("ink", "X")
    entries = [
        legend.line(label, color=drawing.light(colour), marker=marker, markersize=5.5, linewidth=0)
        for label, (colour, marker) in marks.items()
    ]
    legend.add_above(figure, entries)
    return drawing.svg(figure, "fits")


def format_percent(share: float) -> str:
    return f"{100 * float(share):.4g} %"
