"""The scores of canary models and control models by epoch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dashboards import drawing, layout
from dashboards.audits.unique_feature.effects import SCORES
from dashboards.audits.unique_feature.pairs import KIND_NAMES, LINES, MODELS, Array, line_legend_entries
from dashboards.chart import Axis, Chart, Figure, Panel, level
from dashboards.columns import integers, numbers, texts, with_columns

DRAWN = 30  # models of each kind drawn as individual lines
MEASURES = {**{name: SCORES[name] for name in reversed(SCORES)}, "validation_loss": "validation loss"}
HEIGHTS = {"validation_loss": 1.0}  # inches of a panel's axes; otherwise TALL
TALL = 1.35
GAP = 0.38
NEEDED = ("canary", "seed", "model", "epoch", "kept", *MEASURES)


@dataclass(frozen=True)
class LearningCurves:
    """Models of one kind. Each measure has shape (models, epochs), with NaN for missing values."""

    names: tuple[tuple[int, int], ...]  # canary and seed
    measures: Mapping[str, Array]
    kept_epochs: NDArray[np.int64]  # (models,), index of the kept epoch, or -1

    @property
    def models(self) -> int:
        return len(self.names)

    def lined(self, count: int) -> NDArray[np.int64]:
        """Return the indices of at most `count` models, evenly spaced, that are drawn as individual lines."""
        return np.unique(np.linspace(0, self.models - 1, min(count, self.models)).astype(np.int64))


@with_columns(NEEDED)
def learning_curve(table: pa.Table) -> Figure | None:
    """Draw M_w, M and the validation loss by epoch, with the epochs that were kept (figure 3c)."""
    followed = {model: of_kind for model in MODELS if (of_kind := read_curves(table, model, MEASURES)) is not None}
    measures_present = []
    for name in MEASURES:
        if any(np.isfinite(of_kind.measures[name]).any() for of_kind in followed.values()):
            measures_present.append(name)
    if not set(measures_present) & set(SCORES):
        return None
    alt = " ".join(
        [
            *(_describe_curves(model, of_kind, measures_present) for model, of_kind in followed.items()),
            *_describe_onset(followed),
        ]
    )
    title = "When in training does a model begin to respond to the feature?"
    panels = list(_measure_panels(followed, measures_present))
    height = sum(panel.box[3] + GAP for panel in panels) + 0.75
    return Chart("course", title, figure_caption(followed), alt, height, panels, line_legend_entries()).figure()


def _measure_panels(followed: Mapping[str, LearningCurves], measures: Sequence[str]) -> Iterator[Panel]:
    """Yield one panel per measure, from top to bottom."""
    heights = [HEIGHTS.get(name, TALL) for name in measures]
    last = max(of_kind.measures[measures[0]].shape[1] - 1 for of_kind in followed.values())
    for index, (name, tall) in enumerate(zip(measures, heights, strict=True)):
        lowest = name == measures[-1]
        limits = drawing.padded_limits([0.0, float(last)], 0.02)
        yield Panel(
            layout.wide_box(0.5 + sum(heights[index + 1 :]) + GAP * (len(measures) - index - 1), tall),
            [
                *([level(0)] if name in SCORES else []),
                *(partial(_draw_curves, model=model, followed=kind, name=name) for model, kind in followed.items()),
            ],
            Axis("epoch, 0: before training" if lowest else "", limits, 6, integer_ticks=True, has_tick_labels=lowest),
            Axis(max_ticks=4, log=() if name == "validation_loss" else None),
            f"{MEASURES[name]}, nats",
        )


def figure_caption(followed: Mapping[str, LearningCurves]) -> str:
    several = max(of_kind.models for of_kind in followed.values()) > 1
    counts = " and ".join(
        f"{of_kind.models} {KIND_NAMES[model]} model{'s'[: of_kind.models > 1]}" for model, of_kind in followed.items()
    )
    legend_text = "One training each: no intervals. "
    if several:
        legend_text = (
            "Thin: models; thick: their mean while at least half of them train; shade: its 95 % interval over "
            "trainings. "
        )
    return (
        f"{counts}, evaluated after every epoch. {legend_text}Dot: kept epoch, with the lowest validation loss. "
        "Dashed: 0. The distance between the two kinds is the effect of the canary: control models have the same seeds "
        "and the clean image. If the kinds separate before the dots, early stopping does not prevent memory."
    )


def read_curves(table: pa.Table, model: str, measures: Iterable[str], first: int = 0) -> LearningCurves | None:
    """Read the models of this kind and these measures at each epoch from `first` on."""
    is_kind = texts(table, "model") == model
    if not is_kind.any():
        return None
    pairs = np.stack([integers(table, "canary")[is_kind], integers(table, "seed")[is_kind]], axis=1)
    names, which = np.unique(pairs, axis=0, return_inverse=True)
    which = which.ravel()
    epoch = integers(table, "epoch")[is_kind] - first
    values = {name: np.full((len(names), epoch.max() + 1), np.nan) for name in measures}
    for name, of_models in values.items():
        of_models[which, epoch] = numbers(table, name)[is_kind]
    kept_epochs = np.full(len(names), -1)
    is_kept = integers(table, "kept")[is_kind] == 1
    kept_epochs[which[is_kept]] = epoch[is_kept]
    return LearningCurves(tuple((int(canary), int(seed)) for canary, seed in names), values, kept_epochs)


def _draw_curves(axes: Any, model: str, followed: LearningCurves, name: str) -> None:
    """Draw thin lines for some models, with a dot at each kept epoch, over the mean and interval of all models."""
    values = followed.measures[name]
    lined = followed.lined(DRAWN)
    alone = followed.models == 1
    epochs = np.arange(values.shape[1])
    colour = drawing.light(model if alone else f"{model}-thread")
    width = 0.6
    if alone:
        width = 1.8
    axes.plot(
        epochs, values[lined].T, color=colour, linewidth=width, linestyle=LINES[model] if alone else "-", zorder=2
    )
    dotted = lined[followed.kept_epochs[lined] >= 0]
    kept_epochs = followed.kept_epochs[dotted]
    axes.plot(
        kept_epochs,
        values[dotted, kept_epochs],
        "o",
        color=drawing.light(model),
        markersize=5.5 if alone else 3,
        zorder=4,
    )
    if alone:
        return
    where, middle, low, high = _mean_over_trainings(values)
    axes.fill_between(where, low, high, color=drawing.light(f"{model}-band"), linewidth=0, zorder=1)
    axes.plot(where, middle, color=drawing.light(model), linewidth=2, linestyle=LINES[model], zorder=3)


def _mean_over_trainings(values: Array) -> tuple[NDArray[np.int64], Array, Array, Array]:
    """Return the epochs reached by enough models, the mean there, and its 95 % t interval.

    At least half of the models, and at least two, must have reached an epoch.
    """
    from scipy.special import stdtrit

    count = (~np.isnan(values)).sum(axis=0)
    where = np.flatnonzero((count * 2 >= len(values)) & (count > 1))
    present_values = values[:, where]
    n = count[where]
    mean = np.nanmean(present_values, axis=0)
    half = stdtrit(n - 1, 0.975) * np.nanstd(present_values, axis=0, ddof=1) / np.sqrt(n)
    return where, mean, mean - half, mean + half


def _describe_curves(model: str, followed: LearningCurves, measures: Sequence[str]) -> str:
    """Describe the kept epochs, and the mean scores before training and at these epochs."""
    n = followed.models
    kept_epochs = followed.kept_epochs
    rows = np.flatnonzero(kept_epochs >= 0)
    words = []
    for name in measures:
        if name in SCORES:
            before = followed.measures[name][:, 0]
            kept_values = followed.measures[name][rows, kept_epochs[rows]]
            means = [
                drawing.format_number(
                    float(finite_values.mean()) if len(finite_values := values[~np.isnan(values)]) else None
                )
                for values in (before, kept_values)
            ]
            words.append(
                f"{MEASURES[name].partition(',')[0]} {means[0]} before training and {means[1]} at the kept epoch"
            )
    epochs = "none was kept"
    if len(rows):
        epochs = f"kept from epoch {kept_epochs[rows].min()} to {kept_epochs[rows].max()}"
    return f"{n} {KIND_NAMES[model]} model{'s' if n > 1 else ''}, {epochs}: mean {', '.join(words)}."


def _describe_onset(followed: Mapping[str, LearningCurves]) -> Iterator[str]:
    """Describe the first epoch at which the interval for the effect on M_w excludes 0."""
    if len(followed) < 2:
        return
    canary = followed["canary"]
    twin = followed["twin"]
    shared_names = sorted(set(canary.names) & set(twin.names))
    if len(shared_names) < 2:
        return
    score = next(iter(MEASURES))
    wide = min(of_kind.measures[score].shape[1] for of_kind in (canary, twin))
    with_it = canary.measures[score][[canary.names.index(name) for name in shared_names], :wide]
    without = twin.measures[score][[twin.names.index(name) for name in shared_names], :wide]
    where, _, low, _ = _mean_over_trainings(with_it - without)
    above = low > 0
    if not above.any():
        yield f"The interval of the effect on M_w over {len(shared_names)} pairs lies above 0 at no epoch."
        return
    first = where[above.argmax()]
    yield f"The interval of the effect on M_w over {len(shared_names)} pairs first lies above 0 at epoch {first}."
