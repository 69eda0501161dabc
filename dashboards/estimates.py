"""Forest plots for the summary of any audit: one row per estimate and interval."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate, chain
from typing import Any

import numpy as np

from dashboards import drawing, legend
from dashboards.chart import (
    Axis,
    Chart,
    Figure,
    Layer,
    Panel,
    annotation,
    estimate_marks,
    intervals,
    line,
    marks,
    row_names,
)
from dashboards.layout import left_out_note
from dashboards.summary import LETTERS, Row, finite, fit_words, row_label, words
from tasks.contract.grouping import group_rows

Metric = tuple[str, list[Row]]
REPEATED = "Do the results agree with the published ones?"
LOGARITHMIC = "Scales differ. On a logarithmic scale, an interval that leaves the panel to the left includes 0."
HOLLOW = "Diamond: the published number, which has no interval; a thin line connects it with ours. "

LABELS = 1.95  # inches for row labels, wide enough for LETTERS letters
ROW = 0.2  # inches
FOOT = 0.36  # inches for the ticks below each panel
LEGEND = 0.42
MOST = 80  # drawn rows
TALLEST = 11.0  # height of a figure in inches; it fits on one printed page at nearly nine tenths of its size
LONGEST = 40  # rows per metric in one figure
# Ratio of the largest to the smallest estimate above which the scale is logarithmic. WIDE applies if there are
# published values, WIDEST otherwise.
WIDE = 30
WIDEST = 1000
# A metric stays on a shared scale if its values span at least this share of it. Otherwise it gets its own scale.
SHARE = 0.3


def estimates(rows: Sequence[Row]) -> Iterator[Figure]:
    """Yield forest plots of the summary estimates. Rows with a published value get separate figures."""
    finite_rows = [row for row in rows if finite(row["estimate"])]
    unpublished = [row for row in finite_rows if not finite(row["published"])]
    published = [row for row in finite_rows if finite(row["published"])]
    yield from forests(unpublished, "estimates", "How large are the estimates, and their values without memorisation?")
    yield from forests(published, "published", REPEATED)


def forests(
    rows: Sequence[Row], name: str, title: str, describe: Callable[[Row], str] | None = None
) -> Iterator[Figure]:
    """Yield forest plots of these rows, split across several figures if necessary."""
    pages = paginate(_group_by_scale(_group_by_metric(rows[:MOST])))
    left_out = left_out_note(min(MOST, len(rows)), len(rows), "rows")
    for number, panels in enumerate(pages, 1):
        of_several = ""
        if len(pages) > 1:
            of_several = f" Figure {number} of {len(pages)}."
        yield _forest(panels, f"{name}-{number}" if number > 1 else name, title, of_several + left_out, describe)


def paginate(panels: Sequence[Sequence[Metric]]) -> list[list[Sequence[Metric]]]:
    """Distribute the panels, in order, over as few figures as possible without exceeding the maximum height."""
    pages: list[list[Sequence[Metric]]] = []
    for panel in chain.from_iterable(map(_split_panel, panels)):
        if pages and _figure_height([*pages[-1], panel]) <= TALLEST:
            pages[-1].append(panel)
        else:
            pages.append([panel])
    return pages


def _split_panel(panel: Sequence[Metric]) -> list[Sequence[Metric]]:
    """Split a panel that is too tall for one figure into panels of at most LONGEST rows of one metric."""
    if _figure_height([panel]) <= TALLEST:
        return [panel]
    return [[(name, rows[start : start + LONGEST])] for name, rows in panel for start in range(0, len(rows), LONGEST)]


def _panel_height(panel: Sequence[Metric]) -> float:
    return ROW * sum(1.3 + len(of_metric) for _, of_metric in panel)


def _figure_height(panels: Sequence[Sequence[Metric]]) -> float:
    return LEGEND + sum(_panel_height(panel) + FOOT for panel in panels)


def _forest(
    panels: Sequence[Sequence[Metric]],
    name: str,
    title: str,
    note: str = "",
    describe: Callable[[Row], str] | None = None,
) -> Figure:
    """Draw dots with 95 % intervals below the name of each metric. Metrics of similar magnitude share a scale."""
    rows = [row for panel in panels for row in _panel_rows(panel)]
    units = sorted({str(row["unit"]) for row in rows if row["unit"]})
    published = any(finite(row["published"]) for row in rows)
    scales = "Scales differ."
    if any(_wide_apart(_panel_rows(panel)) for panel in panels):
        scales = LOGARITHMIC
    caption = (
        "Dot: estimate. Line: 95 % interval, hidden if narrower than the dot. Tick: null value, the value expected "
        f"without memorisation. {HOLLOW if published else ''}{scales} "
        f"Sampling unit: {', '.join(units) or 'unknown'}.{note}"
    )
    alt = " ".join(map(describe or describe_row, rows))
    height = _figure_height(panels)
    tops = accumulate((_panel_height(panel) + FOOT for panel in panels), initial=LEGEND)
    axes_panels = []
    for panel, top in zip(panels, tops, strict=False):
        axes_panels.append(_metrics_panel(panel, height - top))
    return Chart(name, title, caption, alt, height, axes_panels, legend_entries(published), columns=3).figure()


def _group_by_metric(rows: Sequence[Row]) -> list[Metric]:
    """Group the rows by metric, in order of first occurrence."""
    return list(group_rows(rows, "metric").items())


def _group_by_scale(metrics: Sequence[Metric]) -> list[list[Metric]]:
    """Put consecutive metrics in one panel if their names share the first word and one scale keeps them readable."""
    panels: list[list[Metric]] = []
    for metric in metrics:
        if panels:
            together = [*panels[-1], metric]
        else:
            together = [metric]
        total_length = _axis_length([row for _, rows in together for row in rows])
        of_a_kind = len({name.partition(" ")[0] for name, _ in together}) == 1
        if panels and of_a_kind and all(_axis_length(rows) >= SHARE * total_length for _, rows in together):
            panels[-1] = together
        else:
            panels.append([metric])
    return panels


def values(rows: Sequence[Row]) -> list[float]:
    """Return all values in these rows that an axis must contain."""
    names = ("estimate", "low", "high", "null", "published")
    return [row[name] for row in rows for name in names if finite(row[name])]


def _wide_apart(rows: Sequence[Row]) -> bool:
    """Whether these estimates and published values span so many magnitudes that they need a logarithmic axis."""
    sizes = []
    for row in rows:
        for name in ("estimate", "published"):
            if finite(row[name]):
                sizes.append(row[name])
    if all(finite(row["published"]) for row in rows):
        limit = WIDE
    else:
        limit = WIDEST
    return bool(min(sizes) > 0 and max(sizes) > limit * min(sizes))


def _axis_length(rows: Sequence[Row]) -> float:
    """Return the length of an axis that contains these rows."""
    return max(values(rows)) - min(values(rows))


def _panel_rows(panel: Sequence[Metric]) -> list[Row]:
    return [row for _, of_metric in panel for row in of_metric]


def _metrics_panel(panel: Sequence[Metric], top: float) -> Panel:
    """Lay out the metrics from `top` inches downwards, each below its name.

    The axis is logarithmic if the values are far apart.
    """
    tall = _panel_height(panel)
    rows = _panel_rows(panel)
    y = tall / ROW - 0.5
    labels = {}
    headings = []
    for metric, of_metric in panel:
        y -= 0.15
        position = (-LABELS * 72 + 6, y)
        headings.append(
            annotation(
                metric, position, system=("axes points", "data"), va="center", fontweight="bold", fontsize=drawing.TEXT
            )
        )
        y -= 0.15
        for label in _row_labels(of_metric):
            y -= 1
            labels[y] = label
        y -= 1
    wide = _wide_apart(rows)
    limits = drawing.padded_limits([value for value in values(rows) if value > 0 or not wide])
    positive = []
    for row in rows:
        for value in (row["estimate"], row["published"]):
            if finite(value):
                positive.append(value)
    set_log_axis = []
    if wide:
        set_log_axis = [partial(drawing.set_log_x_axis, values=positive, max_ticks=5)]
    return Panel(
        (LABELS, top - tall, drawing.WIDTH - LABELS - 0.2, tall),
        [*headings, *_forest_layers(list(labels), rows)],
        Axis(limits=limits, max_ticks=4),
        Axis(limits=(-0.5, tall / ROW - 0.5)),
        finish=[
            *set_log_axis,
            row_names(list(labels), list(labels.values())),
            drawing.hide_y_axis,
            lambda axes: axes.tick_params(length=0),
        ],
    )


def _forest_layers(heights: Sequence[float], rows: Sequence[Row]) -> Iterator[Layer]:
    """Yield null values as ticks, intervals as lines, estimates as dots and published values as diamonds."""
    positions = np.array(heights)
    null = np.array([row["null"] if finite(row["null"]) else np.nan for row in rows])
    estimate = np.array([row["estimate"] if finite(row["estimate"]) else np.nan for row in rows])
    published = np.array([row["published"] if finite(row["published"]) else np.nan for row in rows])
    yield line(*drawing.segment_path(null, positions - 0.38, positions + 0.38), "muted", linewidth=1.6)
    yield estimate_marks(positions, rows, "accent", level=True, marker="o", markersize=5.5, linestyle="none")
    if np.isfinite(published).any():
        yield intervals(positions, estimate, published, "muted", 0.8, level=True, zorder=1)
        yield marks(published, positions, "ink", "D", 5.5, markerfacecolor="none")


def legend_entries(published: bool) -> list[Any]:
    """Return the legend entries. With `published`, they include the diamond for published values."""
    upright = {"marker": "|", "markersize": 9, "markeredgewidth": 1.6, "linewidth": 0}
    hollow = {"marker": "D", "markersize": 5.5, "markerfacecolor": "none", "linewidth": 0}
    accent = drawing.light("accent")
    muted = drawing.light("muted")
    ink = drawing.light("ink")
    lines = [
        legend.line("estimate, 95 % interval", color=accent, marker="o", markersize=5.5, linewidth=1.8),
        legend.line("null", color=muted, **upright),
    ]
    if published:
        return [*lines, legend.line("published", color=ink, **hollow)]
    return lines


def _row_labels(rows: Sequence[Row]) -> list[str]:
    """Label the rows of a metric. If labels are too long, omit the words that all rows share."""
    texts = [words(row) for row in rows]
    if all(len(", ".join(of_row)) <= LETTERS for of_row in texts):
        return [row_label(row) for row in rows]
    common = set()
    if len(rows) > 1:
        common = set.intersection(*(set(of_row) for of_row in texts))
    labels = []
    for row, of_row in zip(rows, texts, strict=True):
        distinguishing_words = [word for word in of_row if word not in common]
        labels.append(fit_words(distinguishing_words) or row_label(row))
    return labels


def format_ends(row: Row) -> str:
    """Format the row's interval to follow its estimate. Returns an empty string if there is no interval."""
    if not (finite(row["low"]) and finite(row["high"])):
        return ""
    return f", {drawing.format_number(row['low'])} to {drawing.format_number(row['high'])}"


def describe_row(row: Row) -> str:
    """Describe the row as text for screen readers."""
    words = f"{row['metric']} ({row_label(row)}): {drawing.format_number(row['estimate'])}{format_ends(row)}"
    if finite(row["null"]):
        words += f", null {drawing.format_number(row['null'])}"
    if finite(row["published"]):
        words += f", published {drawing.format_number(row['published'])}"
    return f"{words}, n {row['n']}."
