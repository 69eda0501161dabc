"""The rank of the feature for each canary, and the exact p-values of every score."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dashboards import drawing, legend
from dashboards.audits.unique_feature.effects import GOLDEN
from dashboards.audits.unique_feature.pairs import DOTTED, Array, mark
from dashboards.chart import Axis, Chart, Figure, Layer, Panel, level, line, upright
from dashboards.columns import groups, integers, numbers, texts, with_columns
from tasks.audits.unique_feature.population import FDR, LEVEL
from tasks.numerics.statistics import proportion

NEEDED = {"canary", "p_value", "adjusted_p", "called"}
IN_FAMILY = {"shift", "rank", "members"}
AMONG_ALL = {"read_out", "inked", "read_by_chance", "glyphs"}
WIDE = 1e-4  # p-value below which the axis shows powers of ten only
EDGE = 0.85  # inches on the left
FLAGGED = 12  # called canaries that the description names by their training image
CALLS = f"Filled: called memorised at a false discovery rate of {FDR:.0%} (Benjamini and Hochberg)."
LEVELS = (0.05, 0.01, 0.001)
EXACT = ("score", "feature", "p_value", "exposure", "drawn")


@with_columns(NEEDED)
def verdicts(table: pa.Table) -> Figure | None:
    """Draw each canary's p-value against its shift, or against the number of cells read out.

    Called canaries are filled. Ranks are among all glyphs, or within the feature's family.
    """
    names = set(table.column_names)
    if not names >= IN_FAMILY and not names >= AMONG_ALL:
        return None
    p_value = numbers(table, "p_value")
    is_called = integers(table, "called") == 1
    among_all = names >= AMONG_ALL
    if among_all:
        # Equal cell counts would overlap.
        x_values = numbers(table, "read_out") + 0.5 * ((np.arange(table.num_rows) * GOLDEN) % 1 - 0.5)
        caption = _glyph_caption(table)
        across = "cells of the glyph read out"
        null = float(numbers(table, "read_by_chance").mean())
    else:
        x_values = numbers(table, "shift")
        caption = _family_caption(table)
        across = "shift towards the label, nats"
        null = 0.0
    title = "Which canaries are remembered?"
    words = _describe_verdicts(integers(table, "canary"), p_value, is_called)
    wide = bool(p_value.min() < WIDE)
    look = mark("canary", len(x_values))
    hollow = look | {"markerfacecolor": drawing.light("paper"), "markeredgewidth": 1.1}

    def draw_canaries(axes: Any) -> None:
        for group, style in ((is_called, look), (~is_called, hollow)):
            axes.plot(x_values[group], p_value[group], **style)

    def lift(axes: Any) -> None:
        drawing.set_log_y_axis(axes, wide)
        axes.set_ylim(1.3, float(p_value.min()) / 1.5)

    limits = drawing.padded_limits([null, *x_values.tolist()])
    # Counts of cells, if there are any.
    if null:
        counted = Axis(across, limits, integer_ticks=True)
    else:
        counted = Axis(across, limits, max_ticks=None)
    return Chart(
        "canaries",
        title,
        f"{caption} Dotted: p of {LEVEL:g}.",
        words,
        3.0,
        [
            Panel(
                (EDGE, 0.55, drawing.WIDTH - EDGE - 0.15, 2.0),
                [upright(null), level(LEVEL, DOTTED), draw_canaries],
                counted,
                Axis("p of the rank", max_ticks=None),
                finish=[lift],
            )
        ],
        [legend.line("called memorised", **look), legend.line("not called", **hollow)],
    ).figure()


def _family_caption(table: pa.Table) -> str:
    """Return the caption for ranks within the feature's family."""
    members = int(integers(table, "members").min())
    n = table.num_rows
    fewest_called = int(np.ceil(n / (FDR * members) - 1e-9))
    floor = ""
    if fewest_called > 1:
        floor = f" With this number of others, fewer than {fewest_called} could not be called."
    return (
        "Each mark is one canary. Across: increase of log P(label | feature) from its control model to its own model, "
        f"less the mean increase for the {members - 1} others of the feature's family. Up: p-value of its rank among "
        f"them. {CALLS} "
        f"If no canary is remembered and features were drawn at random, any is called in at most {FDR:.0%} of runs; "
        "for a chosen feature this holds if it resembles the others."
        f"{floor}"
    )


def _glyph_caption(table: pa.Table) -> str:
    """Return the caption for ranks among all glyphs with the same amount of ink."""
    glyphs = int(integers(table, "glyphs").min())
    inked = int(integers(table, "inked").max())
    chance = drawing.format_number(float(numbers(table, "read_by_chance").mean()))
    return (
        f"Each mark is one canary. Across: how many of its glyph's {inked} cells are among the {inked} cells in which "
        f"the slopes of its model exceed those of its control model most, scattered to avoid overlap (grey: {chance} "
        f"by chance). Up: p-value of the glyph's rank among all {glyphs:,}. {CALLS} "
        f"If no canary is remembered and glyphs were drawn at random, any is called in at most {FDR:.0%} of runs; for "
        "a chosen glyph this holds if it resembles the others."
    )


def _describe_verdicts(rows: NDArray[np.int64], p_value: Array, is_called: np.ndarray) -> str:
    n = len(p_value)
    surest = rows[is_called][np.argsort(p_value[is_called], kind="stable")][:FLAGGED]
    row_list = ", ".join(str(row) for row in sorted(surest))
    more = ""
    if is_called.sum() > FLAGGED:
        more = f" and {int(is_called.sum()) - FLAGGED} more"
    which = ""
    if is_called.any():
        which = f": rows {row_list}{more} of the training images"
    small = int((p_value <= LEVEL).sum())
    return (
        f"{int(is_called.sum())} of {n} canaries called memorised{which}; {small} of {n} p-values at most {LEVEL:g}, "
        f"smallest {drawing.format_number(float(p_value.min()))}, median "
        f"{drawing.format_number(float(np.median(p_value)))}."
    )


@dataclass(frozen=True)
class Ranks:
    """A score's p-values in ascending order, for features that canaries carried and for other features."""

    score: str
    carried: Array
    uncarried: Array
    has_random_features: bool

    def describe_share(self, level: float) -> str:
        """Describe the share of canaries with p at most `level`, including a 95 % Wilson interval."""
        rate = proportion(int((self.carried <= level).sum()), len(self.carried))
        return f"{drawing.format_number(rate.value)}{drawing.format_interval(rate.low, rate.high)}"


def exact_ranks(table: pa.Table) -> Figure | None:
    """Draw the share of canaries with p at most equal to each level, with one line per score."""
    scores = list(read_ranks(table))
    if not scores:
        return None
    n = max(len(score.carried) for score in scores)
    exact = (
        "The feature was chosen by a person, so p compares it with others of its kind and is not exact; the "
        "features that were not carried were drawn, so their rate is guaranteed."
    )
    if all(score.has_random_features for score in scores):
        exact = "The features were drawn at random, so p is exact."
    alarms = ""
    if _has_uncarried(scores):
        alarms = "Dashed: features that the canary did not carry, for the same models. "
    caption = (
        f"Share of {n} canaries whose feature has at most this p-value among all of its kind, by the slopes in its "
        "pixels: canary model less control model (pair), less clean models of other seeds (references), or change of "
        f"weights (weight change). {alarms}Dotted: chance. {exact} One training each; the legend has 95 % Wilson "
        "intervals."
    )
    looks = dict(zip((score.score for score in scores), drawing.SERIES, strict=False))
    foot = legend.LISTED * (len(scores) + 1) + 0.12
    smallest_p = min(float(score.carried.min()) for score in scores) / 2
    levels = np.geomspace(smallest_p, 1, 60)
    layers: list[Layer] = [line(levels, levels, "muted", linewidth=1.2, linestyle=(0, (1, 2)))]
    for score in reversed([score for score in scores if score.score in looks]):
        colour, _, dash = looks[score.score]
        x, y = _share_steps(score.carried, smallest_p)
        layers.append(line(x, y, colour, drawstyle="steps-post", linewidth=1.6, linestyle=dash))
        if len(score.uncarried):
            shares = np.searchsorted(score.uncarried, levels, side="right") / len(score.uncarried)
            layers.append(line(levels, shares, colour, linewidth=1.0, linestyle=(0, (4, 2))))
    panel = Panel(
        (0.68, foot + 0.55, drawing.WIDTH - 0.85, 2.05),
        layers,
        Axis("p at most", max_ticks=None, log=[smallest_p, 1.0]),
        Axis("share of canaries", (0, 1.02), max_ticks=None),
    )
    return Chart(
        "exact-ranks",
        "How often is the feature found, and how often a feature that was not carried?",
        caption,
        " ".join(describe_ranks(score) for score in scores),
        foot + 2.75,
        [panel],
        listing=(
            foot,
            [
                (name, look, score_ranks.describe_share(LEVELS[0]))
                for (name, look), score_ranks in zip(looks.items(), scores, strict=False)
            ],
            f"found at p ≤ {LEVELS[0]:g}",
        ),
    ).figure()


def _has_uncarried(scores: list[Ranks]) -> bool:
    return any(len(score.uncarried) for score in scores)


def describe_ranks(score: Ranks) -> str:
    shares = ", ".join(f"{score.describe_share(level)} at p ≤ {level:g}" for level in LEVELS)
    words = f"{score.score}: {shares}; median p {drawing.format_number(float(np.median(score.carried)))}"
    if not len(score.uncarried):
        return f"{words}."
    alarms = ", ".join(
        f"{drawing.format_number(float((score.uncarried <= level).mean()))} at {level:g}" for level in LEVELS
    )
    return f"{words}; of {len(score.uncarried)} features not carried {alarms}."


def _share_steps(p_values: Array, smallest_p: float) -> tuple[Array, Array]:
    """Return the share of p-values at most p as steps, from the smallest p to 1."""
    n = len(p_values)
    return np.r_[smallest_p, p_values, 1.0], np.r_[0.0, np.arange(1, n + 1) / n, 1.0]


@with_columns(EXACT, list)
def read_ranks(table: pa.Table) -> Iterator[Ranks]:
    """Yield each score's p-values, in the order of the table."""
    for (score,), rows in groups(table, "score").items():
        feature = texts(rows, "feature")
        p_value = numbers(rows, "p_value")
        is_known = ~np.isnan(p_value)
        was_drawn = integers(rows, "drawn") == 1
        carried = is_known & (feature == "canary")
        if carried.any():
            other_p_values = np.sort(p_value[is_known & (feature == "other")])
            yield Ranks(score, np.sort(p_value[carried]), other_p_values, bool(was_drawn[carried].all()))
