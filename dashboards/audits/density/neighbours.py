"""Nearest neighbours of observations among samples, as in figures 5, 12 and 13, and near-duplicates in the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dashboards import drawing, layout, legend
from dashboards.audits.density.observations import DASHES, KIND_COLOURS, KINDS
from dashboards.chart import Array, Axis, Chart, Figure, Panel, intervals, level, line, marks, upright
from dashboards.columns import integers, numbers, texts, with_columns
from tasks.audits.density.highly_memorised import HIGH

RATIOS = {"group", "low", "high", "mean", "standard_error", "n", "quantiles"}
PANEL = 1.75  # inches
SE = 1.96
PAIRS = {"rank", "row", "other", "distance"}
MAX_PAIRS = 300
NAMED_PAIRS = 3
PAIR_LOOKS = {"same label": ("accent", "o"), "different labels": ("canary", "^"), "pairs": ("accent", "o")}
Kinds = dict[str, tuple[Array, int]]  # kind -> quantiles of its ratios, and number of observations


@dataclass(frozen=True)
class Bins:
    """The mean ratio in ascending bins of M, and its standard error (NaN if the bin has one observation)."""

    low: Array
    high: Array
    mean: Array
    error: Array
    n: Array

    @property
    def width(self) -> float:
        """The median bin width, or 1 if all bins are open."""
        widths = self.high - self.low
        if not np.isnan(widths).all():
            return float(np.nanmedian(widths))
        return 1.0

    @property
    def starts(self) -> Array:
        """The lower end of each bin. Open bins get the median width."""
        starts: Array = np.where(np.isnan(self.low), self.high - self.width, self.low)
        return starts


@with_columns(RATIOS)
def ratios(table: pa.Table) -> Figure | None:
    """Draw the mean ratio by score with 1.96 standard errors, and the ratio distribution for both kinds of
    observations.
    """
    bins = _read_mean_ratios(table)
    groups = _read_quantiles(table)
    if bins is None and not groups:
        return None
    alt = [
        *([] if bins is None else [_describe_means(bins)]),
        *(_describe_quantiles(kind, *group) for kind, group in groups.items()),
    ]
    if bins is None:
        panels = []
    else:
        panels = [_means_panel(layout.wide_box((PANEL + 0.6) * bool(groups) + 0.55, PANEL), bins)]
    if groups:
        panels += [_cumulative_panel(groups)]
    return Chart(
        "neighbours",
        "Are samples closer to memorised images?",
        _ratio_caption(bins, groups),
        " ".join(alt),
        (PANEL + 0.6) * len(panels) + legend.ROW + 0.2,
        panels,
        [
            legend.line(KINDS[kind], linewidth=2, color=drawing.light(KIND_COLOURS[kind]), linestyle=DASHES[kind])
            for kind in groups
        ],
    ).figure()


def _ratio_caption(bins: Bins | None, groups: Kinds) -> str:
    above = ""
    if bins is not None:
        above = (
            f"Dots: the mean ratio in a bin of M, ± {SE} standard errors over observations; hollow: a bin with one "
            f"observation.{_describe_far_bins(bins)} "
        )
    below = ""
    if groups:
        below = (
            "Bottom: the cumulative share of observations by ratio; further right means closer samples. Highly "
            f"memorised: M above its {HIGH:.0%} quantile, n "
            + ", ".join(f"{n:,} {KINDS[kind]}" for kind, (_, n) in groups.items())
            + ". "
        )
    return (
        "The ratio of an observation: its distance to the nearest validation image divided by that to the nearest "
        "sample of the model, with equal numbers of both; Euclidean, at half the resolution. Dashed: 1, equal. "
        f"{above}{below}Samples come from one model, whose variation is not included in intervals."
    )


def _read_mean_ratios(table: pa.Table) -> Bins | None:
    group = texts(table, "group")
    low = numbers(table, "low")
    high = numbers(table, "high")
    mean = numbers(table, "mean")
    error = numbers(table, "standard_error")
    rows = np.flatnonzero((group == "bin") & ~np.isnan(mean) & ~(np.isnan(low) & np.isnan(high)))
    if not len(rows):
        return None
    rows = rows[np.lexsort((np.where(np.isnan(high), np.inf, high)[rows], np.where(np.isnan(low), -np.inf, low)[rows]))]
    n = integers(table, "n").astype(np.float64)[rows]
    return Bins(low[rows], high[rows], mean[rows], np.where(n > 1, error[rows], np.nan), n)


def _read_quantiles(table: pa.Table) -> Kinds:
    """Read evenly spaced quantiles of the ratios, and the number of observations, for each kind."""
    group = texts(table, "group")
    n = integers(table, "n")
    quantiles = table["quantiles"].to_pylist()
    groups = {}
    for kind in KINDS:
        for row in np.flatnonzero(group == kind):
            values = np.array(quantiles[row] or [], np.float64)
            if len(values) > 1 and np.isfinite(values).all():
                groups[kind] = (values, int(n[row]))
    return groups


def _means_panel(box: layout.Box, bins: Bins) -> Panel:
    """Return a panel with the mean of each drawn bin."""
    near = _near_bins(bins)
    alone = np.isnan(bins.error)
    middle = (bins.starts + np.where(np.isnan(bins.high), bins.starts + bins.width, bins.high)) / 2
    several = near & ~alone
    single = near & alone
    half = SE * bins.error[several]
    size = 3.0
    if near.sum() <= 60:
        size = 4.5
    layers = [
        level(1),
        intervals(middle[several], bins.mean[several] - half, bins.mean[several] + half, "accent", 1.6),
        marks(middle[several], bins.mean[several], "accent", "o", size),
        marks(middle[single], bins.mean[single], "accent", "o", size, markerfacecolor="none"),
    ]
    x_axis = Axis("M as published, nats", drawing.padded_limits(middle[near].tolist(), 0.03), 6)
    return Panel(box, layers, x=x_axis, y=Axis("mean ratio"))


def _describe_far_bins(bins: Bins) -> str:
    """Describe the bins that are not drawn. Returns an empty string if all bins are drawn."""
    far_bins = ~_near_bins(bins)
    if not far_bins.any():
        return ""
    starts = bins.starts[far_bins]
    count = int(bins.n[far_bins].sum())
    far = starts[np.abs(starts).argmax()]
    return (
        f" Not drawn: {count:,} observation{'s'[: count > 1]} in far bins, to {drawing.format_number(float(far))} nats."
    )


def _near_bins(bins: Bins) -> Any:
    """Return the mask of bins to draw: all except distant bins with few observations."""
    share = np.cumsum(bins.n) / bins.n.sum()
    first = int((share >= 0.0005).argmax())
    last = int((share >= 0.9995).argmax())
    edge = np.where(np.isnan(bins.low), bins.high, bins.low)
    reach = max(float(edge[last] - edge[first]), 1e-9)
    return (edge >= edge[first] - 0.5 * reach) & (edge <= edge[last] + 0.5 * reach)


def _cumulative_panel(groups: Kinds) -> Panel:
    """Return a panel with the cumulative share of observations by ratio, one line per kind."""
    lines = []
    for kind, (values, _) in groups.items():
        lines.append(
            line(values, np.linspace(0, 1, len(values)), KIND_COLOURS[kind], linewidth=2, linestyle=DASHES[kind])
        )
    ends = [1.0, *(end for values, _ in groups.values() for end in np.quantile(values, (0.01, 0.99)).tolist())]
    x_axis = Axis("nearest-neighbour ratio", drawing.padded_limits(ends))
    return Panel(
        layout.wide_box(0.55, PANEL), [upright(1), *lines], x=x_axis, y=Axis("cumulative share", (-0.02, 1.02))
    )


def _describe_means(bins: Bins) -> str:
    """Describe the mean ratio, and how many bins differ from 1."""
    mean = float(np.average(bins.mean, weights=bins.n))
    half = SE * bins.error
    above = int((bins.mean - half > 1).sum())
    below = int((bins.mean + half < 1).sum())
    return (
        f"Mean ratio {drawing.format_number(mean)} over {int(bins.n.sum()):,}"
        f" observations in {len(bins.n)} bins of M; in "
        f"{above} bins it is above 1 and in {below} below 1 by more than {SE} standard errors."
    )


def _describe_quantiles(kind: str, values: Array, n: int) -> str:
    """Describe the median and the central 90 % of a kind's ratios."""
    low, middle, high = (drawing.format_number(float(value)) for value in np.quantile(values, (0.05, 0.5, 0.95)))
    return f"{KINDS[kind].capitalize()} (n {n:,}): median ratio {middle}, middle 90 % {low} to {high}."


@with_columns(PAIRS)
def duplicates(table: pa.Table) -> Figure | None:
    """Draw pairs by rank and distance. Pairs with different labels are marked."""
    distance = numbers(table, "distance")
    order = np.argsort(integers(table, "rank"), kind="stable")
    order = order[~np.isnan(distance[order])]
    if not len(order):
        return None
    rest = ""
    if len(order) > MAX_PAIRS:
        rest = f" The first {MAX_PAIRS} of {len(order)} pairs are drawn."
    caption = (
        "Each mark is a pair of training images and their Euclidean distance; 0 means identical images. If one is "
        "held out, the other is still trained on, so its score M is low although the model may reproduce it."
        f"{rest}"
    )
    drawn_pairs = order[:MAX_PAIRS]
    rank = integers(table, "rank")[drawn_pairs]
    closest = distance[drawn_pairs]
    names = np.array(_pair_kinds(table))[drawn_pairs]
    masks = {name: names == name for name in PAIR_LOOKS if (names == name).any()}
    size = 3.0
    if len(drawn_pairs) <= 100:
        size = 4.5
    panel = Panel(
        layout.wide_box(0.55, 2.05),
        [marks(rank[mask], closest[mask], *PAIR_LOOKS[name], size, markeredgewidth=0) for name, mask in masks.items()],
        x=Axis("pair, by distance", drawing.padded_limits([1.0, float(rank.max())], 0.03), 6, integer_ticks=True),
        y=Axis("distance", drawing.padded_limits([0.0, float(closest.max())])),
    )
    return Chart(
        "duplicates",
        "Are training images duplicated?",
        caption,
        _describe_duplicates(table, order),
        3.0,
        [panel],
        [
            legend.series_entry(
                f"{name}, {int(mask.sum())}", (*PAIR_LOOKS[name], "none"), markersize=5, markeredgewidth=0
            )
            for name, mask in masks.items()
        ],
    ).figure()


def _describe_duplicates(table: pa.Table, order: NDArray[np.int64]) -> str:
    """Describe the distances of the pairs, the number with different labels, and the closest pairs."""
    distance = numbers(table, "distance")[order]
    kind = _pair_kinds(table)
    row = integers(table, "row")[order]
    partner = integers(table, "other")[order]
    closest = ", ".join(
        f"{one} and {two} ({drawing.format_number(float(apart))})"
        for one, two, apart in zip(row[:NAMED_PAIRS], partner[:NAMED_PAIRS], distance[:NAMED_PAIRS], strict=True)
    )
    different = sum(kind[pair] == "different labels" for pair in order)
    return (
        f"{len(order)} pairs, distance {drawing.format_number(float(distance[0]))}"
        f" to {drawing.format_number(float(distance[-1]))}; "
        f"{int((distance == 0).sum())} pairs at 0"
        f"{f'; {different} of different labels' if 'pairs' not in kind else ''}. Closest: rows {closest}."
    )


def _pair_kinds(table: pa.Table) -> list[str]:
    """Return whether each pair's labels are the same, or `pairs` if the data have no labels."""
    if not {"label", "other_label"} <= set(table.column_names):
        return ["pairs"] * table.num_rows
    label = numbers(table, "label")
    partner_label = numbers(table, "other_label")
    if np.isnan(label).any() or np.isnan(partner_label).any():
        return ["pairs"] * table.num_rows
    kinds = []
    for one, two in zip(label, partner_label, strict=True):
        kinds.append("same label" if one == two else "different labels")
    return kinds
