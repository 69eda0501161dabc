"""Nearest-neighbour ratios of samples against the score, as in figures 5, 12 and 13."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dashboards import drawing, layout, legend
from dashboards.audits.density import kinds
from dashboards.audits.density.observations import Array
from dashboards.columns import integers, numbers, texts
from dashboards.figure import Figure
from tasks.audits.density.highly_memorised import HIGH

NEEDED = {"group", "low", "high", "mean", "standard_error", "n", "quantiles"}
PANEL = 1.75  # inches
SE = 1.96
Kinds = dict[str, tuple[Array, int]]  # kind -> the quantiles of its ratios, and how many it has


@dataclass(frozen=True)
class Bins:
    """The mean ratio in bins of M, from the lowest up, with its standard error (NaN: one observation)."""

    low: Array
    high: Array
    mean: Array
    error: Array
    n: Array

    @property
    def width(self) -> float:
        """The median width of the bins; 1 if all are open."""
        widths = self.high - self.low
        return float(np.nanmedian(widths)) if not np.isnan(widths).all() else 1.0

    @property
    def starts(self) -> Array:
        """The lower end of each bin, as if the open ones were as wide as the others."""
        starts: Array = np.where(np.isnan(self.low), self.high - self.width, self.low)
        return starts


def ratios(table: pa.Table) -> Figure | None:
    """The mean ratio by score with 1.96 standard errors, and its distribution for both kinds of observations."""
    if not set(table.column_names) >= NEEDED:
        return None
    bins, groups = read_bins(table), read_quantiles(table)
    if bins is None and not groups:
        return None
    alt = [
        *([] if bins is None else [describe_means(bins)]),
        *(describe_quantiles(kind, *group) for kind, group in groups.items()),
    ]
    title = "Does the model draw images nearer to what it memorised?"
    return Figure("neighbours", title, figure_caption(bins, groups), " ".join(alt), draw_svg(bins, groups))


def draw_svg(bins: Bins | None, groups: Kinds) -> str:
    """The means above the distributions as SVG, as far as there are both."""
    panels = (bins is not None) + bool(groups)
    figure = drawing.canvas((PANEL + 0.6) * panels + legend.ROW + 0.2)
    if bins is not None:
        draw_means(layout.wide_axes(figure, (PANEL + 0.6) * bool(groups) + 0.55, PANEL), bins)
    if groups:
        draw_cumulative(layout.wide_axes(figure, 0.55, PANEL), groups)
        legend.add_above(figure, [legend.line(kinds.KINDS[kind], linewidth=2, **line_look(kind)) for kind in groups])
    return drawing.svg(figure, "neighbours")


def line_look(kind: str) -> dict[str, Any]:
    """The line of a kind of observations."""
    return {"color": drawing.light(kinds.KIND_COLOURS[kind]), "linestyle": kinds.DASHES[kind]}


def figure_caption(bins: Bins | None, groups: Kinds) -> str:
    """The caption of the figure."""
    above = (
        f"Dots: the mean over the observations of a bin of M with ± {SE} standard errors over them; hollow: a bin with "
        f"one observation, which has none.{describe_far_bins(bins)} "
        if bins is not None
        else ""
    )
    below = (
        "Below: the share of observations whose ratio is at most so much: the further right a line lies, the nearer "
        f"samples come. Highly memorised: M above its {HIGH:.0%} quantile, n "
        + ", ".join(f"{n:,} {kinds.KINDS[kind]}" for kind, (_, n) in groups.items())
        + ". "
        if groups
        else ""
    )
    return (
        "The ratio of an observation: its distance to the nearest validation image over that to the nearest image "
        "drawn from the model, as many of both; Euclidean, at half the resolution. Dashed: 1, both equally near. "
        f"{above}{below}One set of samples of one model: its chance is in no interval here."
    )


def read_bins(table: pa.Table) -> Bins | None:
    group = texts(table, "group")
    low, high, mean, error = (numbers(table, name) for name in ("low", "high", "mean", "standard_error"))
    rows = np.flatnonzero((group == "bin") & ~np.isnan(mean) & ~(np.isnan(low) & np.isnan(high)))
    if not len(rows):
        return None
    rows = rows[np.lexsort((np.where(np.isnan(high), np.inf, high)[rows], np.where(np.isnan(low), -np.inf, low)[rows]))]
    n = integers(table, "n").astype(np.float64)[rows]
    return Bins(low[rows], high[rows], mean[rows], np.where(n > 1, error[rows], np.nan), n)


def read_quantiles(table: pa.Table) -> Kinds:
    """The quantiles of each kind's ratios, at even steps from the smallest to the largest, and how many it has."""
    group, n, quantiles = texts(table, "group"), integers(table, "n"), table["quantiles"].to_pylist()
    groups = {}
    for kind in kinds.KINDS:
        for row in np.flatnonzero(group == kind):
            values = np.array(quantiles[row] or [], np.float64)
            if len(values) > 1 and np.isfinite(values).all():
                groups[kind] = (values, int(n[row]))
    return groups


def draw_means(axes: Any, bins: Bins) -> None:
    """The mean of each bin that is drawn."""
    shown = near_bins(bins)
    middle = (bins.starts + np.where(np.isnan(bins.high), bins.starts + bins.width, bins.high)) / 2
    alone = np.isnan(bins.error)
    accent = drawing.light("accent")
    axes.axhline(1, **drawing.NULL)
    several, single = shown & ~alone, shown & alone
    half = SE * bins.error[several]
    axes.plot(
        *drawing.segment_path(middle[several], bins.mean[several] - half, bins.mean[several] + half),
        color=accent, linewidth=1.6, solid_capstyle="butt",
    )  # fmt: skip
    size = 4.5 if shown.sum() <= 60 else 3
    axes.plot(middle[several], bins.mean[several], "o", color=accent, markersize=size)
    axes.plot(middle[single], bins.mean[single], "o", color=accent, markersize=size, markerfacecolor="none")
    axes.set_xlim(*drawing.padded_limits(middle[shown].tolist(), 0.03))
    drawing.set_ticks(axes, 6, 5)
    axes.set_xlabel("M as published, nats")
    axes.set_ylabel("mean ratio")


def describe_far_bins(bins: Bins) -> str:
    """The observations of the bins that are not drawn, in words; empty where all are."""
    left = ~near_bins(bins)
    if not left.any():
        return ""
    starts = bins.starts[left]
    count, far = int(bins.n[left].sum()), starts[np.abs(starts).argmax()]
    return (
        f" Not drawn: {count:,} observation{'s'[: count > 1]} in far bins, to {drawing.format_number(float(far))} nats."
    )


def near_bins(bins: Bins) -> Any:
    """Mask of the bins to draw: all but those of a few observations far from the others."""
    share = np.cumsum(bins.n) / bins.n.sum()
    first, last = int((share >= 0.0005).argmax()), int((share >= 0.9995).argmax())
    edge = np.where(np.isnan(bins.low), bins.high, bins.low)
    reach = max(float(edge[last] - edge[first]), 1e-9)
    return (edge >= edge[first] - 0.5 * reach) & (edge <= edge[last] + 0.5 * reach)


def draw_cumulative(axes: Any, groups: Kinds) -> None:
    """The share of observations up to each ratio, a line for each kind."""
    axes.axvline(1, **drawing.NULL)
    ends = [1.0]
    for kind, (values, _) in groups.items():
        axes.plot(values, np.linspace(0, 1, len(values)), linewidth=2, **line_look(kind))
        ends += np.quantile(values, (0.01, 0.99)).tolist()
    axes.set_xlim(*drawing.padded_limits(ends))
    axes.set_ylim(-0.02, 1.02)
    drawing.set_ticks(axes)
    axes.set_xlabel("nearest-neighbour ratio")
    axes.set_ylabel("share up to it")


def describe_means(bins: Bins) -> str:
    """The mean ratio and in how many bins it differs from 1, in words."""
    mean = float(np.average(bins.mean, weights=bins.n))
    half = SE * bins.error
    above, below = (int(differing.sum()) for differing in (bins.mean - half > 1, bins.mean + half < 1))
    return (
        f"Mean ratio {drawing.format_number(mean)} over {int(bins.n.sum()):,}"
        f" observations in {len(bins.n)} bins of M; in "
        f"{above} bins it is above 1 and in {below} below 1 by more than {SE} standard errors."
    )


def describe_quantiles(kind: str, values: Array, n: int) -> str:
    """The median ratio of a kind and its middle 90 %, in words."""
    low, middle, high = (drawing.format_number(float(value)) for value in np.quantile(values, (0.05, 0.5, 0.95)))
    return f"{kinds.KINDS[kind].capitalize()} (n {n:,}): median ratio {middle}, middle 90 % {low} to {high}."
