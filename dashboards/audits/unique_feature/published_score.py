"""The published black-box score and its test, for canary models and twins."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dashboards import drawing, legend
from dashboards.audits.unique_feature.pairs import (
    LINES,
    PREFIXES,
    Array,
    Pairs,
    describe_pairs,
    legend_entries,
    line_legend_entries,
    mark,
)
from dashboards.chart import Figure

LEVEL = 0.05
JOINED = 60  # pairs that are joined by a line at most


def divergences(pairs: Pairs) -> Figure | None:
    """Each model's average divergence with the feature over that with random patches; M is the height over the line."""
    names = [f"{prefix}average_{d}" for prefix in PREFIXES.values() for d in ("d_r", "d_u")]
    canary_r, canary_u, twin_r, twin_u = pairs.columns(*names)
    n = len(canary_r)
    if not n:
        return None
    caption = (
        "How far predictions move (KL divergence, averaged over the probe images) with the feature and with random "
        f"patches, for {describe_pairs(n)}. Dashed: equal, so M is 0; above it the paper calls the "
        "feature memorised. " + ("A line joins a model to its twin of the same seed. " if n <= JOINED else "") + "One "
        "training each: no intervals."
    )
    above = [int((u > r).sum()) for u, r in ((canary_u, canary_r), (twin_u, twin_r))]
    medians = [drawing.format_number(float(np.median(values))) for values in (canary_u, canary_r, twin_u, twin_r)]
    alt = (
        f"{above[0]} of {n} canary models and {above[1]} of {n} twins lie above the line. Median d_u and d_r: "
        f"{medians[0]} and {medians[1]} of canary models, {medians[2]} and {medians[3]} of twins."
    )
    title = "Does the feature move predictions more than random patches do?"
    svg = draw_scatter((canary_r, canary_u), (twin_r, twin_u))
    return Figure("divergences", title, caption, alt, svg)


def draw_scatter(canaries: tuple[Array, Array], twins: tuple[Array, Array]) -> str:
    """The divergences of both kinds of models, d_r across and d_u upwards, as SVG."""
    n = len(canaries[0])
    figure = drawing.canvas(3.9)
    axes = drawing.add_axes(figure, 1.2, 0.6, 3.0, 3.0)
    most = max(float(values.max()) for values in (*canaries, *twins)) or 1.0
    limits = (-0.02 * most, 1.06 * most)
    axes.plot(limits, limits, **drawing.NULL)
    if n <= JOINED:
        joined = ([canaries[0], twins[0]], [canaries[1], twins[1]])
        axes.plot(*joined, color=drawing.light("canary-thread"), linewidth=0.9)
    for model, values in (("twin", twins), ("canary", canaries)):
        axes.plot(*values, **mark(model, n))
    axes.set_xlim(*limits)
    axes.set_ylim(*limits)
    drawing.set_ticks(axes, 4, 4)
    axes.set_xlabel("random patches: average d_r, nats")
    axes.set_ylabel("the feature: average d_u, nats")
    legend.add_above(figure, legend_entries(n))
    return drawing.svg(figure, "divergences")


def calls(pairs: Pairs) -> Figure | None:
    """The distribution of the published test's p-values over the models, against that of a sound test."""
    p_values = {model: np.sort(pairs.columns(f"{prefix}m_welch_p")[0]) for model, prefix in PREFIXES.items()}
    if not all(len(of_model) for of_model in p_values.values()):
        return None
    called = {model: f"{int((p < LEVEL).sum())} of {len(p)}" for model, p in p_values.items()}
    caption = (
        f"Share of models whose p-value is at most p; upright line: p = {LEVEL}. The test (Welch, one-tailed) takes "
        "probe images for its sample. The twins never saw the feature: under a sound test theirs would follow the "
        "dotted diagonal or stay below it. One training each: no intervals."
    )
    medians = ", ".join(
        f"{drawing.format_number(float(np.median(p)))} of {model} models" for model, p in p_values.items()
    )
    alt = (
        f"The published test calls {called['canary']} canary models memorised at p < {LEVEL}, and {called['twin']} "
        f"twins; a sound test would call about {LEVEL:.0%} of the twins. Median p: {medians}."
    )
    title = "How often does the published test call a model memorised that never saw the feature?"
    return Figure("published-test", title, caption, alt, draw_distributions(p_values))


def draw_distributions(p_values: Mapping[str, Array]) -> str:
    """The empirical distributions of sorted p-values, a line for each kind of model, as SVG."""
    figure = drawing.canvas(2.9)
    axes = drawing.add_axes(figure, 0.65, 0.55, drawing.WIDTH - 0.85, 2.0)
    axes.plot([0, 1], [0, 1], color=drawing.light("muted"), linewidth=1.2, linestyle=(0, (1, 2)))
    axes.axvline(LEVEL, color=drawing.light("muted"), linewidth=0.9)
    for model, p in p_values.items():
        axes.plot(*cdf_steps(p), color=drawing.light(model), linewidth=2, linestyle=LINES[model])
    axes.set_xlim(-0.015, 1.015)
    axes.set_ylim(0, 1.04)
    drawing.set_ticks(axes)
    axes.set_xlabel("p of the published t-test, M > 0")
    axes.set_ylabel("share of models up to p")
    legend.add_above(figure, line_legend_entries())
    return drawing.svg(figure, "published-test")


def cdf_steps(ordered: Array) -> tuple[Array, Array]:
    """The empirical distribution of sorted values in [0, 1], as a path."""
    shares = np.arange(1, len(ordered) + 1) / len(ordered)
    x = np.concatenate([[0.0], ordered.repeat(2), [1.0]])
    y = np.concatenate([[0.0, 0.0], shares.repeat(2)[:-1], [1.0]])
    return x, y
