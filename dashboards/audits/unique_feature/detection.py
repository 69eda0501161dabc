"""Detection rates of the estimators against their false-positive rates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dashboards import drawing, layout, legend
from dashboards.audits.unique_feature.pairs import DOTTED, Array
from dashboards.chart import Axis, Chart, Figure, Layer, Panel, area, estimate_marks, level, line, marks, upright
from dashboards.columns import groups, integers, numbers, texts, with_columns
from dashboards.summary import find_rows, finite, format_range, shorten

LEVEL = 0.05  # false-positive rate at which estimators are compared
ZOOM = 0.2
LETTERS = 34  # letters of an estimator's name in the legend
# Each estimator keeps its colour, marker and dash in every figure.
ESTIMATORS = (
    "paired family rank",
    "M_w",
    "label-directed rank",
    "rank of KL",
    "M",
    "published t-test",
    "label-directed rank, label unknown",
    "random against random",
)
ROC_COLUMNS = ("false_positive_rate", "detection_rate", "low", "high")
BY_MODELS = "detection rate by number of models"  # metric of the summary rows
Row = Mapping[str, Any]


@dataclass(frozen=True)
class RocCurve:
    """Detection rate of an estimator by ascending false-positive rate, with 95 % Wilson intervals."""

    estimator: str
    false: Array
    detected: Array
    low: Array
    high: Array
    n: int

    def index_at(self, level: float) -> int:
        """Return the index of the last curve point whose false-positive rate is at most `level`."""
        return max(0, int(np.searchsorted(self.false, level + 1e-9, side="right")) - 1)

    def describe(self) -> str:
        """Describe the detection rate and interval at LEVEL."""
        index = self.index_at(LEVEL)
        return (
            f"{drawing.format_number(self.detected[index])}{drawing.format_interval(self.low[index], self.high[index])}"
        )


def detection(table: pa.Table, calls_table: pa.Table) -> Figure | None:
    """Draw the detection rate against the false-positive rate, both in full and near 0.

    The estimator that detects most at 5 % comes first.
    """
    curves_found = roc_curves(table)
    if not curves_found:
        return None
    drawn_curves = curves_found[: len(drawing.SERIES)]
    operating = operating_points(calls_table)
    more = ""
    if len(curves_found) > len(drawn_curves):
        more = f" {len(curves_found) - len(drawn_curves)} estimators that detect less are not drawn."
    marks = (
        "Mark: rates at p ≤ 0.05 of the estimator's own test; to the right of the vertical line, it calls too many "
        "control models. "
    )
    paired = ""
    if any(curve.estimator == "paired family rank" for curve in curves_found):
        paired = (
            "False positives of the paired family rank are calls of the same pair for a feature that its canary did "
            "not carry. "
        )
    caption = (
        "Share of canary models that an estimator calls, over the share of control models, which never saw the "
        f"feature, that it calls at the same threshold. Dotted: chance; vertical line: {LEVEL:.0%} false positives. "
        "The summary's rates at 5 % take each threshold from the control models of other canaries. "
        f"{marks if operating else ''}{paired}Shade on the right: 95 % "
        f"Wilson intervals. n: {format_range([curve.n for curve in curves_found])} trainings "
        f"of each kind. The legend is ordered by the detection rate at {LEVEL:.0%}.{more}"
    )
    rates = ", ".join(f"{curve.estimator} {curve.describe()}" for curve in curves_found)
    alt = f"Detected at {LEVEL:.0%} false positives: {rates}." + "".join(
        f" {curve.estimator} at p ≤ 0.05: {operating[curve.estimator][1]:.0%} of canary models and "
        f"{operating[curve.estimator][0]:.0%} of control models."
        for curve in curves_found
        if curve.estimator in operating
    )
    title = "Which estimator finds the models that saw the feature, and with how many false alarms?"
    return _detection_chart(drawn_curves, operating, title, caption, alt).figure()


def _detection_chart(
    drawn_curves: Sequence[RocCurve], operating: Mapping[str, tuple[float, float]], title: str, caption: str, alt: str
) -> Chart:
    """Return a chart with the full curves on the left, their beginning on the right, and the legend below."""
    looks = estimator_looks([curve.estimator for curve in drawn_curves])
    side = 1.88
    foot = legend.LISTED * (len(drawn_curves) + 1) + 0.12
    height = side + foot + 0.85
    panels = []
    for x_start, x_limit in ((0.68, 1.0), (3.14, ZOOM)):
        layers = [
            line([0, 1], [0, 1], "muted", linewidth=1.2, linestyle=(0, (1, 2))),
            upright(LEVEL, {"color": drawing.light("muted"), "linewidth": 0.9}),
        ]
        for curve in reversed(drawn_curves):
            layers += _roc_layers(curve, looks[curve.estimator], operating.get(curve.estimator), x_limit)
        panel = Panel(
            (x_start, foot + 0.55, side, side),
            layers,
            Axis(limits=(0, x_limit)),
            Axis("detection rate" if x_limit == 1.0 else "", (0, 1.02)),
            "all" if x_limit == 1.0 else f"up to {ZOOM:.0%}",
        )
        panels.append(panel)
    middle = ((0.68 + side + 0.29) / drawing.WIDTH, (foot + 0.1) / height)
    entries = [(shorten(curve.estimator, LETTERS), looks[curve.estimator], curve.describe()) for curve in drawn_curves]
    return Chart(
        "detection", title, caption, alt, height, panels,
        listing=(foot, entries, f"detected at {LEVEL:.0%}"),
        notes=[(*middle, "false positive rate", {"ha": "center"})],
    )  # fmt: skip


def _roc_layers(
    curve: RocCurve, series: legend.Series, operating_point: tuple[float, float] | None, x_limit: float
) -> Iterator[Layer]:
    """Draw a step curve, with shaded intervals near 0 and a mark where its own p-value is 5 %."""
    colour, marker, dash = series
    if x_limit == ZOOM:
        yield area(curve.false, curve.low, curve.high, colour, step="post", alpha=0.1)
    yield line(curve.false, curve.detected, colour, drawstyle="steps-post", linewidth=1.5, linestyle=dash)
    if operating_point is not None and operating_point[0] <= x_limit:
        yield marks([operating_point[0]], [operating_point[1]], colour, marker, 6, clip_on=False, zorder=3)


@with_columns(("estimator", "n", *ROC_COLUMNS), list)
def roc_curves(table: pa.Table) -> list[RocCurve]:
    """Return the curves of all estimators. The one that detects most at LEVEL comes first."""
    curves = []
    for (name,), rows in groups(table, "estimator").items():
        columns = [numbers(rows, column) for column in ROC_COLUMNS]
        is_complete = ~np.isnan(columns).any(axis=0)
        if is_complete.any():
            order = np.lexsort((columns[1][is_complete], columns[0][is_complete]))
            false, detected, low, high = (column[is_complete][order] for column in columns)
            curves.append(RocCurve(name, false, detected, low, high, int(integers(rows, "n")[is_complete].max())))
    return sorted(curves, key=lambda curve: -float(curve.detected[curve.index_at(LEVEL)]))


@with_columns(("estimator", "model", "called"), dict)
def operating_points(table: pa.Table) -> dict[str, tuple[float, float]]:
    """Return the shares of control and canary models that each estimator's own p-value calls at 5 %."""
    shares = {}
    for (name,), rows in groups(table, "estimator").items():
        model = texts(rows, "model")
        is_called = integers(rows, "called")
        twins = is_called[model == "twin"]
        canaries = is_called[model == "canary"]
        if len(twins) and len(canaries):
            shares[name] = (float(twins.mean()), float(canaries.mean()))
    return shares


def estimator_looks(names: Sequence[str]) -> Mapping[str, legend.Series]:
    """Return each estimator's style. The audit's own estimators have fixed styles; others get an unused one."""
    fixed_looks = dict(zip(ESTIMATORS, drawing.SERIES, strict=True))
    unused_looks = [look for name, look in fixed_looks.items() if name not in names]
    looks = {}
    for name in names:
        if name in fixed_looks:
            looks[name] = fixed_looks[name]
        else:
            looks[name] = unused_looks.pop(0)
    return looks


def rates_by_models(summary: Sequence[Row]) -> Figure | None:
    """Draw the detection rate against the number of models evaluated together, with one line per estimator."""
    of_estimator = list(_estimator_rows(summary))
    if not of_estimator:
        return None
    lines = sorted(of_estimator, key=lambda line: -line[1][-1]["estimate"])[: len(drawing.SERIES)]
    caption = (
        f"Detection rate of each estimator by the number of models evaluated together, at {LEVEL:.0%} false positives "
        "(dotted: rate without memory). Lines: 95 % intervals, hidden if narrower than the mark. The horizontal axis "
        "is not to scale."
    )
    descriptions = []
    for name, rows in lines:
        words = ", ".join(f"{drawing.format_number(row['estimate'])} with {row['models']:g}" for row in rows)
        descriptions.append(f"{name}: {words}.")
    alt = " ".join(descriptions)
    foot = legend.LISTED * len(lines) + 0.12
    places = sorted({row["models"] for _, rows in lines for row in rows})
    looks = estimator_looks([name for name, _ in lines])
    layers: list[Layer] = [level(LEVEL, DOTTED)]
    for index, (name, rows) in enumerate(lines):
        colour, marker, dash = looks[name]
        x = np.array([places.index(row["models"]) for row in rows]) + (index - (len(lines) - 1) / 2) * 0.07
        look = {"marker": marker, "markersize": 5.5, "linestyle": dash, "linewidth": 1.2}
        layers.append(estimate_marks(x, rows, colour, 1.6, **look))
    ticks = (range(len(places)), [f"{model_count:g}" for model_count in places])
    across = Axis("canary models, each with its own seed", (-0.5, len(places) - 0.5), ticks=ticks, has_grid=False)
    return Chart(
        "by-models",
        "How many models are needed to find the feature?",
        caption,
        alt,
        foot + 2.6,
        [Panel(layout.wide_box(foot + 0.55, 1.95), layers, across, Axis("detection rate", (-0.02, 1.04)))],
        listing=(foot, [(name, looks[name], "") for name, _ in lines], ""),
    ).figure()


def _estimator_rows(summary: Sequence[Row]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield each estimator's summary rows, sorted by number of models."""
    lines: dict[str, list[dict[str, Any]]] = {}
    for setting, row in find_rows(summary, BY_MODELS):
        if finite(row["estimate"]) and "estimator" in setting and finite(setting.get("models")):
            lines.setdefault(str(setting["estimator"]), []).append({**row, "models": setting["models"]})
    for name, rows in lines.items():
        yield name, sorted(rows, key=lambda row: row["models"])
