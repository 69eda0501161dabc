"""When in training does memorization begin? m by epoch, as in the panels of figure 3."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dashboards import drawing, layout, legend
from dashboards.audits.relational.curves import SCORES, Curve, curve, draw, epochs
from dashboards.figure import Figure

PANEL = 2.1  # inches
GOLDS = {"one": "one gold answer on both parts", "all": "all gold answers, as published"}
Curves = dict[tuple[str, str], Curve]  # by score and gold answers


def memorization(table: pa.Table) -> Figure | None:
    """m by exact match and by F1, with one gold answer on both parts and as published."""
    shown: Curves = {}
    for score in SCORES:
        for golds in GOLDS:
            found = curve(table, "m", score, golds)
            if found is not None:
                shown[score, golds] = found
    if not shown:
        return None
    if all(same(shown[score, "one"], found) for (score, golds), found in shown.items() if golds == "all"):
        shown = {(score, golds): found for (score, golds), found in shown.items() if golds == "one"}
    alt = " ".join(
        f"m by {SCORES[score]}, {GOLDS[golds]}: {found.in_words()} at the end."
        for (score, golds), found in shown.items()
    )
    several = any(golds == "all" for _, golds in shown)
    caption = (
        "m: the share of corrupted contexts on which a training question is still answered rightly, less that of "
        "held-out questions. Bands: 95 % intervals of resampled contexts. Dashed line: 0, nothing memorised. The "
        "answer rests on exact match with one gold answer on both parts"
    )
    caption += (
        "; as published, several gold answers count of held-out questions, which lowers m where there are several."
        if several
        else "."
    )
    return Figure("memorization", "Are hidden answers given from memory?", caption, alt, drawn(shown))


def same(one: Curve, other: Curve) -> bool:
    """Whether two curves have equal values, as where no question has several gold answers."""
    return np.array_equal(one.value, other.value, equal_nan=True)


def drawn(shown: Curves) -> str:
    """The curves as SVG, a panel for each score."""
    scores = list(dict.fromkeys(score for score, _ in shown))
    drawn_golds = list(dict.fromkeys(golds for _, golds in shown))
    figure = drawing.canvas(PANEL * len(scores) + 0.4 + legend.height(len(drawn_golds), 1))
    panels = layout.stacked(figure, len(scores), PANEL)
    looks = dict(zip(GOLDS, drawing.SERIES, strict=False))
    for axes, score in zip(panels, scores, strict=True):
        axes.set_title(f"m by {SCORES[score]}", fontsize=drawing.TEXT)
        axes.axhline(0, **drawing.NULL)
        of_score = [(golds, found) for (name, golds), found in shown.items() if name == score]
        for golds, found in reversed(of_score):
            draw(axes, found, *looks[golds], band=golds == "one")
        epochs(axes, [found for _, found in of_score], axes is panels[-1])
    handles = [
        legend.line(
            GOLDS[golds], color=drawing.light(looks[golds][0]), marker=looks[golds][1], linestyle=looks[golds][2]
        )
        for golds in drawn_golds
    ]
    legend.above(figure, handles, 1)
    return drawing.svg(figure, "memorization")
