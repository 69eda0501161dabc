"""Curves by epoch: when memorization begins, and how often answers are right on whole and on corrupted contexts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from dashboards import drawing, legend
from dashboards.chart import Axis, Chart, Curve, Facet, Figure, curve, facet_panels, level
from dashboards.columns import numbers, with_columns

SCORES: Mapping[str, str] = {"exact_match": "exact match", "f1": "F1"}
GOLDS = {"one": "one gold answer on both parts", "all": "all gold answers, as published"}
# Each panel's title, with the column and the score that it shows; the first is what the answer rests on.
PANELS = {
    "relational m by exact match": ("relational_m", "exact_match"),
    "m by exact match": ("m", "exact_match"),
    "m by F1": ("m", "f1"),
}
# Column -> what it is, colour, mark and dash: colour tells the part of the data, dash and mark the kind of context.
LINES: dict[str, tuple[str, legend.Series]] = {
    "s_train": ("training, whole context", ("canary", "o", "-")),
    "s_validation": ("held out, whole context", ("twin", "s", "-")),
    "r_train": ("training, corrupted", ("canary", "^", (0, (4, 2)))),
    "r_validation": ("held out, corrupted", ("twin", "v", (0, (4, 2)))),
}
STEP, TALL_STEP = 1.8, 2.0  # inches from a panel to the next: of m, and of answers


def memorization(table: pa.Table) -> Figure | None:
    """m by exact match and by F1, with one gold answer on both parts and as published, below relational m: figure 3."""
    shown: dict[tuple[str, str], Curve] = {}  # by panel and gold answers
    for panel, (column, score) in PANELS.items():
        for golds in GOLDS:
            found = read_curve(table, column, score, golds)
            if found is not None and not np.isnan(found.value).all():
                shown[panel, golds] = found
    if not shown:
        return None
    if all(same(shown[panel, "one"], found) for (panel, golds), found in shown.items() if golds == "all"):
        shown = {(panel, golds): found for (panel, golds), found in shown.items() if golds == "one"}
    drawn_golds = list(dict.fromkeys(golds for _, golds in shown))
    caption = (
        "m: the share of corrupted contexts on which a training question is still answered rightly, less that of "
        "held-out questions. Relational m, on which the answer rests, leaves out what comes of answers that are merely "
        "common in one part. Bands: 95 % intervals of resampled contexts. Dashed line: 0, nothing memorised. One gold "
        "answer counts on both parts"
    )
    caption += (
        "; as published, several gold answers count of held-out questions, which lowers m where there are several."
        if "all" in drawn_golds
        else "."
    )
    titles = list(dict.fromkeys(panel for panel, _ in shown))
    looks = dict(zip(GOLDS, drawing.SERIES, strict=False))
    facets = []
    for title in titles:
        of_panel = {golds: found for (name, golds), found in shown.items() if name == title}
        curves = [
            curve(found, looks[golds], width=1.4, alpha=0.15 if golds == "one" else 0)
            for golds, found in reversed(of_panel.items())
        ]
        epochs = epoch_axis(list(of_panel.values()), title == titles[-1])
        facets.append(Facet([level(0), *curves], title, Axis(), epochs))
    return Chart(
        "memorization",
        "Are hidden answers given from memory?",
        caption,
        " ".join(f"{panel}, {GOLDS[golds]}: {found.describe()} at the end." for (panel, golds), found in shown.items()),
        STEP * len(titles) + 0.4 + legend.height(len(drawn_golds), 1),
        facet_panels(facets, STEP),
        [legend.series_entry(GOLDS[golds], looks[golds]) for golds in drawn_golds],
        columns=1,
    ).figure()


def answers(table: pa.Table) -> Figure | None:
    """Exact match and F1 of the four sets of questions, where the first gold answer counts: figures 2 to 4."""
    shown = {
        score: {name: found for name in LINES if (found := read_curve(table, name, score, "one")) is not None}
        for score in SCORES
    }
    shown = {score: of_score for score, of_score in shown.items() if of_score}
    if not shown:
        return None
    facets = []
    for score, of_score in shown.items():
        curves = [curve(found, LINES[name][1], width=1.4) for name, found in of_score.items()]
        epochs = epoch_axis(list(of_score.values()), score == list(shown)[-1])
        facets.append(Facet(curves, f"{SCORES[score]}, share", Axis(limits=(-0.03, 1.03)), epochs))
    return Chart(
        "answers",
        "How often are the answers right?",
        _answer_caption(table),
        " ".join(
            f"{LINES[name][0].capitalize()}, {SCORES[score]}: {found.describe()} at the end."
            for score, of_score in shown.items()
            for name, found in of_score.items()
        ),
        TALL_STEP * len(shown) + 0.4 + legend.height(len(LINES)),
        facet_panels(facets, TALL_STEP),
        [legend.series_entry(label, series, markersize=4.5) for label, series in LINES.values()],
    ).figure()


def _answer_caption(table: pa.Table) -> str:
    """The caption of the answers, with what is scored and how many there are."""
    row = table.slice(table.num_rows - 1).to_pylist()[0]
    kind = "questions with a numeric answer" if table["questions"][0].as_py() == "numeric" else "questions"
    return (
        f"The share of {kind} answered rightly after each epoch that was asked, as they stand (solid) and with what "
        "the answer is read from taken out of the context (dashed); bands: 95 % intervals of resampled contexts. The "
        "first gold answer alone counts on both parts. What is memorised is the distance of the two dashed lines. "
        f"n: {row['train_questions']:,} training questions of {row['train_contexts']:,} contexts, "
        f"{row['validation_questions']:,} held-out ones of {row['validation_contexts']:,}, {row['replicates']} "
        f"training{'s' * (row['replicates'] != 1)}."
    )


@with_columns(("questions", "score", "golds", "epoch"))
def read_curve(table: pa.Table, name: str, score: str, golds: str) -> Curve | None:
    """The column `name` of the memorization table by epoch, of the first subset of questions; None where it has none.

    An epoch that is not known is 0.
    """
    questions = table["questions"][0].as_py()
    kept = [
        at
        for at, row in enumerate(table.select(["questions", "score", "golds"]).to_pylist())
        if (row["questions"], row["score"], row["golds"]) == (questions, score, golds)
    ]
    if not kept:
        return None
    rows = table.take(pa.array(kept))
    columns = [numbers(rows, column) for column in ("epoch", name, f"{name}_low", f"{name}_high")]
    columns[0] = np.nan_to_num(columns[0])
    order = np.argsort(columns[0], kind="stable")
    return Curve(*(column[order] for column in columns))


def same(one: Curve, other: Curve) -> bool:
    """Whether two curves have equal values, as where no question has several gold answers."""
    return np.array_equal(one.value, other.value, equal_nan=True)


def epoch_axis(shown: Sequence[Curve], last: bool) -> Axis:
    """The axis of epochs, with labels below the `last` panel; without ticks where the training is not known."""
    known = np.concatenate([each.places for each in shown])
    limits = drawing.padded_limits([float(known.min()), float(known.max())], 0.03)
    if known.max() == 0:
        return Axis(limits=limits, ticks=([], []))
    return Axis("epoch" if last else "", limits, 6, whole=True, worded=last)
