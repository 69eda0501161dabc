"""Learning and memorization of linear models over time, as in figures 1 and 5."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dashboards import drawing, layout, legend
from dashboards.columns import numbers
from dashboards.figure import Figure

PANEL = 2.1  # inches
LINES: dict[str, tuple[str, str, Any]] = {
    "learning": ("1 - loss", "twin", "-"),
    "memorization": ("memorization, raw query", "canary", (0, (4, 2))),
}
NULL = 0.5


def flow(table: pa.Table) -> Figure | None:
    """A panel for each size, with the bands of intervals over trainings."""
    if not {"samples", "features", "time", *LINES} <= set(table.column_names) or not table.num_rows:
        return None
    sizes = list(dict.fromkeys((row["samples"], row["features"]) for row in table.to_pylist()))
    parts = [size_rows(table, *size) for size in sizes]
    trainings = sorted({int(count) for count in numbers(table, "n")})
    caption = (
        "Linear models trained to tell x from z = (x, y) by gradient flow from 0, on Gaussian samples. Learning is 1 "
        "less the loss; memorization 1 less the error of the answer to [0, y], which does not contain x. Both are "
        "about 1/2 where every answer is 0 (dashed): memorization above it is memory. Bands: 95 % intervals over "
        f"{' to '.join(map(str, trainings[:: max(1, len(trainings) - 1)]))} trainings, each on samples of its own."
    )
    alt = " ".join(describe_size(*size, part) for size, part in zip(sizes, parts, strict=True))
    return Figure("linear", "How does a linear model memorise over time?", caption, alt, draw_svg(sizes, parts))


def size_rows(table: pa.Table, samples: int, features: int) -> pa.Table:
    """The rows of one size, by time."""
    kept = (numbers(table, "samples") == samples) & (numbers(table, "features") == features)
    return table.take(pa.array(np.flatnonzero(kept))).sort_by("time")


def describe_size(samples: int, features: int, part: pa.Table) -> str:
    values, times = numbers(part, "memorization"), numbers(part, "time")
    at = int(np.argmax(values))
    return (
        f"{samples} samples, {features} features: memorization is highest, "
        f"{drawing.format_number(float(values[at]))}, at "
        f"time {drawing.format_number(float(times[at]))}, and {drawing.format_number(float(values[-1]))} at the end."
    )


def draw_svg(sizes: Sequence[tuple[int, int]], parts: Sequence[pa.Table]) -> str:
    """The curves as SVG."""
    figure = drawing.canvas(PANEL * len(parts) + 0.4 + legend.height(len(LINES)))
    panels = layout.stack_axes(figure, len(parts), PANEL)
    for axes, (samples, features), part in zip(panels, sizes, parts, strict=True):
        axes.set_title(f"n = {samples} samples, d = {features} features", fontsize=drawing.TEXT)
        axes.axhline(NULL, **drawing.NULL)
        times = numbers(part, "time")
        for name, (_, colour, dash) in LINES.items():
            low, high = (numbers(part, f"{name}_{end}") for end in ("low", "high"))
            look: dict[str, Any] = {"color": drawing.light(colour)}
            axes.fill_between(times, low, high, alpha=0.2, linewidth=0, **look)
            axes.plot(times, numbers(part, name), linestyle=dash, linewidth=1.5, **look)
        axes.set_ylim(0.3, 1.03)
        drawing.set_ticks(axes, up=4)
        drawing.set_log_x_axis(axes, times.tolist())
    for axes in panels[:-1]:
        axes.tick_params(labelbottom=False)
    panels[-1].set_xlabel("time: steps times learning rate")
    handles = [
        legend.line(label, color=drawing.light(colour), linestyle=dash, linewidth=1.5)
        for label, colour, dash in LINES.values()
    ]
    legend.add_above(figure, handles)
    return drawing.svg(figure, "linear")
