"""When in training memory begins: quantiles of both scores over the recorded epochs: figure 4b."""

from __future__ import annotations

from typing import Any

import numpy as np

from dashboards import drawing
from dashboards.audits.density import style
from dashboards.audits.density.score_statistics import Followed, Statistics
from dashboards.figure import Figure

MEASURES = {"quantile 0.999": "99.9 % quantile", "quantile 0.95": "95 % quantile", "median": "median"}
PANEL = 1.5  # inches
MARKED = 12  # epochs with a mark each


def learning_curve(statistics: Statistics) -> Figure | None:
    """The highest quantiles and the median of both scores by epoch, with jackknife intervals."""
    found = {
        statistic: {score: each for score in style.SCORES if (each := statistics.followed(score, statistic))}
        for statistic in MEASURES
    }
    there = {
        statistic: of for statistic, of in found.items() if of and max(len(each.epochs) for each in of.values()) > 1
    }
    if not there:
        return None
    nulls = {(statistic, score): statistics.null(score, statistic) for statistic, of in there.items() for score in of}
    figure = drawing.canvas(PANEL * len(there) + style.ROW + 0.4)
    last = max(int(each.epochs[-1]) for of in there.values() for each in of.values())
    for at, (statistic, of) in enumerate(there.items()):
        bottom = 0.5 + PANEL * (len(there) - 1 - at)
        axes = drawing.place(figure, style.LEFT, bottom, drawing.WIDTH - style.LEFT - style.RIGHT, PANEL - 0.38)
        axes.set_title(f"{MEASURES[statistic]}, nats", fontsize=drawing.TEXT)
        axes.axhline(0, **style.null())
        for score, each in of.items():
            colour, marker, dash = style.OF_SCORE[score]
            line(axes, each, colour, marker, dash)
            null = nulls[statistic, score]
            if null is not None:
                end = int(each.epochs[-1])
                axes.plot([end], [null], marker, color=drawing.light(colour), markerfacecolor="none", markersize=6)
        axes.set_xlim(*drawing.span([0.0, float(last)], 0.03))
        drawing.ticks(axes, 6, 4, whole=True)
        axes.tick_params(labelbottom=at + 1 == len(there))
    axes.set_xlabel("epoch")
    scores = [score for score in style.SCORES if any(score in of for of in there.values())]
    style.legend(figure, [style.of_score(score) for score in scores])
    n = max(each.n for of in there.values() for each in of.values())
    shade = (
        f"Shade: 95 % intervals by the jackknife over {n} repetitions. " if n > 1 else "One repetition: no intervals. "
    )
    hollow = (
        "Hollow, at the last epoch: what it is where nothing is memorised. "
        if any(null is not None for null in nulls.values())
        else ""
    )
    caption = (
        "Over all observations, after the epochs at which the models were asked. "
        f"{shade}{hollow}Dashed: 0. Where the high quantiles rise while training and test loss still fall together, "
        "early stopping does not prevent memory."
    )
    alt = " ".join(
        f"{MEASURES[statistic]} of {style.SCORES[score]}: {each.said(0)} after epoch {each.epochs[0]}, "
        f"{each.said()} after epoch {each.epochs[-1]}"
        f"{'' if (null := nulls[statistic, score]) is None else f', null {drawing.number(null)}'}."
        for statistic, of in there.items()
        for score, each in of.items()
    )
    title = "When in training do models begin to memorise?"
    return Figure("course", title, caption, alt, drawing.svg(figure, "course"))


def line(axes: Any, each: Followed, colour: str, marker: str, dash: Any) -> None:
    """The estimates joined, on the shade of their intervals."""
    look = {"color": drawing.light(colour)}
    whole = ~np.isnan(each.low) & ~np.isnan(each.high)
    if whole.any():
        axes.fill_between(each.epochs[whole], each.low[whole], each.high[whole], alpha=0.15, linewidth=0, **look)
    size = 4.5 if len(each.epochs) <= MARKED else 0
    axes.plot(each.epochs, each.estimate, marker=marker, markersize=size, linestyle=dash, linewidth=1.5, **look)
