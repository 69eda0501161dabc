"""Whether what is highly memorised is what the model holds for outliers: figures 3, 10 and 11."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dashboards import drawing
from dashboards.audits.density import style
from dashboards.audits.density.observed import HIGH, Array, Observed
from dashboards.columns import integers, numbers
from dashboards.figure import Figure

NEEDED = {"low", "high", "memorised", "regular", "share", "share_low", "share_high"}
LEGIBLE = 34  # bins whose edges and counts can stand beside them
TALL = 6.5  # inches of rows at most
COUNTS, SHARES, LEFT, APART = 1.65, 1.2, 1.3, 0.65  # inches across
MIDDLE = (0.05, 0.95)  # the quantiles of U between which an observation is no outlier
NAMED = 3  # rows named of each kind in a bin
SHOWN = 3  # bins of which rows are named
MANY = 10  # observations of a bin whose interval fits


@dataclass(frozen=True)
class Binned:
    """Counts of both kinds in bins of U from the lowest up; edges are NaN at open ends."""

    low: Array
    high: Array
    counts: dict[str, Array]
    share: Array
    share_low: Array
    share_high: Array

    def name(self, at: int) -> str:
        low, high = self.low[at], self.high[at]
        if np.isnan(low) and np.isnan(high):
            return "all"
        if np.isnan(low):
            return f"< {signed(high)}"
        return f"≥ {signed(low)}" if np.isnan(high) else f"{signed(low)} to {signed(high)}"


def signed(value: float) -> str:
    return f"{value:,g}".replace("-", "−")


def outliers(table: pa.Table, seen: Observed) -> Figure | None:
    """Counts of highly memorised and regular observations by log P where trained on, and the share of the former."""
    found = binned(table)
    if found is None:
        return None
    n = len(found.low)
    legible = n <= LEGIBLE
    height = min(TALL, (0.24 if n <= 24 else 0.19) * n)
    figure = drawing.canvas(height + style.ROW + 0.85)
    left = drawing.place(figure, LEFT, 0.55, COUNTS, height)
    right = drawing.place(figure, LEFT + COUNTS + APART, 0.55, SHARES, height)
    counted(left, found, legible)
    shared(right, found)
    for axes in (left, right):
        axes.set_ylim(-0.5, n - 0.5)
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
    ticks = range(n) if legible else np.unique(np.linspace(0, n - 1, 12).astype(np.int64)).tolist()
    left.set_yticks(list(ticks), [found.name(at) for at in ticks], color=drawing.light("ink"))
    right.set_yticks([])
    left.annotate(
        "U, nats", (-LEFT * 72 + 6, height * 72 + 8), xycoords="axes points", color=drawing.light("muted"),
        fontsize=drawing.TEXT - 1,
    )  # fmt: skip
    style.legend(figure, [style.of_patch(colour, style.KINDS[kind]) for kind, colour in style.OF_KIND.items()])
    inside = within(seen)
    total = {kind: int(counts.sum()) for kind, counts in found.counts.items()}
    caption = (
        "U: log P of an observation to models trained on it; the outermost bins are open. Left: observations in each "
        f"bin, on a logarithmic scale, with the number of highly memorised ones (M above its {HIGH:.0%} quantile). "
        "Right: their share, with 95 % Wilson intervals over observations; dashed: their share of all, which every "
        "bin would have if memory had nothing to do with U. "
        f"{total['memorised']:,} highly memorised and {total['regular']:,} regular observations.{inside}"
    )
    alt = f"{words(found)}{inside} {' '.join(examples(table))}".strip()
    title = "Are the highly memorised those that the model holds for outliers?"
    return Figure("outliers", title, caption, alt, drawing.svg(figure, "outliers"))


def binned(table: pa.Table) -> Binned | None:
    if not set(table.column_names) >= NEEDED or not table.num_rows:
        return None
    order = ordered(table)
    low, high = numbers(table, "low"), numbers(table, "high")
    counts = {kind: integers(table, kind)[order].astype(np.float64) for kind in style.KINDS}
    if not sum(float(each.sum()) for each in counts.values()):
        return None
    share = (numbers(table, name)[order] for name in ("share", "share_low", "share_high"))
    return Binned(low[order], high[order], counts, *share)


def ordered(table: pa.Table) -> NDArray[np.int64]:
    """The rows of bins from the lowest up; open ends are null."""
    low, high = numbers(table, "low"), numbers(table, "high")
    return np.lexsort((np.where(np.isnan(high), np.inf, high), np.where(np.isnan(low), -np.inf, low)))


def counted(axes: Any, found: Binned, legible: bool) -> None:
    y = np.arange(len(found.low))
    most = max(float(each.max()) for each in found.counts.values())
    axes.set_xscale("log")
    axes.set_xlim(0.6, most * 1.15)
    axes.set_axisbelow(True)
    for kind, offset in (("memorised", 0.2), ("regular", -0.2)):
        there = found.counts[kind] > 0
        colour = style.OF_KIND[kind]
        bars = found.counts[kind][there] - 0.6
        look = {"color": drawing.light(f"{colour}-band"), "edgecolor": drawing.light(colour), "linewidth": 0.9}
        axes.barh(y[there] + offset, bars, 0.38, left=0.6, **look)
    if legible:
        for at, count in enumerate(found.counts["memorised"]):
            if count:
                axes.annotate(
                    f"{int(count):,}", (count, at + 0.2), (3, 0), textcoords="offset points", va="center",
                    fontsize=drawing.TEXT - 2.5, annotation_clip=False,
                )  # fmt: skip
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.xaxis.set_major_locator(LogLocator(numticks=4) if most > 30 else LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: drawing.power(value)))
    axes.set_xlabel("observations")


def shared(axes: Any, found: Binned) -> None:
    there = ~np.isnan(found.share)
    y = np.arange(len(found.low))[there]
    colour = drawing.light(style.OF_KIND["memorised"])
    memorised, regular = (float(each.sum()) for each in found.counts.values())
    axes.axvline(memorised / (memorised + regular), **style.null())
    heights, ends = drawing.broken(y, found.share_low[there], found.share_high[there])
    axes.plot(ends, heights, color=colour, linewidth=2, solid_capstyle="butt")
    axes.plot(found.share[there], y, "o", color=colour, markersize=4.5)
    # Of a few observations an interval says little and reaches far: it may run off.
    many = np.sum(list(found.counts.values()), axis=0)[there] >= MANY
    top = float(found.share_high[there][many].max()) if many.any() else 1.0
    axes.set_xlim(-0.04 * top, 1.06 * top)
    drawing.ticks(axes, across=3)
    axes.set_xlabel("share memorised")


def within(seen: Observed) -> str:
    """How many of the highly memorised are no outliers by their U, in words; nothing where it is not known."""
    u, high = seen.column("log_p_trained"), seen.high
    if not len(u) or len(u) != len(high):
        return ""
    there = ~np.isnan(u)
    u, high = u[there], high[there]
    if not high.any():
        return ""
    low, top = (float(each) for each in np.quantile(u, MIDDLE))
    inside = int(((u >= low) & (u <= top) & high).sum())
    return (
        f" {style.share(inside, int(high.sum()))} of the highly memorised lie in the middle 90 % of U, "
        f"{signed(float(f'{low:.4g}'))} to {signed(float(f'{top:.4g}'))}."
    )


def words(found: Binned) -> str:
    said = []
    for index in dict.fromkeys((0, int(found.counts["regular"].argmax()), len(found.low) - 1)):
        memorised, regular = (int(each[index]) for each in found.counts.values())
        said.append(f"U {found.name(index)}: {style.share(memorised, memorised + regular)} highly memorised")
    return f"{'; '.join(said)}."


def examples(table: pa.Table) -> Iterator[str]:
    """Rows of both kinds from a few bins, in words."""
    for name, rows in chosen(table, SHOWN):
        named = [f"{style.KINDS[kind]} rows {', '.join(map(str, some[:NAMED]))}" for kind, some in rows.items() if some]
        if named:
            yield f"Among U {name}: {'; '.join(named)}."


def chosen(table: pa.Table, most: int) -> Iterator[tuple[str, dict[str, list[int]]]]:
    """Some bins with examples of both kinds, from the lowest up: the bin's name, and the rows of each kind."""
    columns = {kind: f"{kind}_rows" for kind in style.KINDS}
    found = binned(table)
    if found is None or not set(columns.values()) <= set(table.column_names):
        return
    order = ordered(table).tolist()
    rows = {kind: table[column].to_pylist() for kind, column in columns.items()}
    there = [
        (found.name(at), {kind: list(some[index] or ()) for kind, some in rows.items()})
        for at, index in enumerate(order)
    ]
    both = [each for each in there if all(each[1].values())]
    if both:
        yield from (both[at] for at in np.unique(np.linspace(0, len(both) - 1, most).round().astype(np.int64)))
