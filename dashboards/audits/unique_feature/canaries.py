"""Which of the canaries are remembered, one by one: the rank of the feature in its family for each pair of models."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dashboards import drawing, legend
from dashboards.audits.unique_feature.pairs import Array, mark
from dashboards.columns import integers, numbers
from dashboards.figure import Figure
from tasks.audits.unique_feature.ranks import LEVEL
from tasks.audits.unique_feature.verdict import FDR

NEEDED = {"canary", "shift", "rank", "members", "p_value", "adjusted_p", "called"}
FLAGGED = 12  # called canaries whose rows of the training images are named


def verdicts(table: pa.Table) -> Figure | None:
    """Each canary's p-value against the shift of its feature, the called ones filled."""
    if not set(table.column_names) >= NEEDED or not table.num_rows:
        return None
    shift, p_value = numbers(table, "shift"), numbers(table, "p_value")
    called, rows = integers(table, "called") == 1, integers(table, "canary")
    members = int(integers(table, "members").min())
    n = len(p_value)
    listed = ", ".join(str(row) for row in rows[called][:FLAGGED])
    more = f" and {int(called.sum()) - FLAGGED} more" if called.sum() > FLAGGED else ""
    which = f": rows {listed}{more} of the training images" if called.any() else ""
    least = int(np.ceil(n / (FDR * members) - 1e-9))
    floor = f" With so many others, fewer than {least} could not be called." if least > 1 else ""
    caption = (
        "Each mark is one canary: how much more its model says its label for the feature than its twin does, less the "
        f"same for the {members - 1} others of the feature's family (across), and the rank of that among them as a "
        f"p-value (up). Filled: called memorised at a false discovery rate of {FDR:.0%} (Benjamini and Hochberg). "
        f"Where no canary is remembered and features were drawn from the family, any is called in at most {FDR:.0%} of "
        "runs; of a chosen feature p is as good as its likeness to the others."
        f"{floor} Dotted: p of {LEVEL:g}."
    )
    small = int((p_value <= LEVEL).sum())
    words = (
        f"{int(called.sum())} of {n} canaries called memorised{which}; {small} of {n} p-values at most {LEVEL:g}, "
        f"smallest {drawing.number(float(p_value.min()))}, median {drawing.number(float(np.median(p_value)))}."
    )
    title = "Which single canaries are remembered?"
    return Figure("canaries", title, caption, words, drawn(shift, p_value, called))


def drawn(shift: Array, p_value: Array, called: np.ndarray) -> str:
    """The canaries as SVG, smallest p-values at the top."""
    figure = drawing.canvas(3.0)
    axes = drawing.place(figure, 0.6, 0.55, drawing.WIDTH - 0.75, 2.0)
    axes.axvline(0, **drawing.NULL)
    axes.axhline(LEVEL, color=drawing.light("muted"), linewidth=1.2, linestyle=(0, (1, 2)))
    look = mark("canary", len(shift))
    hollow = look | {"markerfacecolor": drawing.light("paper"), "markeredgewidth": 1.1}
    for chosen, style in ((called, look), (~called, hollow)):
        axes.plot(shift[chosen], p_value[chosen], **style)
    axes.set_xlim(*drawing.span([0.0, *shift.tolist()]))
    drawing.logarithmic(axes)
    axes.set_ylim(1.3, float(p_value.min()) / 1.5)
    axes.set_xlabel("shift towards the label, nats")
    axes.set_ylabel("p of the rank")
    legend.above(figure, [legend.line("called memorised", **look), legend.line("not called", **hollow)])
    return drawing.svg(figure, "canaries")
