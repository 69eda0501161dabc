"""Strips: rows with the median and central 90 % of both scores, one per label or sweep cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dashboards import drawing, layout, legend
from dashboards.audits.density.observations import SCORE_LOOKS, SCORES, Observations, score_legend_entry
from dashboards.chart import Array, Axis, Chart, Figure, Layer, intervals, marks, row_panel, upright
from dashboards.summary import format_range


@dataclass(frozen=True)
class Strip:
    """One row: the 5 % quantile, median and 95 % quantile of each score over `n` observations."""

    name: str
    spreads: Mapping[str, tuple[float, float, float]]
    n: int

    @property
    def median(self) -> float:
        """The median of the matched score, or of the other score if that is missing."""
        return next(self.spreads[score][1] for score in SCORES if score in self.spreads)

    def describe(self) -> str:
        """Describe the row."""
        words = [
            (
                f"{SCORES[score]} {drawing.format_number(middle)}, "
                f"{drawing.format_number(low)} to {drawing.format_number(high)}"
            )
            for score, (low, middle, high) in self.spreads.items()
        ]
        return f"{self.name} (n {self.n:,}): {'; '.join(words)}."


def strip(name: str, scores: Mapping[str, Array]) -> Strip | None:
    """Return the strip for these scores. Returns None if they have no values."""
    defined_scores = {score: values[~np.isnan(values)] for score, values in scores.items()}
    defined_scores = {
        score: defined_scores[score] for score in SCORES if score in defined_scores and len(defined_scores[score])
    }
    if not defined_scores:
        return None
    spreads = {}
    for score, values in defined_scores.items():
        low, middle, high = (float(value) for value in np.quantile(values, (0.05, 0.5, 0.95)))
        spreads[score] = (low, middle, high)
    return Strip(name, spreads, max(map(len, defined_scores.values())))


def class_scores(observations: Observations) -> Figure | None:
    """Draw the median and central 90 % of both scores for each label, in order of descending median."""
    label = observations.column("label")
    names = np.unique(label[~np.isnan(label)])
    all_strips = []
    for name in names:
        label_scores = {}
        for score, values in observations.scores.items():
            label_scores[score] = values[label == name]
        all_strips.append(strip(f"label {int(name)}", label_scores))
    label_strips = sorted((strip for strip in all_strips if strip is not None), key=lambda strip: -strip.median)
    if len(label_strips) < 2:
        return None
    drawn_strips = label_strips
    rest = ""
    if len(label_strips) > layout.MOST:
        half = layout.MOST // 2
        drawn_strips = [*label_strips[:half], *label_strips[-half:]]
        rest = f" Of {len(label_strips)} labels the {half} with the largest and the {half} with the smallest medians."
    caption = (
        "Mark: the median over a label's observations; line: its central 90 %, from the 5 % to the 95 % quantile. "
        f"Dashed: 0. {format_range([strip.n for strip in drawn_strips])} observations of each label, "
        f"the largest median of the matched-count score first.{rest} The "
        "variability of a class affects its scores: compare the same label between runs rather than labels."
    )
    return draw_strips(drawn_strips, "labels", "Are some classes memorised more than others?", caption)


def draw_strips(strips: Sequence[Strip], name: str, title: str, caption: str) -> Figure:
    """Draw the strips below one another in their order, on one scale with a line at 0."""
    existing_scores = {score for strip in strips for score in strip.spreads}
    scores = [score for score in SCORES if score in existing_scores]
    rows = layout.rows([strip.name for strip in strips], legend.ROW + 0.08)
    layers: list[Layer] = [upright(0)]
    for series_index, score in enumerate(scores):
        colour, marker, _ = SCORE_LOOKS[score]
        strip_indices = []
        for index, strip in enumerate(strips):
            if score in strip.spreads:
                strip_indices.append(index)
        low, middle, high = np.array([strips[index].spreads[score] for index in strip_indices]).T
        height = rows.y[strip_indices] + ((len(scores) - 1) / 2 - series_index) * 0.36
        layers += [intervals(height, low, high, colour, level=True), marks(middle, height, colour, marker, 4.5)]
    ends = (end for strip in strips for spread in strip.spreads.values() for end in spread)
    return Chart(
        name,
        title,
        caption,
        " ".join(strip.describe() for strip in strips),
        rows.height,
        [row_panel(rows, layers, Axis("nats", drawing.padded_limits([0.0, *ends])))],
        [score_legend_entry(score, linestyle="-", linewidth=1.8, markersize=4.5) for score in scores],
    ).figure()
