"""Curves by epoch: memorization, and correct answers on whole and corrupted contexts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from dashboards import drawing, legend
from dashboards.chart import Axis, Chart, Curve, Facet, Figure, curve, facet_panels, level
from dashboards.columns import numbers, with_columns

SCORES: Mapping[str, str] = {"exact_match": "exact match", "f1": "F1"}
GOLDS = {"one": "one gold answer on both parts", "all": "all gold answers, as published"}
# Panel title -> column and score. The first panel decides the answer.
PANELS = {
    "relational m by exact match": ("relational_m", "exact_match"),
    "m by exact match": ("m", "exact_match"),
    "m by F1": ("m", "f1"),
}
# Column -> label and style. Colour shows the part of the data; dash and marker show the kind of context.
LINES: dict[str, tuple[str, legend.Series]] = {
    "s_train": ("training, whole context", ("canary", "o", "-")),
    "s_validation": ("held out, whole context", ("twin", "s", "-")),
    "r_train": ("training, corrupted", ("canary", "^", (0, (4, 2)))),
    "r_validation": ("held out, corrupted", ("twin", "v", (0, (4, 2)))),
}
STEP = 1.8  # inches from one panel to the next, for m
TALL_STEP = 2.0  # for answers


def memorization(table: pa.Table) -> Figure | None:
    """Draw relational m, and m by exact match and F1, with one gold answer and as published (figure 3)."""
    curves_by_panel: dict[tuple[str, str], Curve] = {}  # by panel and gold answers
    for panel, (column, score) in PANELS.items():
        for golds in GOLDS:
            panel_curve = read_curve(table, column, score, golds)
            if panel_curve is not None and not np.isnan(panel_curve.value).all():
                curves_by_panel[panel, golds] = panel_curve
    if not curves_by_panel:
        return None
    if all(
        same(curves_by_panel[panel, "one"], panel_curve)
        for (panel, golds), panel_curve in curves_by_panel.items()
        if golds == "all"
    ):
        curves_by_panel = {
            (panel, golds): panel_curve for (panel, golds), panel_curve in curves_by_panel.items() if golds == "one"
        }
    drawn_golds = list(dict.fromkeys(golds for _, golds in curves_by_panel))
    caption = (
        "m: share of training questions that are answered correctly on corrupted contexts, minus that share for "
        "held-out questions. Relational m, which decides the answer, excludes answers that are merely common in one "
        "part. Bands: 95 % intervals over resampled contexts. Dashed: 0, nothing memorised. One gold answer counts on "
        "both parts"
    )
    if "all" in drawn_golds:
        caption += "; as published, all gold answers of held-out questions count, which lowers m."
    else:
        caption += "."
    titles = list(dict.fromkeys(panel for panel, _ in curves_by_panel))
    looks = dict(zip(GOLDS, drawing.SERIES, strict=False))
    facets = []
    for title in titles:
        of_panel = {golds: panel_curve for (name, golds), panel_curve in curves_by_panel.items() if name == title}
        curves = [
            curve(panel_curve, looks[golds], width=1.4, alpha=0.15 if golds == "one" else 0)
            for golds, panel_curve in reversed(of_panel.items())
        ]
        epochs = epoch_axis(list(of_panel.values()), title == titles[-1])
        facets.append(Facet([level(0), *curves], title, Axis(), epochs))
    return Chart(
        "memorization",
        "Are hidden answers given from memory?",
        caption,
        " ".join(
            f"{panel}, {GOLDS[golds]}: {panel_curve.describe()} at the end."
            for (panel, golds), panel_curve in curves_by_panel.items()
        ),
        STEP * len(titles) + 0.4 + legend.height(len(drawn_golds), 1),
        facet_panels(facets, STEP),
        [legend.series_entry(GOLDS[golds], looks[golds]) for golds in drawn_golds],
        columns=1,
    ).figure()


def answers(table: pa.Table) -> Figure | None:
    """Draw exact match and F1 on the four question sets, with the first gold answer (figures 2 to 4)."""
    curves_by_panel: dict[str, dict[str, Curve]] = {}
    for score in SCORES:
        curves_by_panel[score] = {}
        for name in LINES:
            panel_curve = read_curve(table, name, score, "one")
            if panel_curve is not None:
                curves_by_panel[score][name] = panel_curve
    curves_by_panel = {score: of_score for score, of_score in curves_by_panel.items() if of_score}
    if not curves_by_panel:
        return None
    facets = []
    for score, of_score in curves_by_panel.items():
        curves = [curve(panel_curve, LINES[name][1], width=1.4) for name, panel_curve in of_score.items()]
        epochs = epoch_axis(list(of_score.values()), score == list(curves_by_panel)[-1])
        facets.append(Facet(curves, f"{SCORES[score]}, share", Axis(limits=(-0.03, 1.03)), epochs))
    return Chart(
        "answers",
        "How often are the answers right?",
        _answer_caption(table),
        " ".join(
            f"{LINES[name][0].capitalize()}, {SCORES[score]}: {panel_curve.describe()} at the end."
            for score, of_score in curves_by_panel.items()
            for name, panel_curve in of_score.items()
        ),
        TALL_STEP * len(curves_by_panel) + 0.4 + legend.height(len(LINES)),
        facet_panels(facets, TALL_STEP),
        [legend.series_entry(label, series, markersize=4.5) for label, series in LINES.values()],
    ).figure()


def _answer_caption(table: pa.Table) -> str:
    """Return the caption of the answers, which states the score and the number of questions."""
    row = table.slice(table.num_rows - 1).to_pylist()[0]
    kind = "questions"
    if table["questions"][0].as_py() == "numeric":
        kind = "questions with a numeric answer"
    return (
        f"Share of {kind} answered correctly after each evaluated epoch, on whole contexts (solid) and on corrupted "
        "contexts (dashed). Bands: 95 % intervals over resampled contexts. Only the first gold answer counts on both "
        "parts. The distance between the dashed lines is memory. "
        f"n: {row['train_questions']:,} training questions of {row['train_contexts']:,} contexts, "
        f"{row['validation_questions']:,} held-out ones of {row['validation_contexts']:,}, {row['replicates']} "
        f"training{'s' * (row['replicates'] != 1)}."
    )


@with_columns(("questions", "score", "golds", "epoch"))
def read_curve(table: pa.Table, name: str, score: str, golds: str) -> Curve | None:
    """Return the column `name` of the memorization table by epoch, for the first subset of questions.

    An unknown epoch is 0. Returns None if there are no values.
    """
    questions = table["questions"][0].as_py()
    row_numbers = []
    for row_number, row in enumerate(table.select(["questions", "score", "golds"]).to_pylist()):
        if (row["questions"], row["score"], row["golds"]) == (questions, score, golds):
            row_numbers.append(row_number)
    if not row_numbers:
        return None
    rows = table.take(pa.array(row_numbers))
    columns = []
    for column in ("epoch", name, f"{name}_low", f"{name}_high"):
        columns.append(numbers(rows, column))
    columns[0] = np.nan_to_num(columns[0])
    order = np.argsort(columns[0], kind="stable")
    return Curve(*(column[order] for column in columns))


def same(one: Curve, second: Curve) -> bool:
    """Whether two curves are equal, as is the case if no question has several gold answers."""
    return np.array_equal(one.value, second.value, equal_nan=True)


def epoch_axis(curves: Sequence[Curve], last: bool) -> Axis:
    """Return the epoch axis, with labels below the `last` panel. It has no ticks if the training is unknown."""
    epochs = np.concatenate([drawn_curve.places for drawn_curve in curves])
    limits = drawing.padded_limits([float(epochs.min()), float(epochs.max())], 0.03)
    if epochs.max() == 0:
        return Axis(limits=limits, ticks=([], []))
    return Axis("epoch" if last else "", limits, 6, integer_ticks=True, has_tick_labels=last)
