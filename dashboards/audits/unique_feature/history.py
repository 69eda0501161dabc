"""Validation loss and accuracy of the models by epoch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from dashboards import drawing
from dashboards.audits.unique_feature.learning_curve import LearningCurves, read_curves
from dashboards.audits.unique_feature.pairs import KIND_NAMES, LINES, MODELS, line_legend_entries
from dashboards.chart import Axis, Chart, Facet, Figure, facet_panels
from dashboards.columns import with_columns

STEP = 1.8  # inches from one panel to the next
DRAWN = 60  # models drawn as individual lines
MEASURES = {"validation_loss": "validation loss, nats", "validation_accuracy": "validation accuracy"}
NEEDED = ("canary", "seed", "model", "epoch", "kept", *MEASURES)


@with_columns(NEEDED)
def histories(table: pa.Table) -> Figure | None:
    """Draw thin lines for some models, the median and central 80 % of all models, and the kept epochs."""
    curves = {model: of_kind for model in MODELS if (of_kind := read_curves(table, model, MEASURES, 1)) is not None}
    if not curves:
        return None
    several = max(of_kind.models for of_kind in curves.values()) > 1
    facets = []
    for name, label in MEASURES.items():
        last = max(of_kind.measures[name].shape[1] for of_kind in curves.values())
        lowest = name == list(MEASURES)[-1]
        limits = drawing.padded_limits([1.0, float(last)], 0.02)
        facets.append(
            Facet(
                [partial(_draw_history, curves=curves, name=name)],
                y=Axis(label, max_ticks=4, log=() if name == "validation_loss" else None),
                x=Axis("epoch" if lowest else "", limits, 6, integer_ticks=True, has_tick_labels=lowest),
            )
        )
    return Chart(
        "histories",
        "Did the trainings converge, and are both kinds alike?",
        figure_caption(curves) if several else KEPT,
        " ".join(_describe_history(model, of_kind) for model, of_kind in curves.items()),
        STEP * len(MEASURES) + 0.65,
        facet_panels(facets, STEP, gap=0.25),
        line_legend_entries(),
    ).figure()


KEPT = "A dot marks the kept epoch of a model, the one with the lowest validation loss."


def figure_caption(curves: Mapping[str, LearningCurves]) -> str:
    """Return the caption for several models."""
    lined = sum(min(of_kind.models, DRAWN // len(curves)) for of_kind in curves.values())
    counts = " and ".join(f"{of_kind.models} {KIND_NAMES[model]}" for model, of_kind in curves.items())
    return (
        f"Thin lines: {lined} models. {KEPT} Thick: median over {counts} models while at least half of them train; "
        "shade: their middle 80 %. A canary model and its control model share a seed, so both kinds should train alike."
    )


def _draw_history(axes: Any, curves: Mapping[str, LearningCurves], name: str) -> None:
    """Draw the models of each kind by this measure."""
    for model, of_kind in curves.items():
        _draw_kind(axes, model, of_kind, name, DRAWN // len(curves))


def _draw_kind(axes: Any, model: str, curves: LearningCurves, name: str, line_count: int) -> None:
    values = curves.measures[name]
    epochs = np.arange(1, values.shape[1] + 1)
    lined = curves.lined(line_count)
    if curves.models == 1:
        axes.plot(epochs, values[0], color=drawing.light(model), linewidth=1.6, linestyle=LINES[model])
        axes.plot(curves.kept_epochs + 1, values[0, curves.kept_epochs], "o", color=drawing.light(model), markersize=5)
        return
    thread = drawing.light(f"{model}-thread")
    axes.plot(epochs, values[lined].T, color=thread, linewidth=0.6, zorder=2)
    kept_epochs = curves.kept_epochs[lined]
    axes.plot(kept_epochs + 1, values[lined, kept_epochs], "o", color=thread, markersize=2.6, zorder=2.5)
    half = (~np.isnan(values)).sum(axis=0) * 2 >= curves.models
    if not half.any():
        return
    low, middle, high = np.nanquantile(values[:, half], (0.1, 0.5, 0.9), axis=0)
    axes.fill_between(epochs[half], low, high, color=drawing.light(f"{model}-band"), linewidth=0, zorder=1)
    axes.plot(epochs[half], middle, color=drawing.light(model), linewidth=2, linestyle=LINES[model], zorder=3)


def _describe_history(model: str, curves: LearningCurves) -> str:
    """Describe the kept epochs, and the loss and accuracy at these epochs."""
    rows = np.arange(curves.models)
    final_values = {}
    for name, values in curves.measures.items():
        final_values[name] = values[rows, curves.kept_epochs]
    loss, accuracy = (np.nanmedian(values) if np.isfinite(values).any() else None for values in final_values.values())
    return (
        f"{curves.models} {KIND_NAMES[model]} models: kept from epoch {int(curves.kept_epochs.min()) + 1} to "
        f"{int(curves.kept_epochs.max()) + 1}, median {float(np.median(curves.kept_epochs)) + 1:g}; there the "
        f"median validation loss is {drawing.format_number(loss)} and the median accuracy "
        f"{drawing.format_number(accuracy)}."
    )
