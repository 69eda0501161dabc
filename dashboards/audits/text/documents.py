"""Figures of documents: the effect of training on them, and the share that models reproduce."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dashboards import drawing, layout, legend
from dashboards.audits.text.exposures import GOLDEN, legend_entries
from dashboards.chart import Axis, Chart, Figure, Layer, estimate_marks, line, marks, row_panel, upright
from dashboards.columns import integers, numbers
from tasks.audits.text.continuations import BEYOND, BY_CONTROL, BY_TRAINED, SHARE
from tasks.contract.summaries import Row


def inserted_documents(table: pa.Table) -> pa.Table:
    """Select the inserted documents. Other tables are returned unchanged."""
    if "repetitions" not in table.column_names:
        return table
    return table.filter(pc.greater(table["repetitions"], 0))


def effects(table: pa.Table) -> Figure | None:
    """Draw one row per number of repetitions, with one mark per document.

    The mark is filled if the document is found.
    """
    effect = numbers(table, "effect")
    if not len(effect) or np.isnan(effect).all():
        return None
    times = integers(table, "repetitions")
    is_found = integers(table, "found") == 1
    labels = {count: "once" if count == 1 else f"{count} times" for count in np.unique(times)}
    panel_rows = layout.rows([*labels.values()], legend.ROW)
    heights = 0.6 * ((np.arange(len(effect)) * GOLDEN) % 1 - 0.5)
    layers: list[Layer] = [upright(0)]
    descriptions = []
    for (count, label), y in zip(labels.items(), panel_rows.y, strict=True):
        in_row = times == count
        mean = float(np.nanmean(effect[in_row]))
        other_rows = in_row & ~is_found
        found_rows = in_row & is_found
        layers.append(marks(effect[other_rows], y + heights[other_rows], "canary", "o", 4.5, fillstyle="none"))
        layers.append(marks(effect[found_rows], y + heights[found_rows], "canary", "o", 4.5))
        layers.append(line([mean] * 2, [y - 0.35, y + 0.35], "accent", linewidth=2))
        descriptions.append(
            f"In the training data {label}: mean {drawing.format_number(mean)} nats per token, "
            f"{int(found_rows.sum())} of {int(in_row.sum())} found."
        )
    ends = drawing.padded_limits([0.0, *effect[~np.isnan(effect)].tolist()])
    return Chart(
        "effects",
        "How much more probable does training make a document?",
        f"Each mark is one of {len(effect):,} documents: its mean log-probability by models that were trained on it "
        "minus that by all other models, in nats per token. Solid line: mean of a row. Dashed line: 0, no memory. The "
        "vertical position within a row has no meaning.",
        " ".join(descriptions),
        panel_rows.height,
        [row_panel(panel_rows, layers, Axis("effect, nats per token", ends))],
        legend_entries(has_controls=False),
    ).figure()


def reproduction(table: pa.Table) -> Figure | None:
    """Draw one row per criterion: the share of documents that trained models and control models reproduce."""
    estimates: dict[tuple[str, str, str | None], Row] = {}
    for row in table.to_pylist():
        if row.get("repetitions") is None and row.get("way"):
            estimates[row["metric"], row["way"], row["by"]] = row
    ways = list(dict.fromkeys(way for _, way, _ in estimates))
    if not ways:
        return None
    panel_rows = layout.rows(ways, legend.ROW)
    layers = []
    for by, colour, marker, offset in ((BY_TRAINED, "canary", "o", 0.14), (BY_CONTROL, "twin", "D", -0.14)):
        shares = [estimates[SHARE, way, by] for way in ways]
        layers.append(
            estimate_marks(
                panel_rows.y + offset, shares, colour, level=True, marker=marker, markersize=5.5, linestyle="none"
            )
        )
    descriptions = []
    for way in ways:
        trained_share = estimates[SHARE, way, BY_TRAINED]["estimate"]
        control_share = estimates[SHARE, way, BY_CONTROL]["estimate"]
        difference = estimates[BEYOND, way, None]
        descriptions.append(
            f"{way}: {drawing.format_number(trained_share)} by trained models, "
            f"{drawing.format_number(control_share)} by control models, difference "
            f"{drawing.format_number(difference['estimate'])}"
            f"{drawing.format_interval(difference['low'], difference['high'])}."
        )
    first = next(iter(estimates.values()))
    unit = "documents"
    if first["models"] > 2:
        unit = "models and documents"
    return Chart(
        "reproduction",
        "How many documents do models reproduce?",
        f"Share of {first['documents']:,} documents that {first['models']} models continue with the original text: "
        "models that were trained on a document, and control models. greedy: the most likely continuation is equal. "
        "near-verbatim: its edit distance is small. n attempts: one of n sampled continuations is equal, with the "
        f"configured probability. Bars: 95 % intervals over {unit}.",
        " ".join(descriptions),
        panel_rows.height,
        [row_panel(panel_rows, layers, Axis("share of documents", (-0.03, 1.03)))],
        [
            legend.line("trained model", marker="o", linestyle="none", color=drawing.light("canary")),
            legend.line("control model", marker="D", linestyle="none", color=drawing.light("twin")),
        ],
    ).figure()
