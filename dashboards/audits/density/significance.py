"""The significance of the scores: p-values, and the share significant after adjustment for multiple testing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dashboards import drawing, layout
from dashboards.audits.density import kinds
from dashboards.audits.density.observations import Array, Observations
from dashboards.figure import Figure
from tasks.audits.density.tail import LEVEL, alone

Groups = list[tuple[str, int, int]]  # name, significant and all observations of each
BINS = 20
# Quantiles of the published score between which observations are asked together how many are significant.
GROUPS = (0.0, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0)
NAMES = ("0–50", "50–75", "75–90", "90–95", "95–99", "99–99.9", "> 99.9")


def significance(seen: Observations, dependent: bool = False) -> Figure | None:
    """The histogram of the p-values over the uniform one, and the share significant by how high the score is.

    `dependent`: the p-values are those of rows that were left out one by one, and adjusted as such.
    """
    p, adjusted, score = (seen.column(name) for name in ("p_value", "p_adjusted", "m"))
    if not len(p) or not len(adjusted) or not len(score):
        return None
    there = ~np.isnan(p) & ~np.isnan(adjusted) & ~np.isnan(score)
    p, significant = p[there], adjusted[there] <= LEVEL
    if not len(p):
        return None
    groups = significant_shares(score[there], significant)
    title = "Which scores are more than chance?"
    return Figure(
        "significance",
        title,
        figure_caption(p, dependent),
        describe_significance(p, int(significant.sum()), groups),
        draw_svg(p, groups),
    )


def draw_svg(p: Array, groups: Groups) -> str:
    """The histogram above and the shares below, as SVG."""
    panel, apart = 1.5, 0.95
    figure = drawing.canvas(2 * panel + apart + 0.68)
    draw_histogram(layout.wide_axes(figure, 0.55 + panel + apart, panel), p)
    draw_group_shares(layout.wide_axes(figure, 0.55, panel), groups)
    return drawing.svg(figure, "significance")


def figure_caption(p: Array, dependent: bool) -> str:
    """The caption of the figure."""
    n, smallest = len(p), float(p.min())
    needed = math.ceil(smallest / alone(n, dependent))
    procedure = "Benjamini-Yekutieli" if dependent else "Benjamini-Hochberg"
    return (
        f"Above: p-values of {n:,} observations: how often M, less what is negligible, would be as large had other "
        f"models held the observation out, drawn anew. Dashed: {n / BINS:,.4g} in each bar, where training raises "
        f"log p by just that. Below: the share significant at a false discovery rate of {LEVEL:.0%} by where the "
        "published score stands among all, without intervals, since all are of the same models; dashed: of all. The "
        f"smallest p found is {drawing.format_number(smallest)}; at this p "
        f"{format_observations(needed)} would have to have it before any "
        f"is significant ({procedure})."
    )


def describe_significance(p: Array, significant: int, groups: Groups) -> str:
    """How many observations are significant, of all and by how high the score is, in words."""
    n, least = len(p), int((p <= LEVEL).sum())
    return (
        f"{kinds.format_share(significant, n)} observations are significant at a false discovery rate of {LEVEL:.0%}; "
        f"{kinds.format_share(least, n)} have p at most {LEVEL}, {LEVEL:.0%} expected by chance. Smallest p "
        f"{drawing.format_number(float(p.min()))}, median "
        f"{drawing.format_number(float(np.median(p)))}. Significant by percentile of "
        "the published score: " + ", ".join(f"{name} {kinds.format_share(hits, of)}" for name, hits, of in groups) + "."
    )


def format_observations(needed: int) -> str:
    """So many observations, in words."""
    return f"{needed:,} observation{'s'[: needed != 1]}"


def significant_shares(score: Array, significant: Any) -> Groups:
    """The groups that have observations, the lowest scores first."""
    edges = np.quantile(score, GROUPS[1:-1])
    group = np.searchsorted(edges, score, side="left")
    groups = []
    for at, name in enumerate(NAMES):
        chosen = group == at
        if chosen.any():
            groups.append((name, int(significant[chosen].sum()), int(chosen.sum())))
    return groups


def draw_histogram(axes: Any, p: Array) -> None:
    """The histogram of p-values, with a line at the uniform one."""
    edges = np.linspace(0, 1, BINS + 1)
    counts = np.histogram(p, edges)[0]
    axes.stairs(counts, edges, fill=True, color=drawing.light("twin-band"))
    axes.stairs(counts, edges, color=drawing.light("twin"), linewidth=1.2)
    axes.axhline(len(p) / BINS, **drawing.NULL)
    axes.set_xlim(-0.01, 1.01)
    drawing.set_ticks(axes, up=4)
    axes.set_xlabel("p-value of the published score")
    axes.set_ylabel("observations")


def draw_group_shares(axes: Any, groups: Groups) -> None:
    """The share significant in each group, over that of all."""
    places = np.arange(len(groups))
    value = np.array([hits / of for _, hits, of in groups], np.float64)
    accent = drawing.light("accent")
    axes.axhline(sum(hits for _, hits, _ in groups) / max(1, sum(of for *_, of in groups)), **drawing.NULL)
    axes.plot(places, value, "o", color=accent, markersize=5.5)
    axes.set_xlim(-0.5, len(groups) - 0.5)
    axes.set_ylim(-0.03, 1.03)
    drawing.set_ticks(axes)
    axes.set_xticks(places, [name for name, *_ in groups])
    axes.grid(axis="x", visible=False)
    axes.set_xlabel("percentile of the published score")
    axes.set_ylabel("share significant")
