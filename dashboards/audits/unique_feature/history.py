"""Validation loss and accuracy of the models, epoch by epoch."""

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

STEP = 1.8  # inches from a panel to the next
DRAWN = 60  # models with their own line
MEASURES = {"validation_loss": "validation loss, nats", "validation_accuracy": "validation accuracy"}
NEEDED = ("canary", "seed", "model", "epoch", "kept", *MEASURES)


@with_columns(NEEDED)
def histories(table: pa.Table) -> Figure | None:
    """Thin lines for some models, the median of all with their middle 80 %, and the kept epochs."""
    trained = {model: of_kind for model in MODELS if (of_kind := read_curves(table, model, MEASURES, 1)) is not None}
    if not trained:
        return None
    several = max(of_kind.models for of_kind in trained.values()) > 1
    facets = []
    for name, label in MEASURES.items():
        last = max(of_kind.measures[name].shape[1] for of_kind in trained.values())
        lowest = name == list(MEASURES)[-1]
        limits = drawing.padded_limits([1.0, float(last)], 0.02)
        facets.append(
            Facet(
                [partial(_draw_history, trained=trained, name=name)],
                y=Axis(label, most=4, log=() if name == "validation_loss" else None),
                x=Axis("epoch" if lowest else "", limits, 6, whole=True, worded=lowest),
            )
        )
    return Chart(
        "histories",
        "Did the trainings converge, and are both kinds alike?",
        figure_caption(trained) if several else KEPT,
        " ".join(_describe_history(model, of_kind) for model, of_kind in trained.items()),
        STEP * len(MEASURES) + 0.65,
        facet_panels(facets, STEP, gap=0.25),
        line_legend_entries(),
    ).figure()


KEPT = "A dot marks the kept epoch of a model, the one with the lowest validation loss."


def figure_caption(trained: Mapping[str, LearningCurves]) -> str:
    """The caption for several models."""
    lined = sum(min(of_kind.models, DRAWN // len(trained)) for of_kind in trained.values())
    counts = " and ".join(f"{of_kind.models} {KIND_NAMES[model]}" for model, of_kind in trained.items())
    return (
        f"Thin lines: {lined} models. {KEPT} Thick: median over {counts} models while at least half of them train; "
        "shade: their middle 80 %. A canary model and its control model share a seed, so both kinds should train alike."
    )


def _draw_history(axes: Any, trained: Mapping[str, LearningCurves], name: str) -> None:
    """Each kind's models by this measure."""
    for model, of_kind in trained.items():
        _draw_kind(axes, model, of_kind, name, DRAWN // len(trained))


def _draw_kind(axes: Any, model: str, trained: LearningCurves, name: str, most: int) -> None:
    values = trained.measures[name]
    epochs = np.arange(1, values.shape[1] + 1)
    lined = trained.lined(most)
    if trained.models == 1:
        axes.plot(epochs, values[0], color=drawing.light(model), linewidth=1.6, linestyle=LINES[model])
        axes.plot(trained.kept + 1, values[0, trained.kept], "o", color=drawing.light(model), markersize=5)
        return
    thread = drawing.light(f"{model}-thread")
    axes.plot(epochs, values[lined].T, color=thread, linewidth=0.6, zorder=2)
    kept = trained.kept[lined]
    axes.plot(kept + 1, values[lined, kept], "o", color=thread, markersize=2.6, zorder=2.5)
    half = (~np.isnan(values)).sum(axis=0) * 2 >= trained.models
    if not half.any():
        return
    low, middle, high = np.nanquantile(values[:, half], (0.1, 0.5, 0.9), axis=0)
    axes.fill_between(epochs[half], low, high, color=drawing.light(f"{model}-band"), linewidth=0, zorder=1)
    axes.plot(epochs[half], middle, color=drawing.light(model), linewidth=2, linestyle=LINES[model], zorder=3)


def _describe_history(model: str, trained: LearningCurves) -> str:
    """Describe the kept epochs, and the loss and accuracy at them."""
    rows = np.arange(trained.models)
    reached = {name: values[rows, trained.kept] for name, values in trained.measures.items()}
    loss, accuracy = (np.nanmedian(values) if np.isfinite(values).any() else None for values in reached.values())
    return (
        f"{trained.models} {KIND_NAMES[model]} models: kept from epoch {int(trained.kept.min()) + 1} to "
        f"{int(trained.kept.max()) + 1}, median {float(np.median(trained.kept)) + 1:g}; there the median validation "
        f"loss is {drawing.format_number(loss)} and the median accuracy {drawing.format_number(accuracy)}."
    )
