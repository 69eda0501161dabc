"""Memorisation and losses during training, as in figures 4a and 4b."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dashboards import drawing, layout, legend
from dashboards.audits.density.observations import SCORE_LOOKS, SCORES, Statistics, score_legend_entry
from dashboards.chart import Axis, Chart, Curve, Facet, Figure, Layer, Panel, curve, facet_panels, level, marks
from dashboards.columns import integers, numbers, texts, with_columns

MEASURES = {"quantile 0.999": "99.9 % quantile", "quantile 0.95": "95 % quantile", "median": "median"}
PANEL = 1.5  # inches
MARKED = 12  # number of epochs up to which each one has a marker
REQUIRED_COLUMNS = {"epoch", "models", "split", "estimate", "low", "high", "n"}
MODELS = {"folds": "models trained without a fold", "whole": "model of all data"}
SHORT = {"folds": "without a fold", "whole": "all data"}
DASHES: dict[str, Any] = {"folds": "-", "whole": (0, (4, 2))}
SPLITS = {"test": "canary", "train": "twin"}
SKIPPED = 0.1  # fraction of initial epochs whose losses may exceed the axis, because they would hide later differences
Curves = dict[str, dict[str, Curve]]  # statistic -> score -> curve
Nulls = dict[tuple[str, str], float | None]  # (statistic, score) -> value without memorisation
Losses = dict[tuple[str, str], Curve]  # by models and split: nats per image, with intervals over trainings


def learning_curve(statistics: Statistics) -> Figure | None:
    """Draw high quantiles and the median of both scores by epoch, with jackknife intervals."""
    curves = {}
    for statistic in MEASURES:
        of_score = {score: course for score in SCORES if (course := statistics.curve(score, statistic))}
        if of_score and max(len(course.places) for course in of_score.values()) > 1:
            curves[statistic] = of_score
    if not curves:
        return None
    nulls = {
        (statistic, score): statistics.null(score, statistic)
        for statistic, of_score in curves.items()
        for score in of_score
    }
    axis = epoch_axis(course for of_score in curves.values() for course in of_score.values())
    facets = []
    for statistic, of_score in curves.items():
        layers: list[Layer] = [level(0)]
        for score, course in of_score.items():
            colour, marker, _ = SCORE_LOOKS[score]
            layers.append(curve(course, SCORE_LOOKS[score], marked=MARKED))
            if (null := nulls[statistic, score]) is not None:
                layers.append(marks([course.places[-1]], [null], colour, marker, 6, markerfacecolor="none"))
        facets.append(Facet(layers, f"{MEASURES[statistic]}, nats"))
    existing_scores = set().union(*curves.values())
    scores = [score for score in SCORES if score in existing_scores]
    return Chart(
        "course",
        "When in training do models begin to memorise?",
        _learning_curve_caption(curves, nulls),
        " ".join(
            f"{MEASURES[statistic]} of {SCORES[score]}: {course.describe(0)} after epoch {course.places[0]}, "
            f"{course.describe()} after epoch {course.places[-1]}"
            f"{'' if (null := nulls[statistic, score]) is None else f', null {drawing.format_number(null)}'}."
            for statistic, of_score in curves.items()
            for score, course in of_score.items()
        ),
        PANEL * len(curves) + legend.ROW + 0.4,
        facet_panels(facets, PANEL, axis, gap=0.38),
        [score_legend_entry(score) for score in scores],
    ).figure()


def _learning_curve_caption(curves: Curves, nulls: Nulls) -> str:
    n = max(course.n for of_score in curves.values() for course in of_score.values())
    shade = "One repetition: no intervals. "
    if n > 1:
        shade = f"Shade: 95 % intervals by the jackknife over {n} repetitions. "
    hollow = ""
    if any(null is not None for null in nulls.values()):
        hollow = "Hollow marks at the last epoch: value without memorisation. "
    return (
        "Statistics over all observations, after the evaluated epochs. "
        f"{shade}{hollow}Dashed: 0. If high quantiles rise while training and test loss still fall together, early "
        "stopping does not prevent memorisation."
    )


def epoch_axis(curves: Iterable[Curve]) -> Axis:
    """Return an epoch axis that starts at 0."""
    limits = drawing.padded_limits([0.0, float(max(int(course.places[-1]) for course in curves))], 0.03)
    return Axis("epoch", limits, 6, integer_ticks=True)


def losses(table: pa.Table) -> Figure | None:
    """Draw both losses by epoch: the mean over models trained without a fold, and the model trained on all data."""
    by_kind = read_losses(table)
    if not by_kind:
        return None
    lines = []
    for (models, split), loss in by_kind.items():
        lines.append(curve(loss, (SPLITS[split], "o", DASHES[models]), alpha=0.18, marked=1))
    models_with_losses = {models for models, _ in by_kind}
    limits = loss_limits(list(by_kind.values()))
    panel = Panel(
        layout.wide_box(0.5, 2.2), lines, x=epoch_axis(by_kind.values()), y=Axis("loss, nats per image", limits)
    )
    return Chart(
        "losses",
        "Do the losses reveal memorisation?",
        _losses_caption(by_kind, limits[1]),
        " ".join(_describe_losses(by_kind, models) for models in MODELS if models in models_with_losses),
        2.2 + 2 * legend.ROW + 0.65,
        [panel],
        [
            legend.line(
                f"{split}, {SHORT[models]}", color=drawing.light(SPLITS[split]), linewidth=1.5, linestyle=DASHES[models]
            )
            for models, split in by_kind
        ],
    ).figure()


@with_columns(REQUIRED_COLUMNS, dict)
def read_losses(table: pa.Table) -> Losses:
    """Read the losses by models and split, in epoch order."""
    models = texts(table, "models")
    split = texts(table, "split")
    epoch = integers(table, "epoch")
    estimate = numbers(table, "estimate")
    low = numbers(table, "low")
    high = numbers(table, "high")
    losses = {}
    for models_kind in MODELS:
        for split_kind in SPLITS:
            rows = np.flatnonzero((models == models_kind) & (split == split_kind) & ~np.isnan(estimate))
            rows = rows[np.argsort(epoch[rows], kind="stable")]
            if len(rows):
                n = int(integers(table, "n")[rows].max())
                losses[models_kind, split_kind] = Curve(epoch[rows], estimate[rows], low[rows], high[rows], n=n)
    return losses


def loss_limits(losses: Sequence[Curve]) -> tuple[float, float]:
    """Return y axis limits for all losses except those of the first epochs, which are much larger."""
    last = max(int(loss.places[-1]) for loss in losses)
    drawn_values: list[float] = []
    for loss in losses:
        late = loss.places > SKIPPED * last
        drawn_values += [float(value) for values in (loss.value, loss.low, loss.high) for value in values[late]]
    return drawing.padded_limits([value for value in drawn_values if not np.isnan(value)])


def _losses_caption(by_kind: Losses, high: float) -> str:
    """Return the caption of the losses, which are drawn up to `high`."""
    above = max(int(loss.places[loss.value > high].max(initial=0)) for loss in by_kind.values())
    cut = ""
    if above:
        cut = f" Losses up to epoch {above} exceed the axis."
    trainings = max((loss.n for (models, _), loss in by_kind.items() if models == "folds"), default=0)
    shade = ""
    if trainings > 1:
        shade = f" Shade: 95 % t intervals over {trainings} trainings, hidden if narrower than the line."
    return (
        "The training objective (the negative lower bound of log P), in nats per image: of training images during the "
        f"epoch, and of the test split after it.{shade} If the two diverge, models overfit; memorisation does not "
        f"require such a gap.{cut}"
    )


def _describe_losses(by_kind: Losses, models: str) -> str:
    """Describe the final losses, their gap, and the lowest test loss."""
    splits = {}
    for split in SPLITS:
        if (models, split) in by_kind:
            splits[split] = by_kind[models, split]
    last = {split: float(loss.value[-1]) for split, loss in splits.items()}
    n = max(loss.n for loss in splits.values())
    words = f"{MODELS[models].capitalize()}, {n} training{'s'[: n > 1]}, after epoch "
    words += f"{max(int(loss.places[-1]) for loss in splits.values())}: "
    words += ", ".join(f"{split} loss {drawing.format_number(value)}" for split, value in last.items())
    if len(last) == 2:
        words += f", gap {drawing.format_number(last['test'] - last['train'])}"
    if "test" in splits:
        test = splits["test"]
        lowest = int(test.value.argmin())
        words += (
            f"; test loss lowest after epoch {test.places[lowest]}, {drawing.format_number(float(test.value[lowest]))}"
        )
    return f"{words}."
