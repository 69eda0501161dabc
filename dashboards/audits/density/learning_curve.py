"""When in training memory begins: quantiles of both scores by epoch, as in figure 4b."""

from __future__ import annotations

from typing import Any

import numpy as np

from dashboards import drawing, layout, legend
from dashboards.audits.density import kinds
from dashboards.audits.density.score_statistics import Curve, Statistics
from dashboards.figure import Figure

MEASURES = {"quantile 0.999": "99.9 % quantile", "quantile 0.95": "95 % quantile", "median": "median"}
PANEL = 1.5  # inches
MARKED = 12  # epochs with a mark each
Curves = dict[str, dict[str, Curve]]  # statistic -> score -> its course
Nulls = dict[tuple[str, str], float | None]  # (statistic, score) -> its value where nothing is memorised


def learning_curve(statistics: Statistics) -> Figure | None:
    """The highest quantiles and the median of both scores by epoch, with jackknife intervals."""
    known = {
        statistic: {score: course for score in kinds.SCORES if (course := statistics.curve(score, statistic))}
        for statistic in MEASURES
    }
    curves = {
        statistic: of_score
        for statistic, of_score in known.items()
        if of_score and max(len(course.epochs) for course in of_score.values()) > 1
    }
    if not curves:
        return None
    nulls = {
        (statistic, score): statistics.null(score, statistic)
        for statistic, of_score in curves.items()
        for score in of_score
    }
    alt = " ".join(
        f"{MEASURES[statistic]} of {kinds.SCORES[score]}: {course.describe(0)} after epoch {course.epochs[0]}, "
        f"{course.describe()} after epoch {course.epochs[-1]}"
        f"{'' if (null := nulls[statistic, score]) is None else f', null {drawing.format_number(null)}'}."
        for statistic, of_score in curves.items()
        for score, course in of_score.items()
    )
    title = "When in training do models begin to memorise?"
    return Figure("course", title, figure_caption(curves, nulls), alt, draw_svg(curves, nulls))


def draw_svg(curves: Curves, nulls: Nulls) -> str:
    """The curves as SVG, a panel for each statistic."""
    figure = drawing.canvas(PANEL * len(curves) + legend.ROW + 0.4)
    last = max(int(course.epochs[-1]) for of_score in curves.values() for course in of_score.values())
    panels = layout.stack_axes(figure, len(curves), PANEL, gap=0.38)
    for axes, (statistic, of_score) in zip(panels, curves.items(), strict=True):
        axes.set_title(f"{MEASURES[statistic]}, nats", fontsize=drawing.TEXT)
        axes.axhline(0, **drawing.NULL)
        for score, course in of_score.items():
            colour, marker, dash = kinds.SCORE_LOOKS[score]
            draw_curve(axes, course, colour, marker, dash)
            null = nulls[statistic, score]
            if null is not None:
                look: dict[str, Any] = {"color": drawing.light(colour), "markerfacecolor": "none", "markersize": 6}
                axes.plot([int(course.epochs[-1])], [null], marker, **look)
        axes.set_xlim(*drawing.padded_limits([0.0, float(last)], 0.03))
        drawing.set_ticks(axes, 6, 4, whole=True)
        axes.tick_params(labelbottom=axes is panels[-1])
    panels[-1].set_xlabel("epoch")
    scores = [score for score in kinds.SCORES if any(score in of_score for of_score in curves.values())]
    legend.add_above(figure, [kinds.score_legend_entry(score) for score in scores])
    return drawing.svg(figure, "course")


def figure_caption(curves: Curves, nulls: Nulls) -> str:
    """The caption of the figure."""
    n = max(course.n for of_score in curves.values() for course in of_score.values())
    shade = (
        f"Shade: 95 % intervals by the jackknife over {n} repetitions. " if n > 1 else "One repetition: no intervals. "
    )
    hollow = (
        "Hollow, at the last epoch: what it is where nothing is memorised. "
        if any(null is not None for null in nulls.values())
        else ""
    )
    return (
        "Over all observations, after the epochs at which the models were asked. "
        f"{shade}{hollow}Dashed: 0. Where the high quantiles rise while training and test loss still fall together, "
        "early stopping does not prevent memory."
    )


def draw_curve(axes: Any, course: Curve, colour: str, marker: str, dash: Any) -> None:
    """Draw the estimates as a line over the band of their intervals."""
    look = {"color": drawing.light(colour)}
    whole = ~np.isnan(course.low) & ~np.isnan(course.high)
    if whole.any():
        axes.fill_between(course.epochs[whole], course.low[whole], course.high[whole], alpha=0.15, linewidth=0, **look)
    size = 4.5 if len(course.epochs) <= MARKED else 0
    axes.plot(course.epochs, course.estimate, marker=marker, markersize=size, linestyle=dash, linewidth=1.5, **look)
