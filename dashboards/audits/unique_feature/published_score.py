"""The published black-box score and its test, for canary models and control models."""

from __future__ import annotations

from typing import Any

import numpy as np

from dashboards import drawing
from dashboards.audits.unique_feature.pairs import (
    KIND_NAMES,
    LINES,
    PREFIXES,
    Pairs,
    describe_pairs,
    legend_entries,
    line_legend_entries,
    mark,
)
from dashboards.chart import Axis, Chart, Figure, Panel, cdf, line, upright

LEVEL = 0.05
JOINED = 60  # maximum number of pairs joined by a line


def divergences(pairs: Pairs) -> Figure | None:
    """Draw each model's mean divergence with the feature against that with random patches.

    M is the height above the diagonal.
    """
    names = []
    for prefix in PREFIXES.values():
        for d in ("d_r", "d_u"):
            names.append(f"{prefix}average_{d}")
    canary_r, canary_u, twin_r, twin_u = pairs.columns(*names)
    n = len(canary_r)
    if not n:
        return None
    caption = (
        "Change of predictions (KL divergence, mean over the probe images) with the feature and with random patches, "
        f"for {describe_pairs(n)}. Dashed: equal, so M is 0; above it the paper calls the feature memorised. "
        + ("A line joins the two models of a pair. " if n <= JOINED else "")
        + "One training each: no intervals."
    )
    above = [int((u > r).sum()) for u, r in ((canary_u, canary_r), (twin_u, twin_r))]
    medians = []
    for values in (canary_u, canary_r, twin_u, twin_r):
        medians.append(drawing.format_number(float(np.median(values))))
    alt = (
        f"{above[0]} of {n} canary models and {above[1]} of {n} control models lie above the line. Median d_u and d_r: "
        f"{medians[0]} and {medians[1]} of canary models, {medians[2]} and {medians[3]} of control models."
    )
    title = "Does the feature change predictions more than random patches do?"
    largest = max(float(values.max()) for values in (canary_r, canary_u, twin_r, twin_u)) or 1.0
    limits = (-0.02 * largest, 1.06 * largest)

    def draw_marks(axes: Any) -> None:
        axes.plot(limits, limits, **drawing.NULL)
        if n <= JOINED:
            axes.plot([canary_r, twin_r], [canary_u, twin_u], color=drawing.light("canary-thread"), linewidth=0.9)
        axes.plot(twin_r, twin_u, **mark("twin", n))
        axes.plot(canary_r, canary_u, **mark("canary", n))

    panel = Panel(
        (1.2, 0.6, 3.0, 3.0),
        [draw_marks],
        Axis("random patches: average d_r, nats", limits, 4),
        Axis("the feature: average d_u, nats", limits, 4),
    )
    return Chart("divergences", title, caption, alt, 3.9, [panel], legend_entries(n)).figure()


def calls(pairs: Pairs) -> Figure | None:
    """Draw the distribution of the published test's p-values over the models, compared with that of a valid test."""
    p_values = {}
    for model, prefix in PREFIXES.items():
        p_values[model] = np.sort(pairs.columns(f"{prefix}m_welch_p")[0])
    if not all(len(of_model) for of_model in p_values.values()):
        return None
    call_counts = {}
    for model, p in p_values.items():
        call_counts[model] = f"{int((p < LEVEL).sum())} of {len(p)}"
    caption = (
        f"Share of models whose p-value is at most p; vertical line: p = {LEVEL}. The test (Welch, one-tailed) treats "
        "probe images as the sample. Control models never saw the feature: in a valid test, their line would follow "
        "the dotted diagonal or stay below it. One training each: no intervals."
    )
    medians = ", ".join(
        f"{drawing.format_number(float(np.median(p)))} of {KIND_NAMES[model]} models" for model, p in p_values.items()
    )
    alt = (
        f"The published test calls {call_counts['canary']} canary models memorised at p < {LEVEL}, and "
        f"{call_counts['twin']} control models; a valid test would call about {LEVEL:.0%} of these. Median p: "
        f"{medians}."
    )
    title = "How often does the published test accuse a model that never saw the feature?"
    lines = []
    for model, p in p_values.items():
        lines.append(line(*cdf(p, 0.0, 1.0), model, linewidth=2, linestyle=LINES[model]))
    panel = Panel(
        (0.65, 0.55, drawing.WIDTH - 0.85, 2.0),
        [
            line([0, 1], [0, 1], "muted", linewidth=1.2, linestyle=(0, (1, 2))),
            upright(LEVEL, {"color": drawing.light("muted"), "linewidth": 0.9}),
            *lines,
        ],
        Axis("p of the published t-test, M > 0", (-0.015, 1.015)),
        Axis("share of models up to p", (0, 1.04)),
    )
    return Chart("published-test", title, caption, alt, 2.9, [panel], line_legend_entries()).figure()
