"""Near duplicates in the training set, which are trained on while an observation is held out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dashboards import drawing, layout, legend
from dashboards.columns import integers, numbers
from dashboards.figure import Figure

NEEDED = {"rank", "row", "other", "distance"}
MOST = 300  # pairs
NAMED = 3
ALIKE = {"same label": ("accent", "o"), "different labels": ("canary", "^"), "pairs": ("accent", "o")}


def duplicates(table: pa.Table) -> Figure | None:
    """Pairs by rank and distance, with those of different labels marked."""
    if not set(table.column_names) >= NEEDED:
        return None
    distance = numbers(table, "distance")
    order = np.argsort(integers(table, "rank"), kind="stable")
    order = order[~np.isnan(distance[order])]
    if not len(order):
        return None
    rest = f" The first {MOST} of {len(order)} pairs are drawn." if len(order) > MOST else ""
    caption = (
        "Each mark is a pair of training images and their Euclidean distance; at 0 they are the same image. What has "
        "such a twin is still trained on when it is held out, so its score M is low though the model may reproduce "
        f"it.{rest} No intervals: every pair is shown as it is."
    )
    title = "Are there images twice in the training set?"
    return Figure("duplicates", title, caption, describe_duplicates(table, order), draw_svg(table, order[:MOST]))


def draw_svg(table: pa.Table, shown: NDArray[np.int64]) -> str:
    """These pairs as SVG: their distance over their rank."""
    figure = drawing.canvas(3.0)
    axes = layout.wide_axes(figure, 0.55, 2.05)
    rank, distance = integers(table, "rank")[shown], numbers(table, "distance")[shown]
    names = np.array(pair_kinds(table))[shown]
    entries = []
    for name, (colour, marker) in ALIKE.items():
        named = names == name
        if named.any():
            look: dict[str, Any] = {"color": drawing.light(colour), "marker": marker, "markeredgewidth": 0}
            look |= {"linestyle": "none"}
            axes.plot(rank[named], distance[named], markersize=4.5 if len(shown) <= 100 else 3, **look)
            entries.append(legend.line(f"{name}, {int(named.sum())}", markersize=5, **look))
    axes.set_xlim(*drawing.padded_limits([1.0, float(rank.max())], 0.03))
    axes.set_ylim(*drawing.padded_limits([0.0, float(distance.max())]))
    drawing.set_ticks(axes, 6, 5, whole=True)
    axes.set_xlabel("pair, the closest first")
    axes.set_ylabel("distance")
    legend.add_above(figure, entries)
    return drawing.svg(figure, "duplicates")


def describe_duplicates(table: pa.Table, order: NDArray[np.int64]) -> str:
    """The distances of the pairs, the number with different labels and the closest, in words."""
    distance, kind = numbers(table, "distance")[order], pair_kinds(table)
    row, other = integers(table, "row")[order], integers(table, "other")[order]
    closest = ", ".join(
        f"{one} and {two} ({drawing.format_number(float(apart))})"
        for one, two, apart in zip(row[:NAMED], other[:NAMED], distance[:NAMED], strict=True)
    )
    different = sum(kind[at] == "different labels" for at in order)
    return (
        f"{len(order)} pairs, distance {drawing.format_number(float(distance[0]))}"
        f" to {drawing.format_number(float(distance[-1]))}; "
        f"{int((distance == 0).sum())} pairs at 0"
        f"{f'; {different} of different labels' if 'pairs' not in kind else ''}. Closest: rows {closest}."
    )


def pair_kinds(table: pa.Table) -> list[str]:
    """Whether each pair's labels are the same; `pairs` for data without labels."""
    if not {"label", "other_label"} <= set(table.column_names):
        return ["pairs"] * table.num_rows
    label, other = numbers(table, "label"), numbers(table, "other_label")
    if np.isnan(label).any() or np.isnan(other).any():
        return ["pairs"] * table.num_rows
    return ["same label" if one == two else "different labels" for one, two in zip(label, other, strict=True)]
