"""Figure of exposures: by trained models, by control models, and expected without memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dashboards import drawing, layout, legend
from dashboards.chart import Axis, Chart, Figure, Layer, line, marks, row_panel, upright
from dashboards.columns import integers, numbers, texts
from tasks.audits.text.secrets.space import mean_exposure_of_uniform_ranks

if TYPE_CHECKING:
    from matplotlib.artist import Artist

# Multiples of the golden ratio scatter heights evenly and reproducibly.
GOLDEN = 0.6180339887


def exposures(table: pa.Table) -> Figure | None:
    """Draw one row per number of repetitions, or per format, with marks for trained and control models."""
    exposure = numbers(table, "exposure")
    if not len(exposure) or np.isnan(exposure).all():
        return None
    has_identifiers = "format" in table.column_names
    things = "secrets"
    if has_identifiers:
        things = "identifiers"
    groups: NDArray[Any]
    if has_identifiers:
        groups = texts(table, "format")
    else:
        groups = integers(table, "repetitions")
    control = np.full(len(exposure), np.nan)
    if "exposure_control" in table.column_names:
        control = numbers(table, "exposure_control")
    is_found = integers(table, "found") == 1
    labels = {group: _row_label(group, has_identifiers) for group in np.unique(groups)}
    entries = legend_entries(bool((~np.isnan(control)).any()))
    rows = layout.rows([*labels.values()], legend.height(len(entries)) + 0.1)
    scatter = 0.36 * ((np.arange(len(exposure)) * GOLDEN) % 1 - 0.5)
    chance = mean_exposure_of_uniform_ranks(int(integers(table, "candidates").max()))
    layers: list[Layer] = [upright(chance)]
    descriptions = []
    for (group, label), y in zip(labels.items(), rows.y, strict=True):
        in_row = groups == group
        other_rows = in_row & ~is_found
        found_rows = in_row & is_found
        mean = float(exposure[in_row].mean())
        layers.append(marks(control[in_row], y - 0.22 + 0.5 * scatter[in_row], "twin", "o", 4))
        layers.append(marks(exposure[other_rows], y + 0.16 + scatter[other_rows], "canary", "o", 4.5, fillstyle="none"))
        layers.append(marks(exposure[found_rows], y + 0.16 + scatter[found_rows], "canary", "o", 4.5))
        layers.append(line([mean] * 2, [y - 0.02, y + 0.36], "accent", linewidth=2))
        comparison = ""
        if (~np.isnan(control[in_row])).any():
            comparison = f", {drawing.format_number(float(np.nanmean(control[in_row])))} by control models"
        descriptions.append(
            f"{label}: mean {drawing.format_number(mean)} bits{comparison}, "
            f"{int(found_rows.sum())} of {int(in_row.sum())} found."
        )
    ends = drawing.padded_limits([0.0, *exposure[~np.isnan(exposure)].tolist(), *control[~np.isnan(control)].tolist()])
    return Chart(
        "exposures",
        "How much does the model shorten a search for the random characters?",
        f"Each mark is one of {len(exposure):,} {things}: the number of bits by which its rank among candidates "
        "shortens a search for it. Solid line: mean of a row. Dashed line: mean without memory. The vertical position "
        "within a row has no meaning.",
        " ".join(descriptions),
        rows.height,
        [row_panel(rows, layers, Axis("exposure, bits", ends))],
        entries,
    ).figure()


def _row_label(group: Any, is_format: bool) -> str:
    if is_format:
        return str(group)
    if group == 1:
        return "once in the texts"
    return f"{group} times in the texts"


def legend_entries(has_controls: bool) -> list[Artist]:
    """Return the legend entries for the marks."""
    entries = [
        legend.line("found", marker="o", linestyle="none", color=drawing.light("canary")),
        legend.line("not found", marker="o", linestyle="none", fillstyle="none", color=drawing.light("canary")),
    ]
    control = legend.line("by the control model", marker="o", linestyle="none", color=drawing.light("twin"))
    if has_controls:
        return [*entries, control]
    return entries
