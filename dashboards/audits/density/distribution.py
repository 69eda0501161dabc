"""The distribution of both scores over the observations, as in figure 4c."""

from __future__ import annotations

from typing import Any

import numpy as np

from dashboards import drawing, layout, legend
from dashboards.audits.density import kinds
from dashboards.audits.density.axis_limits import describe_outside, robust_limits
from dashboards.audits.density.observations import Array, Observations
from dashboards.audits.density.score_statistics import Statistics
from dashboards.figure import Figure
from tasks.audits.density.highly_memorised import HIGH, highly_memorised_mask

PANEL = 1.55  # inches
BINS = 70  # at most
NULLS: dict[str, Any] = {"linewidth": 1.8, "linestyle": (0, (1, 1.5))}


def distribution(seen: Observations, statistics: Statistics) -> Figure | None:
    """Histograms of both scores on one axis, with 0, the median and what the median is where nothing is memorised."""
    known = {score: values[~np.isnan(values)] for score, values in seen.scores.items()}
    scores = {score: known[score] for score in kinds.SCORES if score in known}
    if not scores:
        return None
    nulls = {score: statistics.null(score, "median") for score in scores}
    limits = robust_limits(scores.values(), [0.0, *(null for null in nulls.values() if null is not None)])
    alt = " ".join(describe_distribution(score, values, statistics, nulls[score]) for score, values in scores.items())
    title = "How much likelier is an observation to a model because the model was trained on it?"
    return Figure("distribution", title, figure_caption(scores, limits, nulls), alt, draw_svg(scores, limits, nulls))


def draw_svg(scores: dict[str, Array], limits: tuple[float, float], nulls: dict[str, float | None]) -> str:
    """The figure as SVG: a panel for each score."""
    n = max(len(values) for values in scores.values())
    edges = np.linspace(*limits, int(np.clip(1.5 * n**0.5, 12, BINS)) + 1)
    figure = drawing.canvas(PANEL * len(scores) + 2 * legend.ROW + 0.37)
    panels = layout.stack_axes(figure, len(scores), PANEL)
    for axes, (score, values) in zip(panels, scores.items(), strict=True):
        axes.set_title(kinds.SCORES[score], fontsize=drawing.TEXT)
        draw_histogram(axes, values, edges)
        axes.axvline(0, **drawing.NULL)
        axes.axvline(float(np.median(values)), color=drawing.light("ink"), linewidth=1.4)
        null = nulls[score]
        if null is not None:
            axes.axvline(null, color=drawing.light("violet"), **NULLS)
        axes.set_xlim(*limits)
        drawing.set_ticks(axes, 6, 4)
        axes.tick_params(labelbottom=axes is panels[-1])
    panels[-1].set_xlabel("nats")
    middle = (0.5 + PANEL * len(scores) / 2 - 0.2) / figure.get_size_inches()[1]
    figure.text(0.13 / drawing.WIDTH, middle, "observations", rotation=90, va="center", ha="left")
    legend.add_above(figure, legend_entries(any(null is not None for null in nulls.values())))
    return drawing.svg(figure, "distribution")


def draw_histogram(axes: Any, values: Array, edges: Array) -> None:
    """Counts in bins, with those above the 95 % quantile in the colour of the highly memorised."""
    high = highly_memorised_mask(values)
    for kind, part in (("regular", values), ("memorised", values[high])):
        colour = kinds.KIND_COLOURS[kind]
        counts = np.histogram(part, edges)[0]
        first = int((counts > 0).argmax())  # no line along the axis where there is none of this kind
        axes.stairs(counts[first:], edges[first:], fill=True, color=drawing.light(f"{colour}-band"))
        axes.stairs(counts[first:], edges[first:], color=drawing.light(colour), linewidth=1)


def legend_entries(null: bool) -> list[Any]:
    """The legend's entries; `null`: with the median where nothing is memorised."""
    lines = [
        kinds.area_legend_entry(kinds.KIND_COLOURS["memorised"], f"above the {HIGH:.0%} quantile"),
        legend.line("median", color=drawing.light("ink"), linewidth=1.4),
        legend.line("0", **drawing.NULL),
    ]
    if null:
        label = "median where nothing is memorised"
        lines.insert(1, legend.line(label, color=drawing.light("violet"), **NULLS))
    return lines


def figure_caption(scores: dict[str, Array], limits: tuple[float, float], nulls: dict[str, float | None]) -> str:
    """The caption of the figure."""
    beyond = {score: describe_outside(values, limits) for score, values in scores.items()}
    cut = "; ".join(f"{kinds.SCORES[score]}: {words}" for score, words in beyond.items() if words)
    counts = sorted({len(values) for values in scores.values()})
    observations = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    null = (
        "Dotted: the median where nothing is memorised, found by drawing anew which models held an observation out; "
        "what the published score has there is its bias. "
        if any(null is not None for null in nulls.values())
        else ""
    )
    return (
        f"{observations} observations, counted by M: log P of an observation to models that were trained on it, less "
        "that to models that held it out, in nats. Dashed: 0. The published score averages over more models trained "
        "on an observation than not, and lies too high by that; the matched-count score has as many of both. "
        f"{null}The axis is shared{f' and cut: beyond it lie, of {cut}' if cut else ''}. No intervals: every "
        "observation is counted; those of median and quantiles are in the table of the distribution."
    )


def describe_distribution(score: str, values: Array, statistics: Statistics, null: float | None) -> str:
    """The distribution of a score in words."""
    followed = statistics.curve(score, "median")
    median = drawing.format_number(float(np.median(values))) if followed is None else followed.describe()
    least, high, most = (drawing.format_number(float(value)) for value in np.quantile(values, (0, HIGH, 1)))
    above = kinds.format_share(int((values > 0).sum()), len(values))
    words = f"{kinds.SCORES[score]}: median {median} nats, from {least} to {most}, {HIGH:.0%} quantile {high}"
    return (
        f"{words}; {above} lie above 0{'' if null is None else f'; null of the median {drawing.format_number(null)}'}."
    )
