"""Distribution of both scores over observations, as in figure 4c, and the significance of the scores."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dashboards import drawing, layout, legend
from dashboards.audits.density.observations import (
    KIND_COLOURS,
    SCORES,
    Observations,
    Statistics,
    area_legend_entry,
    describe_outside,
    format_share,
    robust_limits,
)
from dashboards.chart import (
    Array,
    Axis,
    Chart,
    Facet,
    Figure,
    Layer,
    Panel,
    facet_panels,
    histogram,
    level,
    marks,
    upright,
)
from dashboards.summary import format_range
from tasks.audits.density.highly_memorised import HIGH, highly_memorised_mask
from tasks.audits.density.tail import LEVEL, alone

PANEL = 1.55  # inches
BINS = 70  # maximum number of bins
NULL: dict[str, Any] = {"color": drawing.light("violet"), "linewidth": 1.8, "linestyle": (0, (1, 1.5))}
MEDIAN: dict[str, Any] = {"color": drawing.light("ink"), "linewidth": 1.4}
P_BINS = 20  # bins for p-values
P_PANEL = 1.5  # inches per panel
PANEL_GAP = 0.95  # inches between the two panels
# Quantiles of the published score that separate groups of observations.
GROUPS = (0.0, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0)
NAMES = ("0–50", "50–75", "75–90", "90–95", "95–99", "99–99.9", "> 99.9")
Groups = list[tuple[str, int, int]]  # group name, number of significant observations, number of observations


def distribution(observations: Observations, statistics: Statistics) -> Figure | None:
    """Draw histograms of both scores on one axis, with lines at 0, the median and its null value."""
    scores = {score: observations.known_scores[score] for score in SCORES if score in observations.known_scores}
    if not scores:
        return None
    nulls = {score: statistics.null(score, "median") for score in scores}
    limits = robust_limits(scores.values(), [0.0, *(null for null in nulls.values() if null is not None)])
    n = max(len(values) for values in scores.values())
    edges = np.linspace(*limits, int(np.clip(1.5 * n**0.5, 12, BINS)) + 1)
    facets = []
    for score, values in scores.items():
        lines = [upright(0), upright(float(np.median(values)), MEDIAN)]
        null = nulls[score]
        layers = [*_kind_histograms(values, edges), *lines, *([] if null is None else [upright(null, NULL)])]
        facets.append(Facet(layers, SCORES[score]))
    height = PANEL * len(scores) + 2 * legend.ROW + 0.37
    note_style = {"rotation": 90, "va": "center", "ha": "left"}
    handles = [
        area_legend_entry(KIND_COLOURS["memorised"], f"above the {HIGH:.0%} quantile"),
        legend.line("median", **MEDIAN),
        legend.line("0", **drawing.NULL),
    ]
    if any(null is not None for null in nulls.values()):
        handles.insert(1, legend.line("median without memorisation", **NULL))
    return Chart(
        "distribution",
        "How much does training on an observation raise its log probability?",
        _distribution_caption(scores, limits, nulls),
        " ".join(_describe_distribution(score, values, statistics, nulls[score]) for score, values in scores.items()),
        height,
        facet_panels(facets, PANEL, Axis("nats", limits, 6)),
        handles,
        notes=[(0.13 / drawing.WIDTH, (0.5 + PANEL * len(scores) / 2 - 0.2) / height, "observations", note_style)],
    ).figure()


def _kind_histograms(values: Array, edges: Array) -> list[Layer]:
    """Draw binned counts. Those above the 95 % quantile have the colour of highly memorised observations."""
    layers = []
    for kind, part in (("regular", values), ("memorised", values[highly_memorised_mask(values)])):
        counts = np.histogram(part, edges)[0]
        first = int((counts > 0).argmax())  # draws no line along the axis before the first count
        layers.append(histogram(counts[first:], edges[first:], KIND_COLOURS[kind], width=1))
    return layers


def _distribution_caption(scores: dict[str, Array], limits: tuple[float, float], nulls: dict[str, float | None]) -> str:
    outside = {}
    for score, values in scores.items():
        outside[score] = describe_outside(values, limits)
    cut = "; ".join(f"{SCORES[score]}: {words}" for score, words in outside.items() if words)
    if any(null is not None for null in nulls.values()):
        null = (
            "Dotted: the median without memorisation, from redrawing the models that held an observation out; for the "
            "published score this is its bias. "
        )
    else:
        null = ""
    return (
        f"{format_range([len(values) for values in scores.values()])} observations by M: log P of an observation "
        "under models that were trained on it, minus log P under models that held it out, in nats. Dashed: 0. The "
        "published score averages over more models trained on an observation than not and is biased upwards; the "
        "matched-count score has equal numbers of both. "
        f"{null}The axis is shared{f' and cut; outside it: {cut}' if cut else ''}. Counts have no intervals; the "
        "table of the distribution has intervals of median and quantiles."
    )


def _describe_distribution(score: str, values: Array, statistics: Statistics, null: float | None) -> str:
    course = statistics.curve(score, "median")
    if course is None:
        median = drawing.format_number(float(np.median(values)))
    else:
        median = course.describe()
    lowest, high, highest = (drawing.format_number(float(value)) for value in np.quantile(values, (0, HIGH, 1)))
    above = format_share(int((values > 0).sum()), len(values))
    words = f"{SCORES[score]}: median {median} nats, from {lowest} to {highest}, {HIGH:.0%} quantile {high}"
    return (
        f"{words}; {above} are above 0{'' if null is None else f'; null of the median {drawing.format_number(null)}'}."
    )


def significance(observations: Observations, dependent: bool = False) -> Figure | None:
    """Draw the histogram of p-values, and the share of significant observations by score.

    `dependent` is set if rows were held out one at a time and their p-values are adjusted for dependence.
    """
    p = observations.column("p_value")
    adjusted = observations.column("p_adjusted")
    score = observations.column("m")
    if not len(p) or not len(adjusted) or not len(score):
        return None
    tested = ~np.isnan(p) & ~np.isnan(adjusted) & ~np.isnan(score)
    p = p[tested]
    significant = adjusted[tested] <= LEVEL
    if not len(p):
        return None
    groups = _significant_shares(score[tested], significant)
    edges = np.linspace(0, 1, P_BINS + 1)
    of_all = sum(hits for _, hits, _ in groups) / max(1, sum(total for *_, total in groups))
    places = np.arange(len(groups))
    shares = np.array([hits / total for _, hits, total in groups], np.float64)
    return Chart(
        "significance",
        "Which scores exceed chance?",
        _significance_caption(p, dependent),
        _describe_significance(p, int(significant.sum()), groups),
        2 * P_PANEL + PANEL_GAP + 0.68,
        [
            Panel(
                layout.wide_box(0.55 + P_PANEL + PANEL_GAP, P_PANEL),
                [histogram(np.histogram(p, edges)[0], edges, "twin"), level(len(p) / P_BINS)],
                x=Axis("p-value of the published score", (-0.01, 1.01)),
                y=Axis("observations", max_ticks=4),
            ),
            Panel(
                layout.wide_box(0.55, P_PANEL),
                [level(of_all), marks(places, shares, "accent", "o", 5.5)],
                x=Axis(
                    "percentile of the published score",
                    (-0.5, len(groups) - 0.5),
                    ticks=(places, [name for name, *_ in groups]),
                    has_grid=False,
                ),
                y=Axis("share significant", (-0.03, 1.03)),
            ),
        ],
    ).figure()


def _significance_caption(p: Array, dependent: bool) -> str:
    n = len(p)
    smallest = float(p.min())
    required = math.ceil(smallest / alone(n, dependent))
    procedure = "Benjamini-Hochberg"
    if dependent:
        procedure = "Benjamini-Yekutieli"
    return (
        f"Top: p-values of {n:,} observations: the probability that M, minus the negligible size, would be as large "
        f"with redrawn held-out models. Dashed: {n / P_BINS:,.4g} per bar, expected if training raises log p by "
        f"exactly the negligible size. Bottom: the share significant at a false discovery rate of {LEVEL:.0%} by "
        "percentile of the published score, without intervals because models are shared; dashed: overall share. "
        f"The smallest p-value is {drawing.format_number(smallest)}; {required:,} observation{'s'[: required != 1]} "
        f"must have this p-value for any to be significant ({procedure})."
    )


def _describe_significance(p: Array, significant: int, groups: Groups) -> str:
    """Describe the numbers of significant observations in total and by score."""
    n = len(p)
    small_p_count = int((p <= LEVEL).sum())
    return (
        f"{format_share(significant, n)} observations are significant at a false discovery rate of {LEVEL:.0%}; "
        f"{format_share(small_p_count, n)} have p at most {LEVEL}, {LEVEL:.0%} expected by chance. Smallest p "
        f"{drawing.format_number(float(p.min()))}, median "
        f"{drawing.format_number(float(np.median(p)))}. Significant by percentile of "
        "the published score: " + ", ".join(f"{name} {format_share(hits, total)}" for name, hits, total in groups) + "."
    )


def _significant_shares(score: Array, significant: Any) -> Groups:
    """Return the groups that contain observations, lowest scores first."""
    group = np.searchsorted(np.quantile(score, GROUPS[1:-1]), score, side="left")
    masks = [(name, group == index) for index, name in enumerate(NAMES)]
    shares = []
    for name, is_in_group in masks:
        if is_in_group.any():
            shares.append((name, int(significant[is_in_group].sum()), int(is_in_group.sum())))
    return shares
