"""Which of the canaries are remembered, one by one: the rank of the feature for each pair of models."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dashboards import drawing, legend
from dashboards.audits.unique_feature.effects import GOLDEN
from dashboards.audits.unique_feature.pairs import Array, mark
from dashboards.columns import integers, numbers
from dashboards.figure import Figure
from tasks.audits.unique_feature.population import FDR, LEVEL

NEEDED = {"canary", "p_value", "adjusted_p", "called"}
IN_FAMILY, AMONG_ALL = {"shift", "rank", "members"}, {"read_out", "inked", "read_by_chance", "glyphs"}
WIDE = 1e-4  # a p-value from which on the axis has powers of ten alone
FLAGGED = 12  # called canaries whose rows of the training images are named
CALLS = f"Filled: called memorised at a false discovery rate of {FDR:.0%} (Benjamini and Hochberg)."


def verdicts(table: pa.Table) -> Figure | None:
    """Each canary's p-value, the called ones filled, against what it left: the shift of its feature, or what is read.

    The ranks are among all glyphs, or among the members of the feature's family.
    """
    names = set(table.column_names)
    if not names >= NEEDED or not table.num_rows or not (names >= IN_FAMILY or names >= AMONG_ALL):
        return None
    p_value, called = numbers(table, "p_value"), integers(table, "called") == 1
    among_all = names >= AMONG_ALL
    if among_all:
        # Counts of cells would lie on one another.
        left = numbers(table, "read_out") + 0.5 * ((np.arange(table.num_rows) * GOLDEN) % 1 - 0.5)
        caption, across = glyph_caption(table), "cells of the glyph that are read out"
        null = float(numbers(table, "read_by_chance").mean())
    else:
        left = numbers(table, "shift")
        caption, across, null = family_caption(table), "shift towards the label, nats", 0.0
    title = "Which single canaries are remembered?"
    words = describe_verdicts(integers(table, "canary"), p_value, called)
    return Figure(
        "canaries", title, f"{caption} Dotted: p of {LEVEL:g}.", words, draw_svg(left, p_value, called, across, null)
    )


def family_caption(table: pa.Table) -> str:
    """The caption where each feature was ranked among the members of its family."""
    members, n = int(integers(table, "members").min()), table.num_rows
    least = int(np.ceil(n / (FDR * members) - 1e-9))
    floor = f" With so many others, fewer than {least} could not be called." if least > 1 else ""
    return (
        "Each mark is one canary: how much more its model says its label for the feature than its twin does, less the "
        f"same for the {members - 1} others of the feature's family (across), and the rank of that among them as a "
        f"p-value (up). {CALLS} "
        f"Where no canary is remembered and features were drawn from the family, any is called in at most {FDR:.0%} of "
        "runs; of a chosen feature p is as good as its likeness to the others."
        f"{floor}"
    )


def glyph_caption(table: pa.Table) -> str:
    """The caption where each glyph was ranked among all of its ink."""
    glyphs, inked = int(integers(table, "glyphs").min()), int(integers(table, "inked").max())
    chance = drawing.format_number(float(numbers(table, "read_by_chance").mean()))
    return (
        f"Each mark is one canary: how many of its glyph's {inked} cells are among the {inked} in which its model's "
        f"slopes exceed its twin's most (across, apart from others of one count; grey: {chance} by chance), and the "
        f"glyph's rank among all {glyphs:,} as a p-value (up). {CALLS} "
        f"Where no canary is remembered and glyphs were drawn, any is called in at most {FDR:.0%} of runs; of a chosen "
        "glyph p is as good as its likeness to all others."
    )


def describe_verdicts(rows: NDArray[np.int64], p_value: Array, called: np.ndarray) -> str:
    n = len(p_value)
    listed = ", ".join(str(row) for row in rows[called][:FLAGGED])
    more = f" and {int(called.sum()) - FLAGGED} more" if called.sum() > FLAGGED else ""
    which = f": rows {listed}{more} of the training images" if called.any() else ""
    small = int((p_value <= LEVEL).sum())
    return (
        f"{int(called.sum())} of {n} canaries called memorised{which}; {small} of {n} p-values at most {LEVEL:g}, "
        f"smallest {drawing.format_number(float(p_value.min()))}, median "
        f"{drawing.format_number(float(np.median(p_value)))}."
    )


def draw_svg(left: Array, p_value: Array, called: np.ndarray, across: str, null: float) -> str:
    """The canaries as SVG, smallest p-values at the top."""
    figure = drawing.canvas(3.0)
    wide = bool(p_value.min() < WIDE)
    edge = 0.85
    axes = drawing.add_axes(figure, edge, 0.55, drawing.WIDTH - edge - 0.15, 2.0)
    axes.axvline(null, **drawing.NULL)
    axes.axhline(LEVEL, color=drawing.light("muted"), linewidth=1.2, linestyle=(0, (1, 2)))
    look = mark("canary", len(left))
    hollow = look | {"markerfacecolor": drawing.light("paper"), "markeredgewidth": 1.1}
    for chosen, style in ((called, look), (~called, hollow)):
        axes.plot(left[chosen], p_value[chosen], **style)
    axes.set_xlim(*drawing.padded_limits([null, *left.tolist()]))
    if null:  # cells, which are counted
        drawing.set_ticks(axes, whole=True)
    drawing.set_log_y_axis(axes, wide)
    axes.set_ylim(1.3, float(p_value.min()) / 1.5)
    axes.set_xlabel(across)
    axes.set_ylabel("p of the rank")
    legend.add_above(figure, [legend.line("called memorised", **look), legend.line("not called", **hollow)])
    return drawing.svg(figure, "canaries")
