"""Whether models learned what they were trained on: what one has not learned it cannot be asked to have forgotten."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from dashboards import drawing
from dashboards.audits.forgetting import style
from dashboards.audits.forgetting.targets import called, grouped
from dashboards.figure import Figure
from tasks.audits.forgetting.measures.fits import ADEQUATE


def fits(table: pa.Table, names: Mapping[int, str]) -> Figure | None:
    """The training accuracy of every model, a row for each role and target."""
    found = grouped(table, "train_accuracy")
    if not found:
        return None
    shown = dict(list(found.items())[: style.MOST])
    titles = {who: called(who, names) for who in shown}
    figure, axes, y = style.rows(list(titles.values()), 2)
    axes.axvline(100 * ADEQUATE, **style.bound())
    for (who, values), height in zip(shown.items(), y.tolist(), strict=True):
        colour, marker, _ = style.ROLES[who[0]]
        apart = height + np.linspace(-0.2, 0.2, len(values)) if len(values) > 1 else np.array([height])
        low = values < ADEQUATE
        look = {"linestyle": "none", "markersize": 5.5}
        axes.plot(100 * values[~low], apart[~low], marker, color=drawing.light(colour), markeredgewidth=0, **look)
        axes.plot(100 * values[low], apart[low], "X", color=drawing.light("ink"), markeredgewidth=0, **look)
    least = min(float(values.min()) for values in shown.values())
    axes.set_xlim(*drawing.span([100 * min(least, ADEQUATE), 100.0], 0.04))
    style.named_ticks(axes)
    axes.set_xlabel("accuracy on the images trained on, %")
    handles = []
    for role in dict.fromkeys(who[0] for who in shown):
        colour, marker, _ = style.ROLES[role]
        handles.append(style.of_line(role, color=drawing.light(colour), marker=marker, markersize=5.5, linewidth=0))
    if least < ADEQUATE:
        handles.append(
            style.of_line(
                f"below {100 * ADEQUATE:g} %", color=drawing.light("ink"), marker="X", markersize=5.5, linewidth=0
            )
        )
    style.legend(figure, handles)
    below = sum(int((values < ADEQUATE).sum()) for values in found.values())
    n = sum(map(len, found.values()))
    caption = (
        "Each mark is one training: the share of the images it was trained on that it gets right when it is asked as "
        f"in use, in %. Below the line, {100 * ADEQUATE:g} %, the result warns: {below} of {n} trainings. No "
        f"intervals: every training is shown.{style.rest(len(shown), len(found), 'rows')}"
    )
    alt = " ".join(
        f"{titles[who]}: {percent(values.mean())} in the mean of {len(values)}, {percent(values.min())} to "
        f"{percent(values.max())}."
        for who, values in shown.items()
    )
    title = "Did the models learn what they were trained on?"
    return Figure(
        "fits", title, caption, f"{below} of {n} below {100 * ADEQUATE:g} %. {alt}", drawing.svg(figure, "fits")
    )


def percent(share: float) -> str:
    return f"{100 * float(share):.4g} %"
