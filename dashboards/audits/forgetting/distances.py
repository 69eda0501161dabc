"""KS distances of every model's confidences on D_Q to those of every query model, from which rho is computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dashboards import drawing, layout, legend
from dashboards.audits.forgetting import roles
from dashboards.audits.forgetting.targets import (
    ModelGroup,
    format_count,
    format_range,
    group_name,
    replicates,
    values_by_group,
)
from dashboards.columns import integers, texts
from dashboards.figure import Figure

Array = NDArray[np.float64]
Distances = Mapping[ModelGroup, Array]


def distances(table: pa.Table, names: Mapping[int, str]) -> Figure | None:
    """A strip for each role: between query models, which is the null, to calibration models, and to each target."""
    below, two_sided = values_by_group(table, "below"), values_by_group(table, "ks")
    if not below or not two_sided:
        return None
    shown = dict(list(below.items())[: layout.MOST])
    titles = {who: "between query models" if who[0] == "query" else group_name(who, names) for who in shown}
    caption = f"{figure_caption(table, below)}{layout.left_out_note(len(shown), len(below), 'rows')}"
    title = "How far are models from those that were trained on the query set?"
    svg = draw_svg(shown, two_sided, titles)
    return Figure(
        "distances", title, caption, describe_distances(shown, two_sided, titles, count_query_pairs(table)), svg
    )


def draw_svg(below: Distances, two_sided: Distances, titles: Mapping[ModelGroup, str]) -> str:
    """The distances as SVG, a row for each role and target."""
    farthest = float(below["query", -1].max()) if ("query", -1) in below else None
    figure, axes, y = layout.row_axes(list(titles.values()), roles.legend_height(2))
    if farthest is not None:
        axes.axvline(farthest, **drawing.NULL)
    for (who, values), height in zip(below.items(), y.tolist(), strict=True):
        colour, marker, _ = roles.ROLES[who[0]]
        look: dict[str, Any] = {"color": drawing.light(colour), "linestyle": "none"}
        # Several values at one place are told apart by where they stand in their row, in the table's order.
        apart = height + np.linspace(-0.22, 0.22, len(values)) if len(values) > 1 else [height]
        axes.plot(values, apart, marker, markersize=4.2, alpha=0.7, markeredgewidth=0, **look)
        axes.plot([values.mean()] * 2, [height - 0.36, height + 0.36], color=drawing.light("ink"), linewidth=1.6)
        if who in two_sided:  # between query models it is the same in either order, so its mean counts each pair once
            axes.plot([two_sided[who].mean()], [height - 0.36], linestyle="none", zorder=4, **roles.two_sided_mark(4.5))
    everything = (
        float(values.max()) for by_who in (below, two_sided) for who, values in by_who.items() if who in below
    )
    axes.set_xlim(*drawing.padded_limits([0.0, *everything], 0.03))
    axes.set_xlabel("one-sided KS to query models, 0 to 1")
    upright = {"color": drawing.light("ink"), "linewidth": 0, "marker": "|", "markersize": 11, "markeredgewidth": 1.6}
    entries = [
        legend.line("mean", **upright),
        legend.line("mean of the two-sided", linewidth=0, **roles.two_sided_mark(4.5)),
    ]
    if farthest is not None:
        entries.append(legend.line("farthest query models", **drawing.NULL))
    legend.add_above(figure, entries)
    return drawing.svg(figure, "distances")


def figure_caption(table: pa.Table, below: Distances) -> str:
    """The caption of the figure."""
    models = replicates(table)
    counts = ", ".join(format_count(models[role], f"{role} model") for role in ("query", "calibration"))
    images = format_range(integers(table, "images").tolist()) if "images" in table.column_names else "unknown"
    null = power = ""
    if ("query", -1) in below:
        null = "The first row is the null: models that were all trained on D_Q, each pair in either order. "
    if ("query", -1) in below and ("calibration", -1) in below:
        farthest, nearest = float(below["query", -1].max()), float(below["calibration", -1].min())
        power = (
            f"The nearest calibration model is {drawing.format_number(nearest)} away, the farthest two query models "
            f"{drawing.format_number(farthest)}. "
        )
    return (
        "Each mark is a pair: a query model and the model of the row, and how far the latter's confidences on D_Q lie "
        "below the former's: by how much the share of images that it is at most so confident about is larger, at "
        "most. Hollow: the mean of the published KS, which counts differences to either side. "
        f"{null}{power}No intervals: all pairs are shown, and pairs that share a model are "
        f"not independent. n: {counts}, {images} images."
    )


def describe_distances(below: Distances, two_sided: Distances, titles: Mapping[ModelGroup, str], pairs: int) -> str:
    """The mean distance of each row with the least and the most, in words."""
    rows = (
        f"{titles[who]}, mean {drawing.format_number(float(values.mean()))}"
        f", {drawing.format_number(float(values.min()))} to "
        f"{drawing.format_number(float(values.max()))}, two-sided mean "
        f"{drawing.format_number(float(two_sided[who].mean()))}, "
        f"{format_count(pairs if who[0] == 'query' else len(values), 'pair')}"
        for who, values in below.items()
    )
    return f"One-sided KS distances to query models: {'; '.join(rows)}."


def count_query_pairs(table: pa.Table) -> int:
    """The number of unordered pairs of query models."""
    between = texts(table, "model") == "query"
    ends = (integers(table, name)[between].tolist() for name in ("query", "replicate"))
    return len({frozenset(pair) for pair in zip(*ends, strict=True)})
