"""How often are answers right, on whole and on corrupted contexts? Four curves by epoch, as in figures 2 to 4."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from dashboards import drawing, layout, legend
from dashboards.audits.relational.curves import SCORES, Curve, draw_curve, read_curve, set_epoch_axis
from dashboards.figure import Figure

PANEL = 2.0  # inches
# Column -> what it is, colour, mark and dash: colour tells the part of the data, dash and mark the kind of context.
LINES: dict[str, tuple[str, str, str, Any]] = {
    "s_train": ("training, whole context", "canary", "o", "-"),
    "s_validation": ("held out, whole context", "twin", "s", "-"),
    "r_train": ("training, corrupted", "canary", "^", (0, (4, 2))),
    "r_validation": ("held out, corrupted", "twin", "v", (0, (4, 2))),
}


def answers(table: pa.Table) -> Figure | None:
    """Exact match and F1 of the four sets of questions, where the first gold answer counts."""
    shown = {
        score: {name: found for name in LINES if (found := read_curve(table, name, score, "one")) is not None}
        for score in SCORES
    }
    shown = {score: of_score for score, of_score in shown.items() if of_score}
    if not shown:
        return None
    alt = " ".join(
        f"{LINES[name][0].capitalize()}, {SCORES[score]}: {found.describe()} at the end."
        for score, of_score in shown.items()
        for name, found in of_score.items()
    )
    numeric = table["questions"][0].as_py() == "numeric"
    return Figure("answers", "How often are the answers right?", figure_caption(table, numeric), alt, draw_svg(shown))


def figure_caption(table: pa.Table, numeric: bool) -> str:
    """The caption, with what is scored and how many there are."""
    row = table.slice(table.num_rows - 1).to_pylist()[0]
    kind = "questions with a numeric answer" if numeric else "questions"
    return (
        f"The share of {kind} answered rightly after each epoch that was asked, as they stand (solid) and with what "
        "the answer is read from taken out of the context (dashed); bands: 95 % intervals of resampled contexts. The "
        "first gold answer alone counts on both parts. What is memorised is the distance of the two dashed lines. "
        f"n: {row['train_questions']:,} training questions of {row['train_contexts']:,} contexts, "
        f"{row['validation_questions']:,} held-out ones of {row['validation_contexts']:,}, {row['replicates']} "
        f"training{'s' * (row['replicates'] != 1)}."
    )


def draw_svg(shown: dict[str, dict[str, Curve]]) -> str:
    """The curves as SVG, a panel for each score."""
    figure = drawing.canvas(PANEL * len(shown) + 0.4 + legend.height(len(LINES)))
    panels = layout.stack_axes(figure, len(shown), PANEL)
    for axes, (score, of_score) in zip(panels, shown.items(), strict=True):
        axes.set_title(f"{SCORES[score]}, share", fontsize=drawing.TEXT)
        for name, found in of_score.items():
            _, colour, marker, dash = LINES[name]
            draw_curve(axes, found, colour, marker, dash)
        axes.set_ylim(-0.03, 1.03)
        set_epoch_axis(axes, list(of_score.values()), axes is panels[-1])
    legend.add_above(
        figure,
        [
            legend.line(label, color=drawing.light(colour), marker=marker, linestyle=dash, markersize=4.5)
            for label, colour, marker, dash in LINES.values()
        ],
    )
    return drawing.svg(figure, "answers")
