"""How the score is distributed over the observations, as published and with matched counts: figure 4c."""

from __future__ import annotations

from typing import Any

import numpy as np

from dashboards import drawing
from dashboards.audits.density import style
from dashboards.audits.density.axis_limits import outside, robust
from dashboards.audits.density.observed import HIGH, Array, Observed
from dashboards.audits.density.score_statistics import Statistics
from dashboards.figure import Figure

PANEL = 1.55  # inches
BINS = 70  # at most
NULLS: dict[str, Any] = {"linewidth": 1.8, "linestyle": (0, (1, 1.5))}


def distribution(seen: Observed, statistics: Statistics) -> Figure | None:
    """Histograms of both scores on one axis, with 0, the median and what the median is where nothing is memorised."""
    found = {score: values[~np.isnan(values)] for score, values in seen.scores.items()}
    found = {score: found[score] for score in style.SCORES if score in found}
    if not found:
        return None
    nulls = {score: statistics.null(score, "median") for score in found}
    limits = robust(found.values(), [0.0, *(null for null in nulls.values() if null is not None)])
    n = max(len(values) for values in found.values())
    edges = np.linspace(*limits, int(np.clip(1.5 * n**0.5, 12, BINS)) + 1)
    top = 2 * style.ROW + 0.05
    figure = drawing.canvas(PANEL * len(found) + top + 0.32)
    for at, (score, values) in enumerate(found.items()):
        bottom = 0.5 + PANEL * (len(found) - 1 - at)
        axes = drawing.place(figure, style.LEFT, bottom, drawing.WIDTH - style.LEFT - style.RIGHT, PANEL - 0.4)
        axes.set_title(style.SCORES[score], fontsize=drawing.TEXT)
        histogram(axes, values, edges)
        axes.axvline(0, **style.null())
        axes.axvline(float(np.median(values)), color=drawing.light("ink"), linewidth=1.4)
        null = nulls[score]
        if null is not None:
            axes.axvline(null, color=drawing.light("violet"), **NULLS)
        axes.set_xlim(*limits)
        drawing.ticks(axes, 6, 4)
        axes.tick_params(labelbottom=at + 1 == len(found))
    axes.set_xlabel("nats")
    figure.text(
        0.13 / drawing.WIDTH, (0.5 + PANEL * len(found) / 2 - 0.2) / figure.get_size_inches()[1], "observations",
        rotation=90, va="center", ha="left",
    )  # fmt: skip
    key(figure, any(null is not None for null in nulls.values()))
    alt = " ".join(said(score, values, statistics, nulls[score]) for score, values in found.items())
    title = "How much likelier is an observation to a model because the model was trained on it?"
    return Figure("distribution", title, about(found, limits, nulls), alt, drawing.svg(figure, "distribution"))


def histogram(axes: Any, values: Array, edges: Array) -> None:
    """Counts in bins, with those above the 95 % quantile in the colour of the highly memorised."""
    high = values > np.quantile(values, HIGH)
    for kind, part in (("regular", values), ("memorised", values[high])):
        colour = style.OF_KIND[kind]
        counts = np.histogram(part, edges)[0]
        first = int((counts > 0).argmax())  # no line along the axis where there is none of this kind
        axes.stairs(counts[first:], edges[first:], fill=True, color=drawing.light(f"{colour}-band"))
        axes.stairs(counts[first:], edges[first:], color=drawing.light(colour), linewidth=1)


def key(figure: Any, null: bool) -> None:
    handles = [
        style.of_patch(style.OF_KIND["memorised"], f"above the {HIGH:.0%} quantile"),
        style.of_line("median", color=drawing.light("ink"), linewidth=1.4),
        style.of_line("0", **style.null()),
    ]
    if null:
        label = "median where nothing is memorised"
        handles.insert(1, style.of_line(label, color=drawing.light("violet"), **NULLS))
    style.legend(figure, handles)


def about(found: dict[str, Array], limits: tuple[float, float], nulls: dict[str, float | None]) -> str:
    beyond = {score: outside(values, limits) for score, values in found.items()}
    cut = "; ".join(f"{style.SCORES[score]}: {words}" for score, words in beyond.items() if words)
    counts = sorted({len(values) for values in found.values()})
    observations = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    null = (
        "Dotted: the median where nothing is memorised, found by drawing anew which models held an observation out; "
        "what the published score has there is its bias. "
        if any(each is not None for each in nulls.values())
        else ""
    )
    return (
        f"{observations} observations, counted by M: log P of an observation to models that were trained on it, less "
        "that to models that held it out, in nats. Dashed: 0. The published score averages over more models trained "
        "on an observation than not, and lies too high by that; the matched-count score has as many of both. "
        f"{null}The axis is shared{f' and cut: beyond it lie, of {cut}' if cut else ''}. No intervals: every "
        "observation is counted; those of median and quantiles are in the table of the distribution."
    )


def said(score: str, values: Array, statistics: Statistics, null: float | None) -> str:
    followed = statistics.followed(score, "median")
    median = drawing.number(float(np.median(values))) if followed is None else followed.said()
    least, high, most = (drawing.number(float(each)) for each in np.quantile(values, (0, HIGH, 1)))
    above = style.share(int((values > 0).sum()), len(values))
    words = f"{style.SCORES[score]}: median {median} nats, from {least} to {most}, {HIGH:.0%} quantile {high}"
    return f"{words}; {above} lie above 0{'' if null is None else f'; null of the median {drawing.number(null)}'}."
