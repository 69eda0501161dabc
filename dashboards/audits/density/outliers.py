"""Share of outliers among highly memorised observations, as in figures 3, 10 and 11."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dashboards import drawing, legend
from dashboards.audits.density.observations import (
    KIND_COLOURS,
    KINDS,
    Observations,
    area_legend_entry,
    format_share,
)
from dashboards.chart import Array, Axis, Chart, Figure, Panel, intervals, marks, upright
from dashboards.columns import integers, numbers, with_columns
from tasks.audits.density.highly_memorised import HIGH

REQUIRED_COLUMNS = {"low", "high", "memorised", "regular", "share", "share_low", "share_high"}
MAX_LABELLED = 34  # maximum number of bins with labelled edges and counts
MAX_HEIGHT = 6.5  # maximum height of all rows in inches
# Panel widths in inches.
COUNTS = 1.65
SHARES = 1.2
LEFT = 1.3
PANEL_GAP = 0.65
MIDDLE = (0.05, 0.95)  # an observation between these quantiles of U is not an outlier
NAMED_ROWS = 3  # rows named per kind and bin
NAMED_BINS = 3  # bins in which rows are named
MANY_OBSERVATIONS = 10  # observations in a bin above which its interval must fit on the axis


@dataclass(frozen=True)
class OutlierBins:
    """Counts of both kinds in ascending bins of U. Edges are NaN at open ends."""

    low: Array
    high: Array
    counts: dict[str, Array]
    share: Array
    share_low: Array
    share_high: Array

    def name(self, index: int) -> str:
        low, high = self.low[index], self.high[index]
        if np.isnan(low) and np.isnan(high):
            return "all"
        if np.isnan(low):
            return f"< {format_number(high)}"
        if np.isnan(high):
            return f"≥ {format_number(low)}"
        return f"{format_number(low)} to {format_number(high)}"


def format_number(value: float) -> str:
    return f"{value:,g}".replace("-", "−")


def outliers(table: pa.Table, observations: Observations) -> Figure | None:
    """Draw counts of highly memorised and regular observations by log P, and the share of highly memorised ones."""
    bins = read_bins(table)
    if bins is None:
        return None
    inside = _describe_inliers(observations)
    total = {kind: int(counts.sum()) for kind, counts in bins.counts.items()}
    caption = (
        "U: log P of an observation under models trained on it; the outermost bins are open. Left: observations per "
        f"bin, on a logarithmic scale, with the number of highly memorised ones (M above its {HIGH:.0%} quantile). "
        "Right: their share, with 95 % intervals over repetitions (jackknife); dashed: their overall share, expected "
        "in every bin if memorisation did not depend on U. "
        f"{total['memorised']:,} highly memorised and {total['regular']:,} regular observations.{inside}"
    )
    height = min(MAX_HEIGHT, (0.24 if len(bins.low) <= 24 else 0.19) * len(bins.low))
    return Chart(
        "outliers",
        "Are highly memorised observations outliers?",
        caption,
        f"{_describe_bins(bins)}{inside} {' '.join(_describe_examples(table))}".strip(),
        height + legend.ROW + 0.85,
        [_counts_panel(bins, height), _shares_panel(bins, height)],
        [area_legend_entry(colour, KINDS[kind]) for kind, colour in KIND_COLOURS.items()],
    ).figure()


@with_columns(REQUIRED_COLUMNS)
def read_bins(table: pa.Table) -> OutlierBins | None:
    """Read the bins in ascending order. Returns None if all bins are empty."""
    order = _bin_order(table)
    low, high = numbers(table, "low"), numbers(table, "high")
    counts = {kind: integers(table, kind)[order].astype(np.float64) for kind in KINDS}
    if not sum(float(of_kind.sum()) for of_kind in counts.values()):
        return None
    share = (numbers(table, name)[order] for name in ("share", "share_low", "share_high"))
    return OutlierBins(low[order], high[order], counts, *share)


def _bin_order(table: pa.Table) -> NDArray[np.int64]:
    """Return row indices that sort the bins in ascending order. Null edges are open ends."""
    low, high = numbers(table, "low"), numbers(table, "high")
    return np.lexsort((np.where(np.isnan(high), np.inf, high), np.where(np.isnan(low), -np.inf, low)))


def _counts_panel(bins: OutlierBins, height: float) -> Panel:
    """Draw bars for both kinds, with the number of highly memorised observations if there is room."""
    n = len(bins.low)
    y = np.arange(len(bins.low))
    highest_count = max(float(counts.max()) for counts in bins.counts.values())
    legible = n <= MAX_LABELLED
    if legible:
        ticks = list(range(n))
    else:
        ticks = np.unique(np.linspace(0, n - 1, 12).astype(np.int64)).tolist()

    def draw_bars(axes: Any) -> None:
        axes.set_xscale("log")
        for kind, offset in (("memorised", 0.2), ("regular", -0.2)):
            nonempty = bins.counts[kind] > 0
            colour = KIND_COLOURS[kind]
            look = {"color": drawing.light(f"{colour}-band"), "edgecolor": drawing.light(colour), "linewidth": 0.9}
            axes.barh(y[nonempty] + offset, bins.counts[kind][nonempty] - 0.6, 0.38, left=0.6, **look)
        for index, count in enumerate(bins.counts["memorised"] if legible else ()):
            if count:
                axes.annotate(
                    f"{int(count):,}", (count, index + 0.2), (3, 0), textcoords="offset points", va="center",
                    fontsize=drawing.TEXT - 2, annotation_clip=False,
                )  # fmt: skip

    def finish(axes: Any) -> None:
        from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

        axes.xaxis.set_major_locator(LogLocator(numticks=4) if highest_count > 30 else LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: drawing.format_power(value)))
        drawing.hide_y_axis(axes)
        axes.set_yticks(ticks, [bins.name(index) for index in ticks], color=drawing.light("ink"))
        axes.annotate(
            "U, nats", (-LEFT * 72 + 6, height * 72 + 8), xycoords="axes points", color=drawing.light("muted"),
            fontsize=drawing.TEXT - 1,
        )  # fmt: skip

    return Panel(
        (LEFT, 0.55, COUNTS, height),
        [draw_bars],
        x=Axis("observations", (0.6, highest_count * 1.15), max_ticks=None),
        y=Axis(limits=(-0.5, n - 0.5)),
        finish=[finish],
    )


def _shares_panel(bins: OutlierBins, height: float) -> Panel:
    """Draw the share of highly memorised observations with intervals, and a line at the overall share."""
    defined = ~np.isnan(bins.share)
    y = np.arange(len(bins.low))[defined]
    colour = KIND_COLOURS["memorised"]
    memorised, regular = (float(counts.sum()) for counts in bins.counts.values())
    # Bins with few observations have wide intervals, which may exceed the axis.
    many = np.sum(list(bins.counts.values()), axis=0)[defined] >= MANY_OBSERVATIONS
    top = 1.0
    if many.any():
        top = float(bins.share_high[defined][many].max())
    return Panel(
        (LEFT + COUNTS + PANEL_GAP, 0.55, SHARES, height),
        [
            upright(memorised / (memorised + regular)),
            intervals(y, bins.share_low[defined], bins.share_high[defined], colour, 2, level=True),
            marks(bins.share[defined], y, colour, "o", 4.5),
        ],
        x=Axis("share memorised", (-0.04 * top, 1.06 * top), 3),
        y=Axis(limits=(-0.5, len(bins.low) - 0.5), ticks=([], [])),
        finish=[drawing.hide_y_axis],
    )


def _describe_inliers(observations: Observations) -> str:
    """Describe the highly memorised observations that are not outliers. Returns an empty string if U is unknown."""
    u = observations.column("log_p_trained")
    high = observations.high
    if not len(u) or len(u) != len(high):
        return ""
    defined = ~np.isnan(u)
    u = u[defined]
    high = high[defined]
    if not high.any():
        return ""
    low, top = (float(end) for end in np.quantile(u, MIDDLE))
    inside = int(((u >= low) & (u <= top) & high).sum())
    return (
        f" {format_share(inside, int(high.sum()))} of the highly memorised observations are in the central 90 % of U, "
        f"{format_number(float(f'{low:.4g}'))} to {format_number(float(f'{top:.4g}'))}."
    )


def _describe_bins(bins: OutlierBins) -> str:
    """Describe the share of highly memorised observations in the lowest, fullest and highest bins."""
    shares = []
    for index in dict.fromkeys((0, int(bins.counts["regular"].argmax()), len(bins.low) - 1)):
        memorised, regular = (int(counts[index]) for counts in bins.counts.values())
        shares.append(f"U {bins.name(index)}: {format_share(memorised, memorised + regular)} highly memorised")
    return f"{'; '.join(shares)}."


def _describe_examples(table: pa.Table) -> Iterator[str]:
    """List rows of both kinds from a few bins."""
    for name, rows in example_bins(table, NAMED_BINS):
        listed_rows = []
        for kind, kind_rows in rows.items():
            if kind_rows:
                listed_rows.append(f"{KINDS[kind]} rows {', '.join(map(str, kind_rows[:NAMED_ROWS]))}")
        if listed_rows:
            yield f"Among U {name}: {'; '.join(listed_rows)}."


@with_columns([f"{kind}_rows" for kind in KINDS], list)
def example_bins(table: pa.Table, max_bins: int) -> Iterator[tuple[str, dict[str, list[int]]]]:
    """Yield a few bins in ascending order that have examples of both kinds: the bin name and the rows of each kind."""
    bins = read_bins(table)
    if bins is None:
        return
    order = _bin_order(table).tolist()
    rows = {kind: table[f"{kind}_rows"].to_pylist() for kind in KINDS}
    examples = []
    for position, index in enumerate(order):
        of_bin = {kind: list(of_kind[index] or ()) for kind, of_kind in rows.items()}
        examples.append((bins.name(position), of_bin))
    complete_bins = [(name, of_bin) for name, of_bin in examples if all(of_bin.values())]
    if complete_bins:
        yield from (
            complete_bins[position]
            for position in np.unique(np.linspace(0, len(complete_bins) - 1, max_bins).round().astype(np.int64))
        )
