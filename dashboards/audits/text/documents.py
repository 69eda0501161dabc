"""What a training on a document changes, and how many documents come out, beside models that never saw them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dashboards import drawing, layout, legend
from dashboards.audits.text.exposures import GOLDEN, legend_entries
from dashboards.chart import Axis, Chart, Figure, Layer, estimate_marks, line, marks, row_panel, upright
from dashboards.columns import integers, numbers
from tasks.audits.text.continuations import BEYOND, SHARE, TOLD, TWIN


def inserted_documents(table: pa.Table) -> pa.Table:
    """The documents that were inserted, without those that were left out; of another table all rows."""
    if "repetitions" not in table.column_names:
        return table
    return table.filter(pc.greater(table["repetitions"], 0))


def effects(table: pa.Table) -> Figure | None:
    """A row for each number of repetitions: a mark for each document, filled where it is found."""
    effect = numbers(table, "effect")
    if not len(effect) or np.isnan(effect).all():
        return None
    times, found = integers(table, "repetitions"), integers(table, "found") == 1
    there = np.unique(times)
    drawn = layout.rows([f"{name} times" if name > 1 else "once" for name in there], legend.ROW)
    heights = 0.6 * ((np.arange(len(effect)) * GOLDEN) % 1 - 0.5)
    layers: list[Layer] = [upright(0)]
    words = []
    for name, y in zip(there, drawn.y, strict=True):
        some = times == name
        layers.append(marks(effect[some & ~found], y + heights[some & ~found], "canary", "o", 4.5, fillstyle="none"))
        layers.append(marks(effect[some & found], y + heights[some & found], "canary", "o", 4.5))
        layers.append(line([np.nanmean(effect[some])] * 2, [y - 0.35, y + 0.35], "accent", linewidth=2))
        words.append(
            f"In the training data {f'{name} times' if name > 1 else 'once'}: mean "
            f"{drawing.format_number(float(np.nanmean(effect[some])))} nats a token, {int((some & found).sum())} of "
            f"{int(some.sum())} found."
        )
    ends = drawing.padded_limits([0.0, *effect[~np.isnan(effect)].tolist()])
    return Chart(
        "effects",
        "How much likelier is a document once a model was trained on it?",
        f"Each mark is one of {len(effect):,} documents: its mean log-probability by models that were trained on it, "
        "less that by those that were not, in nats a token. Upright: the mean of a row. Dashed: 0, where nothing is "
        "known. Height within a row means nothing.",
        " ".join(words),
        drawn.height,
        [row_panel(drawn, layers, Axis("effect, nats a token", ends))],
        legend_entries(beside_twins=False),
    ).figure()


def reproduction(table: pa.Table) -> Figure | None:
    """A row for each way of coming out: the share of documents by models that were trained on them, and by twins."""
    rows = [row for row in table.to_pylist() if row.get("repetitions") is None and row.get("way")]
    ways = list(dict.fromkeys(row["way"] for row in rows))
    if not ways:
        return None
    by = {(row["metric"], row["way"], row["by"]): row for row in rows}
    drawn = layout.rows(ways, legend.ROW)
    sides = [(TOLD, "canary", "o", 0.14), (TWIN, "twin", "D", -0.14)]
    layers = [
        estimate_marks(drawn.y + above, [by[SHARE, way, side] for way in ways], colour, level=True, marker=mark,
                       markersize=5.5, linestyle="none")
        for side, colour, mark, above in sides
    ]  # fmt: skip
    words = [
        f"{way}: {drawing.format_number(by[SHARE, way, TOLD]['estimate'])} by models trained on a document, "
        f"{drawing.format_number(by[SHARE, way, TWIN]['estimate'])} by the others, difference "
        f"{drawing.format_number(by[BEYOND, way, None]['estimate'])}"
        f"{drawing.format_interval(by[BEYOND, way, None]['low'], by[BEYOND, way, None]['high'])}."
        for way in ways
    ]
    first = rows[0]
    return Chart(
        "reproduction",
        "How many documents come out, and how many by fluency alone?",
        f"Share of {first['documents']:,} documents whose next tokens a model writes, of {first['models']} models: "
        "by those that were trained on a document, and by those that never saw it. greedy: all tokens, the likeliest "
        "each time. near: by edit distance. n attempts: one of n that are drawn, with the stated probability. Bars: "
        f"95 % intervals over {'models and documents' if first['models'] > 2 else 'documents'}.",
        " ".join(words),
        drawn.height,
        [row_panel(drawn, layers, Axis("share of documents", (-0.03, 1.03)))],
        [
            legend.line("trained on it", marker="o", linestyle="none", color=drawing.light("canary")),
            legend.line("never saw it", marker="D", linestyle="none", color=drawing.light("twin")),
        ],
    ).figure()
