"""By how many bits the models shorten the search for each secret, beside what their twins and chance say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from dashboards import drawing, layout, legend
from dashboards.chart import Axis, Chart, Figure, Layer, line, marks, row_panel, upright
from dashboards.columns import integers, numbers, texts
from tasks.audits.text.secrets.space import mean_exposure_of_uniform_ranks

if TYPE_CHECKING:
    from matplotlib.artist import Artist

# Heights by multiples of the golden ratio: scattered evenly, and the same each time.
GOLDEN = 0.6180339887


def exposures(table: pa.Table) -> Figure | None:
    """A row for each number of repetitions, or for each format of identifiers: a mark for each secret and its twin."""
    told = numbers(table, "exposure")
    if not len(told) or np.isnan(told).all():
        return None
    of_identifiers = "format" in table.column_names
    things = "identifiers" if of_identifiers else "secrets"
    group = texts(table, "format") if of_identifiers else integers(table, "repetitions")
    there = np.unique(group)
    twin = numbers(table, "exposure_twin") if "exposure_twin" in table.column_names else np.full(len(told), np.nan)
    found = integers(table, "found") == 1
    names = [str(name) if of_identifiers else f"told {name} times" for name in there]
    names = [name.replace("told 1 times", "told once") for name in names]
    entries = legend_entries(bool((~np.isnan(twin)).any()))
    drawn = layout.rows(names, legend.height(len(entries)) + 0.1)
    step = 0.36 * ((np.arange(len(told)) * GOLDEN) % 1 - 0.5)
    chance = mean_exposure_of_uniform_ranks(int(integers(table, "candidates").max()))
    layers: list[Layer] = [upright(chance)]
    words = []
    for name, label, y in zip(there, names, drawn.y, strict=True):
        some = group == name
        layers.append(marks(twin[some], y - 0.22 + 0.5 * step[some], "twin", "o", 4))
        layers.append(marks(told[some & ~found], y + 0.16 + step[some & ~found], "canary", "o", 4.5, fillstyle="none"))
        layers.append(marks(told[some & found], y + 0.16 + step[some & found], "canary", "o", 4.5))
        layers.append(line([told[some].mean()] * 2, [y - 0.02, y + 0.36], "accent", linewidth=2))
        beside = (
            f", {drawing.format_number(float(np.nanmean(twin[some])))} by twins"
            if (~np.isnan(twin[some])).any()
            else ""
        )
        words.append(
            f"{label}: mean {drawing.format_number(float(told[some].mean()))} bits{beside}, "
            f"{int((some & found).sum())} of {int(some.sum())} found."
        )
    ends = drawing.padded_limits([0.0, *told[~np.isnan(told)].tolist(), *twin[~np.isnan(twin)].tolist()])
    return Chart(
        "exposures",
        "How much shorter does the model make the search for what was drawn?",
        f"Each mark is one of {len(told):,} {things}: by how many bits its rank among others of its space shortens the "
        "search for it. Upright: the mean of a row. Dashed: the mean where nothing is known. Height within a row means "
        "nothing.",
        " ".join(words),
        drawn.height,
        [row_panel(drawn, layers, Axis("exposure, bits", ends))],
        entries,
    ).figure()


def legend_entries(beside_twins: bool) -> list[Artist]:
    """What the marks are."""
    entries = [
        legend.line("found", marker="o", linestyle="none", color=drawing.light("canary")),
        legend.line("not found", marker="o", linestyle="none", fillstyle="none", color=drawing.light("canary")),
    ]
    twin = legend.line("by the twin, which was not told it", marker="o", linestyle="none", color=drawing.light("twin"))
    return [*entries, twin] if beside_twins else entries
