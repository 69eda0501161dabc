"""When in training does memorization begin? m by epoch, as in the panels of figure 3."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dashboards import drawing, layout, legend
from dashboards.audits.relational.curves import Curve, draw_curve, read_curve, set_epoch_axis
from dashboards.figure import Figure

PANEL = 1.8  # inches
GOLDS = {"one": "one gold answer on both parts", "all": "all gold answers, as published"}
# Each panel's title, with the column and the score that it shows; the first is what the answer rests on.
PANELS = {
    "relational m by exact match": ("relational_m", "exact_match"),
    "m by exact match": ("m", "exact_match"),
    "m by F1": ("m", "f1"),
}
Curves = dict[tuple[str, str], Curve]  # by panel and gold answers


def memorization(table: pa.Table) -> Figure | None:
    """m by exact match and by F1, with one gold answer on both parts and as published, below relational m."""
    shown: Curves = {}
    for panel, (column, score) in PANELS.items():
        for golds in GOLDS:
            found = read_curve(table, column, score, golds)
            if found is not None and not np.isnan(found.value).all():
                shown[panel, golds] = found
    if not shown:
        return None
    if all(same(shown[panel, "one"], found) for (panel, golds), found in shown.items() if golds == "all"):
        shown = {(panel, golds): found for (panel, golds), found in shown.items() if golds == "one"}
    alt = " ".join(
        f"{panel}, {GOLDS[golds]}: {found.describe()} at the end." for (panel, golds), found in shown.items()
    )
    several = any(golds == "all" for _, golds in shown)
    caption = (
        "m: the share of corrupted contexts on which a training question is still answered rightly, less that of "
        "held-out questions. Relational m, on which the answer rests, leaves out what comes of answers that are merely "
        "common in one part. Bands: 95 % intervals of resampled contexts. Dashed line: 0, nothing memorised. One gold "
        "answer counts on both parts"
    )
    caption += (
        "; as published, several gold answers count of held-out questions, which lowers m where there are several."
        if several
        else "."
    )
    return Figure("memorization", "Are hidden answers given from memory?", caption, alt, draw_svg(shown))


def same(one: Curve, other: Curve) -> bool:
    """Whether two curves have equal values, as where no question has several gold answers."""
    return np.array_equal(one.value, other.value, equal_nan=True)


def draw_svg(shown: Curves) -> str:
    """The curves as SVG."""
    titles = list(dict.fromkeys(panel for panel, _ in shown))
    drawn_golds = list(dict.fromkeys(golds for _, golds in shown))
    figure = drawing.canvas(PANEL * len(titles) + 0.4 + legend.height(len(drawn_golds), 1))
    panels = layout.stack_axes(figure, len(titles), PANEL)
    looks = dict(zip(GOLDS, drawing.SERIES, strict=False))
    for axes, title in zip(panels, titles, strict=True):
        axes.set_title(title, fontsize=drawing.TEXT)
        axes.axhline(0, **drawing.NULL)
        of_panel = [(golds, found) for (name, golds), found in shown.items() if name == title]
        for golds, found in reversed(of_panel):
            draw_curve(axes, found, *looks[golds], band=golds == "one")
        set_epoch_axis(axes, [found for _, found in of_panel], axes is panels[-1])
    handles = [
        legend.line(
            GOLDS[golds], color=drawing.light(looks[golds][0]), marker=looks[golds][1], linestyle=looks[golds][2]
        )
        for golds in drawn_golds
    ]
    legend.add_above(figure, handles, 1)
    return drawing.svg(figure, "memorization")
