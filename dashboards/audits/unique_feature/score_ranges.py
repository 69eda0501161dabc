"""The scatter of a canary's scores over training seeds, and over random patches for one model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dashboards import drawing, layout, legend
from dashboards.audits.unique_feature.effects import SCORES
from dashboards.audits.unique_feature.pairs import Array, Pairs, central_range, mark
from dashboards.chart import Figure

PANEL = 1.75  # inches
NAMED = 12  # canaries whose rows stand below them


def ranges(pairs: Pairs) -> Figure | None:
    """Each canary's M_w and M from the smallest to the largest over training seeds, over the band of the twins.

    Figures 3a, 5 and 6 of the paper, with the twins for a null.
    """
    scores = {}
    for score in reversed(SCORES):
        canary, values, twin = pairs.columns("canary", score, f"twin_{score}")
        several = groups(canary, values)
        if several:
            scores[score] = (several, twin)
    if not scores:
        return None
    figure, panels = score_panels(list(scores))
    words = [
        f"{SCORES[score]}: {draw_seed_ranges(axes, *of_score)}"
        for axes, (score, of_score) in zip(panels, scores.items(), strict=True)
    ]
    panels[-1].set_xlabel(f"{max(len(several) for several, _ in scores.values())} canaries, sorted by their mean")
    legend.add_above(figure, legend_entries("canary: a dot for each training seed"))
    seeds = sorted({len(values) for several, _ in scores.values() for values in several.values()})
    trainings = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    title = "Does one canary get the same score from every training?"
    return Figure("ranges", title, seed_caption(trainings), " ".join(words), drawing.svg(figure, "ranges"))


def seed_caption(trainings: str) -> str:
    """The caption of the ranges over training seeds."""
    return (
        f"Each upright line is one training image that carries the feature, in {trainings} trainings that differ by "
        "their seed alone: from its smallest to its largest score, a dot for each. Shaded: the middle 95 % of the "
        "twins, which never saw the feature (for a few: all of them); dashed: 0. A line that crosses the dashes is one "
        "canary that the paper's rule would call memorised or not by its seed. Nats; no intervals, all values are "
        "shown."
    )


def score_panels(scores: Sequence[str]) -> tuple[Any, list[Any]]:
    """A figure with axes for each of these scores, below one another."""
    figure = drawing.canvas(PANEL * len(scores) + 0.72)
    panels = layout.stack_axes(figure, len(scores), PANEL, gap=0.45, foot=0.48)
    for axes, score in zip(panels, scores, strict=True):
        axes.set_title(SCORES[score], fontsize=drawing.TEXT)
    return figure, panels


def groups(canary: Array, values: Array) -> dict[int, Array]:
    """Each canary's values, sorted, the smallest mean first: of canaries that have several."""
    of_canaries = ((int(name), np.sort(values[canary == name])) for name in np.unique(canary))
    several = [(name, scores) for name, scores in of_canaries if len(scores) > 1]
    return dict(sorted(several, key=lambda item: item[1].mean()))


def draw_seed_ranges(axes: Any, several: dict[int, Array], twin: Array) -> str:
    """A line with dots for each canary; what they show, in words."""
    places = np.arange(len(several))
    lows, highs, means = (
        np.array([reduce(values) for values in several.values()]) for reduce in (np.min, np.max, np.mean)
    )
    low, high = draw_twin_band(axes, twin)
    axes.plot(
        *drawing.segment_path(places, lows, highs),
        color=drawing.light("canary-thread"),
        linewidth=line_width(len(places)),
    )
    x = np.repeat(places, [len(values) for values in several.values()])
    axes.plot(
        x, np.concatenate(list(several.values())), **mark("canary", len(x)) | {"markersize": dot_size(len(places))}
    )
    axes.plot(places, means, "_", color=drawing.light("ink"), markersize=2 + line_width(len(places)), zorder=3)
    frame_axes(axes, list(several), [*lows, *highs, low, high])
    inside = float(np.sqrt(np.mean([values.var(ddof=1) for values in several.values()])))
    both = int(((lows < 0) & (highs > 0)).sum())
    outside = int((lows > high).sum())
    return (
        "over seeds the range of a canary's score is "
        f"{drawing.format_number(float(np.median(highs - lows)))} in the median "
        f"of {len(several)} canaries, its standard deviation "
        f"{drawing.format_number(inside)}; {both} canaries have scores on "
        f"both sides of 0, {outside} have all of them above the twins' band, {drawing.format_number(low)} to "
        f"{drawing.format_number(high)}."
    )


def evaluations(pairs: Pairs) -> Figure | None:
    """Each canary model's M_w and M as mean and standard deviation over evaluations: figure 4 of the paper."""
    scores = {}
    for score in reversed(SCORES):
        canary, seed, values, twin, evaluation = pairs.evaluation_columns("canary", "seed", score, f"twin_{score}")
        table = evaluation_table(canary, seed, values, evaluation)
        if table is not None:
            scores[score] = (*table, twin[evaluation == evaluation.min()])
    if not scores:
        return None
    figure, panels = score_panels(list(scores))
    words = [
        f"{SCORES[score]}: {draw_evaluations(axes, *of_score)}"
        for axes, (score, of_score) in zip(panels, scores.items(), strict=True)
    ]
    models, count = [values.shape for _, values, _ in scores.values()][-1]
    panels[-1].set_xlabel(f"{models} canary models, sorted by their mean")
    legend.add_above(figure, legend_entries("canary model: mean ± 1 standard deviation"))
    caption = (
        f"Each dot is one trained model, asked {count} times with other random patches: the mean of its scores with "
        "one standard deviation to either side, hidden where narrower than the dot. Shaded: the middle 95 % of the "
        "twins, which never saw the feature and differ by their training seed alone; dashed: 0. Where the lines are "
        "short against the band, the score is as exact as it need be, and what varies is the training. Nats."
    )
    title = "Does the score depend on which random patches were drawn?"
    return Figure("evaluations", title, caption, " ".join(words), drawing.svg(figure, "evaluations"))


def evaluation_table(canary: Array, seed: Array, values: Array, evaluation: Array) -> tuple[list[int], Array] | None:
    """Canaries and scores (models, evaluations), one model each, of those that all evaluations have.

    The smallest mean comes first.
    """
    several = np.unique(evaluation)
    if len(several) < 2:
        return None
    names, which = np.unique(np.stack([canary, seed], axis=1), axis=0, return_inverse=True)
    table = np.full((len(names), len(several)), np.nan)
    table[which.ravel(), np.searchsorted(several, evaluation)] = values
    whole = ~np.isnan(table).any(axis=1)
    whole &= np.append(True, names[1:, 0] != names[:-1, 0])  # of several trainings of a canary, the first
    if not whole.any():
        return None
    order = np.argsort(table[whole].mean(axis=1), kind="stable")
    return [int(name) for name in names[whole, 0][order]], table[whole][order]


def draw_evaluations(axes: Any, names: list[int], values: Array, twin: Array) -> str:
    """A dot with its line for each model; what they show, in words."""
    places = np.arange(len(values))
    means, deviations = values.mean(axis=1), values.std(axis=1, ddof=1)
    low, high = draw_twin_band(axes, twin)
    path = drawing.segment_path(places, means - deviations, means + deviations)
    axes.plot(*path, color=drawing.light("canary-thread"), linewidth=line_width(len(places)))
    axes.plot(places, means, **mark("canary", len(places)) | {"markersize": dot_size(len(places))})
    frame_axes(axes, names, [*(means - deviations), *(means + deviations), low, high])
    over_trainings = drawing.format_number(float(twin.std(ddof=1))) if len(twin) > 1 else "unknown"
    return (
        f"from {drawing.format_number(float(means.min()))} to {drawing.format_number(float(means.max()))}, "
        f"{int((means < 0).sum())} of {len(means)} below 0. Standard deviation over evaluations of one model "
        f"{drawing.format_number(float(np.sqrt((deviations**2).mean())))}"
        f", over the trainings of the twins {over_trainings}."
    )


def draw_twin_band(axes: Any, twin: Array) -> tuple[float, float]:
    """The twins' band behind what follows, and the line at 0."""
    low, high = central_range(twin)
    axes.axhspan(low, high, color=drawing.light("twin-band"), linewidth=0, zorder=0)
    axes.axhline(0, zorder=1, **drawing.NULL)
    return low, high


def legend_entries(label: str) -> list[Any]:
    """The legend's entries: a dot on its line under this label, and the band of the twins."""
    thread = {"markersize": 4.5, "linestyle": "-", "linewidth": 2.4, "color": drawing.light("canary-thread")}
    look = mark("canary", 1) | thread | {"markerfacecolor": drawing.light("canary")}
    return [legend.line(label, **look), legend.area("twins", color=drawing.light("twin-band"))]


def line_width(count: int) -> float:
    """The linewidth for so many lines."""
    return 2.4 if count <= 30 else 1.4


def dot_size(count: int) -> float:
    """The markersize for so many lines."""
    return 4.5 if count <= 30 else 2.5


def frame_axes(axes: Any, names: list[int], values: Sequence[float]) -> None:
    """Axes that hold these values, with the canaries' rows below them where there are few."""
    axes.set_xlim(-1, len(names))
    axes.set_ylim(*drawing.padded_limits([0.0, *values]))
    drawing.set_ticks(axes, up=4)
    axes.set_xticks(range(len(names)) if len(names) <= NAMED else [], names if len(names) <= NAMED else [])
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="x", visible=False)
