"""Figures with one row per role and target: distances to query models, and training accuracy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from dashboards import drawing, layout, legend
from dashboards.audits.forgetting.targets import (
    BOUND,
    ROLES,
    ModelGroup,
    format_count,
    group_name,
    legend_height,
    replicates,
    two_sided_mark,
    values_by_group,
)
from dashboards.chart import Array, Axis, Chart, Figure, Layer, line, marks, row_panel, upright
from dashboards.columns import integers, texts
from dashboards.summary import format_range
from tasks.audits.forgetting.measures.fits import ADEQUATE

Distances = Mapping[ModelGroup, Array]


def distances(table: pa.Table, names: Mapping[int, str]) -> Figure | None:
    """Draw one strip per role: distances between query models (the null), to calibration models and to each target."""
    below = values_by_group(table, "below")
    two_sided = values_by_group(table, "ks")
    if not below or not two_sided:
        return None
    visible = dict(list(below.items())[: layout.MOST])
    titles = {group: "between query models" if group[0] == "query" else group_name(group, names) for group in visible}
    caption = f"{_distances_caption(table, below)}{layout.left_out_note(len(visible), len(below), 'rows')}"
    farthest = None
    if ("query", -1) in visible:
        farthest = float(visible["query", -1].max())
    rows = layout.rows(list(titles.values()), legend_height(2))
    layers: list[Layer] = [] if farthest is None else [upright(farthest)]
    for (group, values), height in zip(visible.items(), rows.y.tolist(), strict=True):
        colour, marker, _ = ROLES[group[0]]
        layers += [
            marks(values, spread(values, height, 0.22), colour, marker, 4.2, alpha=0.7, markeredgewidth=0),
            line([values.mean()] * 2, [height - 0.36, height + 0.36], "ink", linewidth=1.6),
        ]
        # Between query models the distance is the same in either order, so the mean counts each pair once.
        if group in two_sided:
            layers.append(_hollow_mark(float(two_sided[group].mean()), height - 0.36))
    largest_values = (
        float(values.max()) for by_who in (visible, two_sided) for group, values in by_who.items() if group in visible
    )
    across = Axis("one-sided KS to query models, 0 to 1", drawing.padded_limits([0.0, *largest_values], 0.03))
    mean = {"color": drawing.light("ink"), "linewidth": 0, "marker": "|", "markersize": 11, "markeredgewidth": 1.6}
    return Chart(
        "distances",
        "How far are models from models of D_Q?",
        caption,
        _describe_distances(visible, two_sided, titles, _count_query_pairs(table)),
        rows.height,
        [row_panel(rows, layers, across)],
        [
            legend.line("mean", **mean),
            legend.line("mean of the two-sided", linewidth=0, **two_sided_mark()),
            *([] if farthest is None else [legend.line("farthest query models", **drawing.NULL)]),
        ],
    ).figure()


def spread(values: Array, height: float, reach: float) -> Array:
    """Return vertical positions for values within their row, so that equal values remain visible."""
    if len(values) > 1:
        return height + np.linspace(-reach, reach, len(values))
    return np.array([height], np.float64)


def _hollow_mark(x: float, y: float) -> Layer:
    """Draw the marker of the published, two-sided distance."""
    return lambda axes: axes.plot([x], [y], linestyle="none", zorder=4, **two_sided_mark())


def _distances_caption(table: pa.Table, below: Distances) -> str:
    models = replicates(table)
    counts = ", ".join(format_count(models[role], f"{role} model") for role in ("query", "calibration"))
    images = "unknown"
    if "images" in table.column_names:
        images = format_range(integers(table, "images").tolist())
    null = power = ""
    if ("query", -1) in below:
        null = "The first row is the null: pairs of models trained on D_Q, in either order. "
    if ("query", -1) in below and ("calibration", -1) in below:
        farthest = float(below["query", -1].max())
        nearest = float(below["calibration", -1].min())
        power = (
            f"Distance of the nearest calibration model: {drawing.format_number(nearest)}; of the farthest two query "
            f"models: {drawing.format_number(farthest)}. "
        )
    return (
        "Each mark is a pair of a query model and a model of the row: the one-sided KS distance by which the latter's "
        "confidences on D_Q lie below the former's. Hollow: the mean of the published KS, which counts differences in "
        f"both directions. {null}{power}No intervals: all pairs are shown, and pairs that share a model are not "
        f"independent. n: {counts}, {images} images."
    )


def _describe_distances(below: Distances, two_sided: Distances, titles: Mapping[ModelGroup, str], pairs: int) -> str:
    rows = (
        f"{titles[group]}, mean {drawing.format_number(float(values.mean()))}"
        f", {drawing.format_number(float(values.min()))} to "
        f"{drawing.format_number(float(values.max()))}, two-sided mean "
        f"{drawing.format_number(float(two_sided[group].mean()))}, "
        f"{format_count(pairs if group[0] == 'query' else len(values), 'pair')}"
        for group, values in below.items()
    )
    return f"One-sided KS distances to query models: {'; '.join(rows)}."


def _count_query_pairs(table: pa.Table) -> int:
    """Count the unordered pairs of query models."""
    between = texts(table, "model") == "query"
    ends = (integers(table, name)[between].tolist() for name in ("query", "replicate"))
    return len({frozenset(pair) for pair in zip(*ends, strict=True)})


def fits(table: pa.Table, names: Mapping[int, str]) -> Figure | None:
    """Draw the training accuracy of every model, with one row per role and target."""
    accuracy = values_by_group(table, "train_accuracy")
    if not accuracy:
        return None
    visible = dict(list(accuracy.items())[: layout.MOST])
    titles = {group: group_name(group, names) for group in visible}
    below = sum(int((values < ADEQUATE).sum()) for values in accuracy.values())
    n = sum(map(len, accuracy.values()))
    caption = (
        "Each mark is one training: its accuracy on its training images, in evaluation mode, in %. Below the line at "
        f"{100 * ADEQUATE:g} %, the result warns: {below} of {n} trainings. No intervals: every training is shown."
        f"{layout.left_out_note(len(visible), len(accuracy), 'rows')}"
    )
    words = " ".join(
        f"{titles[group]}: mean {format_percent(values.mean())} of "
        f"{len(values)}, {format_percent(values.min())} to "
        f"{format_percent(values.max())}."
        for group, values in visible.items()
    )
    alt = f"{below} of {n} below {100 * ADEQUATE:g} %. {words}"
    rows = layout.rows(list(titles.values()), legend_height(2))
    layers: list[Layer] = [upright(100 * ADEQUATE, BOUND)]
    for (group, values), height in zip(visible.items(), rows.y.tolist(), strict=True):
        colour, marker, _ = ROLES[group[0]]
        apart = spread(values, height, 0.2)
        low = values < ADEQUATE
        layers += [
            marks(100 * values[~low], apart[~low], colour, marker, 5.5, markeredgewidth=0),
            marks(100 * values[low], apart[low], "ink", "X", 5.5, markeredgewidth=0),
        ]
    lowest = min(float(values.min()) for values in visible.values())
    limits = drawing.padded_limits([100 * min(lowest, ADEQUATE), 100.0], 0.04)
    looks = {}
    for role in dict.fromkeys(group[0] for group in visible):
        looks[role] = ROLES[role][:2]
    if lowest < ADEQUATE:
        looks[f"below {100 * ADEQUATE:g} %"] = ("ink", "X")
    return Chart(
        "fits",
        "How well did the models learn their training data?",
        caption,
        alt,
        rows.height,
        [row_panel(rows, layers, Axis("accuracy on the images trained on, %", limits))],
        [
            legend.line(label, color=drawing.light(colour), marker=marker, markersize=5.5, linewidth=0)
            for label, (colour, marker) in looks.items()
        ],
    ).figure()


def format_percent(share: float) -> str:
    return f"{100 * float(share):.4g} %"
