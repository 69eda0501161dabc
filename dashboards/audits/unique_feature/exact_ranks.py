"""How small the exact p-values are: the share of canaries that each score finds at every level."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dashboards import drawing, legend
from dashboards.audits.unique_feature.pairs import Array
from dashboards.chart import Figure
from dashboards.columns import numbers, texts
from tasks.statistics import proportion

LEVELS = (0.05, 0.01, 0.001)
NEEDED = ("score", "feature", "p_value", "exposure", "drawn")


@dataclass(frozen=True)
class Ranks:
    """A score's p-values of what canaries carried, and of what they did not carry, ascending."""

    score: str
    carried: Array
    others: Array
    drawn: bool

    def describe_share(self, level: float) -> str:
        """The share of canaries with p of at most the level, with its 95 % Wilson interval, in words."""
        rate = proportion(int((self.carried <= level).sum()), len(self.carried))
        return f"{drawing.format_number(rate.value)}{drawing.format_interval(rate.low, rate.high)}"


def exact_ranks(table: pa.Table) -> Figure | None:
    """The share of canaries with p of at most every level, a line for each score."""
    scores = list(read_ranks(table))
    if not scores:
        return None
    n = max(len(score.carried) for score in scores)
    exact = (
        "The features were drawn, so that p is exact."
        if all(score.drawn for score in scores)
        else "Somebody chose the feature, so that p compares it with others of its kind and is not exact; the others "
        "asked were drawn, which alone guarantees their rate."
    )
    alarms = "Dashed: features that the canary did not carry, asked of the same models. " if has_others(scores) else ""
    caption = (
        f"Share of {n} canaries whose feature is among the first p of all of its kind, by what it did to the slopes of "
        "its pixels: of the canary's model less its twin (pair), less clean models of other seeds (references), or in "
        f"the weights of the pair (weight change). {alarms}Dotted: chance. {exact} One training each; the legend has "
        "95 % Wilson intervals."
    )
    alt = " ".join(describe_ranks(score) for score in scores)
    title = "How surely is the feature found, and how rarely is another one?"
    return Figure("exact-ranks", title, caption, alt, draw_svg(scores))


def has_others(scores: list[Ranks]) -> bool:
    return any(len(score.others) for score in scores)


def describe_ranks(score: Ranks) -> str:
    shares = ", ".join(f"{score.describe_share(level)} at p ≤ {level:g}" for level in LEVELS)
    words = f"{score.score}: {shares}; median p {drawing.format_number(float(np.median(score.carried)))}"
    if not len(score.others):
        return f"{words}."
    alarms = ", ".join(
        f"{drawing.format_number(float((score.others <= level).mean()))} at {level:g}" for level in LEVELS
    )
    return f"{words}; of {len(score.others)} features not carried {alarms}."


def draw_svg(scores: list[Ranks]) -> str:
    """The shares as SVG, p on a logarithmic axis, with the legend below."""
    foot = legend.LISTED * (len(scores) + 1) + 0.12
    figure = drawing.canvas(foot + 2.75)
    axes = drawing.add_axes(figure, 0.68, foot + 0.55, drawing.WIDTH - 0.85, 2.05)
    least = min(float(score.carried.min()) for score in scores) / 2
    levels = np.geomspace(least, 1, 60)
    axes.plot(levels, levels, color=drawing.light("muted"), linewidth=1.2, linestyle=(0, (1, 2)))
    for score, (colour, _, dash) in reversed(list(zip(scores, drawing.SERIES, strict=False))):
        look: dict[str, Any] = {"color": drawing.light(colour)}
        axes.step(*share_steps(score.carried, least), where="post", linewidth=1.6, linestyle=dash, **look)
        if len(score.others):
            at = np.searchsorted(score.others, levels, side="right") / len(score.others)
            axes.plot(levels, at, linewidth=1.0, linestyle=(0, (4, 2)), **look)
    drawing.set_log_x_axis(axes, [least, 1.0])
    axes.set_ylim(0, 1.02)
    axes.set_ylabel("share of canaries")
    axes.set_xlabel("p at most")
    entries = [
        (score.score, series, score.describe_share(LEVELS[0]))
        for score, series in zip(scores, drawing.SERIES, strict=False)
    ]
    legend.add_below(figure, foot, entries, f"found at p ≤ {LEVELS[0]:g}")
    return drawing.svg(figure, "exact-ranks")


def share_steps(p_values: Array, least: float) -> tuple[Array, Array]:
    """The steps of the share of p-values at most p, from the least p to 1."""
    n = len(p_values)
    return np.r_[least, p_values, 1.0], np.r_[0.0, np.arange(1, n + 1) / n, 1.0]


def read_ranks(table: pa.Table) -> Iterator[Ranks]:
    """Each score's p-values, in the table's order of scores."""
    if not set(NEEDED) <= set(table.column_names) or not table.num_rows:
        return
    score, feature, p_value = texts(table, "score"), texts(table, "feature"), numbers(table, "p_value")
    was_drawn = np.array(table["drawn"].to_pylist(), object)
    for name in dict.fromkeys(score.tolist()):
        here = (score == name) & ~np.isnan(p_value)
        carried = here & (feature == "canary")
        if carried.any():
            others = np.sort(p_value[here & (feature == "other")])
            yield Ranks(str(name), np.sort(p_value[carried]), others, bool(np.all(was_drawn[carried])))
