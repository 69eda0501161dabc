"""How much a canary's scores vary over training seeds and, for one model, over random patches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dashboards import drawing, legend
from dashboards.audits.unique_feature.effects import SCORES
from dashboards.audits.unique_feature.pairs import Array, Pairs, central_range, dots, mark
from dashboards.chart import Axis, Chart, Facet, Figure, Layer, facet_panels, level, line, marks, span

PANEL = 1.75  # inches
NAMED = 12  # canaries labelled with their row numbers


@dataclass(frozen=True)
class Spread:
    """The ends of each canary's line, its dots, and additional layers."""

    low: Array
    high: Array
    x: NDArray[Any]
    y: Array
    further: tuple[Layer, ...] = ()


def ranges(pairs: Pairs) -> Figure | None:
    """Draw the range of each canary's M_w and M over training seeds, with the band of the control models.

    These are figures 3a, 5 and 6 of the paper, with control models as the null.
    """
    scores = {}
    for score in reversed(SCORES):
        canary, values, twin = pairs.columns("canary", score, f"twin_{score}")
        several = _scores_by_canary(canary, values)
        if several:
            scores[score] = (several, twin)
    if not scores:
        return None
    seeds = sorted({len(values) for several, _ in scores.values() for values in several.values()})
    if len(seeds) == 1:
        trainings = f"{seeds[0]}"
    else:
        trainings = f"{seeds[0]} to {seeds[-1]}"
    title = "Does a canary get the same score in every training?"
    alt = " ".join(f"{SCORES[score]}: {_describe_seed_ranges(*of_score)}" for score, of_score in scores.items())
    across = f"{max(len(several) for several, _ in scores.values())} canaries, sorted by their mean"
    panels = {score: (list(several), _seed_ranges(several), twin) for score, (several, twin) in scores.items()}
    return _score_chart(
        "ranges", title, _seed_caption(trainings), alt, panels, across, "canary: one dot per training seed"
    )


def _seed_caption(trainings: str) -> str:
    return (
        f"Each vertical line is one canary in {trainings} trainings that differ in their seed only, from its smallest "
        "to its largest score, with a dot for each. Shaded: the middle 95 % of the control models, which never saw the "
        "feature (all of them if there are few); dashed: 0. If a line crosses the dashes, the paper's rule calls the "
        "canary memorised or not depending on the seed. Nats; all values are shown, without intervals."
    )


def _score_chart(
    name: str,
    title: str,
    caption: str,
    alt: str,
    of_scores: Mapping[str, tuple[list[int], Spread, Array]],
    across: str,
    entry: str,
) -> Figure:
    """Draw one panel per score: the spread of each canary over the scores of the control models."""
    facets = []
    for score, of_score in of_scores.items():
        facets.append(_spread_facet(SCORES[score], *of_score, across if score == list(of_scores)[-1] else ""))
    panels = facet_panels(facets, PANEL, gap=0.45, foot=0.48)
    return Chart(name, title, caption, alt, PANEL * len(of_scores) + 0.72, panels, legend_entries(entry)).figure()


def _spread_facet(title: str, names: list[int], spread: Spread, twin: Array, across: str) -> Facet:
    """Draw one line per canary over the band of the control models. Canaries are labelled if there are few."""
    low, high = central_range(twin)
    count = len(names)
    places = np.arange(len(names))
    thread = line(*drawing.segment_path(places, spread.low, spread.high), "canary-thread", linewidth=_line_width(count))
    labels = []
    if count <= NAMED:
        labels = [str(name) for name in names]
    return Facet(
        [
            span(low, high, "twin-band", across=True),
            level(0, {"zorder": 1, **drawing.NULL}),
            thread,
            dots(spread.x, spread.y, "canary", len(spread.x), markersize=_dot_size(count)),
            *spread.further,
        ],
        title,
        Axis(limits=drawing.padded_limits([0.0, *spread.low, *spread.high, low, high]), max_ticks=4),
        Axis(across, (-1, count), ticks=(range(len(labels)), labels), has_grid=False),
        finish=[lambda axes: axes.tick_params(axis="x", length=0)],
    )


def _scores_by_canary(canary: Array, values: Array) -> dict[int, Array]:
    """Return the sorted values of each canary that has several, in order of ascending mean."""
    of_canaries = ((int(name), np.sort(values[canary == name])) for name in np.unique(canary))
    several = [(name, scores) for name, scores in of_canaries if len(scores) > 1]
    return dict(sorted(several, key=lambda item: item[1].mean()))


def _seed_ranges(several: dict[int, Array]) -> Spread:
    """Return the range of each canary's scores, with a dot per score and a stroke at their mean."""
    places = np.arange(len(several))
    lows = np.array([np.min(values) for values in several.values()])
    highs = np.array([np.max(values) for values in several.values()])
    means = np.array([np.mean(values) for values in several.values()])
    x = np.repeat(places, [len(values) for values in several.values()])
    mean = marks(places, means, "ink", "_", 2 + _line_width(len(places)), zorder=3)
    return Spread(lows, highs, x, np.concatenate(list(several.values())), (mean,))


def _describe_seed_ranges(several: dict[int, Array], twin: Array) -> str:
    """Describe the range of a canary's score over seeds."""
    low, high = central_range(twin)
    lows = np.array([np.min(values) for values in several.values()])
    highs = np.array([np.max(values) for values in several.values()])
    inside = float(np.sqrt(np.mean([values.var(ddof=1) for values in several.values()])))
    crossing = int(((lows < 0) & (highs > 0)).sum())
    outside = int((lows > high).sum())
    return (
        f"median range of a score over seeds {drawing.format_number(float(np.median(highs - lows)))} "
        f"({len(several)} canaries), standard deviation {drawing.format_number(inside)}; {crossing} canaries have "
        f"scores on both sides of 0, {outside} have all scores above the control band, {drawing.format_number(low)} to "
        f"{drawing.format_number(high)}."
    )


def evaluations(pairs: Pairs) -> Figure | None:
    """Draw the mean and standard deviation of each canary model's M_w and M over evaluations.

    This is figure 4 of the paper.
    """
    scores = {}
    for score in reversed(SCORES):
        canary, seed, values, twin, evaluation = pairs.evaluation_columns("canary", "seed", score, f"twin_{score}")
        table = _evaluation_table(canary, seed, values, evaluation)
        if table is not None:
            scores[score] = (*table, twin[evaluation == evaluation.min()])
    if not scores:
        return None
    models, count = [values.shape for _, values, _ in scores.values()][-1]
    caption = (
        f"Each dot is one trained model, evaluated {count} times with new random patches: the mean of its scores with "
        "one standard deviation to either side, hidden if narrower than the dot. Shaded: the middle 95 % of the "
        "control models, which never saw the feature and differ in their training seed only; dashed: 0. If the lines "
        "are short compared with the band, trainings vary and evaluations do not. Nats."
    )
    title = "Does the score depend on the random patches?"
    alt = " ".join(f"{SCORES[score]}: {_describe_evaluations(*of_score[1:])}" for score, of_score in scores.items())
    panels = {score: (names, _evaluation_spread(values), twin) for score, (names, values, twin) in scores.items()}
    across = f"{models} canary models, sorted by their mean"
    entry = "canary model: mean ± 1 standard deviation"
    return _score_chart("evaluations", title, caption, alt, panels, across, entry)


def _evaluation_table(canary: Array, seed: Array, values: Array, evaluation: Array) -> tuple[list[int], Array] | None:
    """Return the canaries, and the scores (models, evaluations) of one model each if it has all evaluations.

    They are sorted by ascending mean.
    """
    several = np.unique(evaluation)
    if len(several) < 2:
        return None
    names, which = np.unique(np.stack([canary, seed], axis=1), axis=0, return_inverse=True)
    table = np.full((len(names), len(several)), np.nan)
    table[which.ravel(), np.searchsorted(several, evaluation)] = values
    is_complete = ~np.isnan(table).any(axis=1)
    is_complete &= np.append(True, names[1:, 0] != names[:-1, 0])  # the first of several trainings of a canary
    if not is_complete.any():
        return None
    order = np.argsort(table[is_complete].mean(axis=1), kind="stable")
    return [int(name) for name in names[is_complete, 0][order]], table[is_complete][order]


def _evaluation_spread(values: Array) -> Spread:
    """Return a dot at each model's mean, and a line of one standard deviation to either side."""
    means = values.mean(axis=1)
    deviations = values.std(axis=1, ddof=1)
    return Spread(means - deviations, means + deviations, np.arange(len(values)), means)


def _describe_evaluations(values: Array, twin: Array) -> str:
    """Describe the range of the means, and the variation over evaluations and over trainings."""
    means = values.mean(axis=1)
    deviations = values.std(axis=1, ddof=1)
    over_trainings = "unknown"
    if len(twin) > 1:
        over_trainings = drawing.format_number(float(twin.std(ddof=1)))
    return (
        f"from {drawing.format_number(float(means.min()))} to {drawing.format_number(float(means.max()))}, "
        f"{int((means < 0).sum())} of {len(means)} below 0. Standard deviation over evaluations of one model "
        f"{drawing.format_number(float(np.sqrt((deviations**2).mean())))}"
        f", over the trainings of control models {over_trainings}."
    )


def legend_entries(label: str) -> list[Any]:
    """Return legend entries: a dot on its line with this label, and the band of the control models."""
    thread = {"markersize": 4.5, "linestyle": "-", "linewidth": 2.4, "color": drawing.light("canary-thread")}
    look = mark("canary", 1) | thread | {"markerfacecolor": drawing.light("canary")}
    return [legend.line(label, **look), legend.area("control models", color=drawing.light("twin-band"))]


def _line_width(count: int) -> float:
    """Return the width of each of `count` lines."""
    if count <= 30:
        return 2.4
    return 1.4


def _dot_size(count: int) -> float:
    """Return the marker size on `count` lines."""
    if count <= 30:
        return 4.5
    return 2.5
