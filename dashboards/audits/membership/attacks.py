"""Figures of attacks: detection by false-positive rate, scores, and detection with fewer references."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from dashboards import drawing, layout, legend
from dashboards.chart import Array, Axis, Chart, Curve, Facet, Figure, Panel, curve, facet_panels, histogram, line
from dashboards.columns import groups, integers, numbers, texts, with_columns
from tasks.audits.membership.measures.attacks import mean_over_targets
from tasks.audits.membership.measures.curves import AT, HISTOGRAMS, REFERENCES, ROC

# Styles of the attacks shown in the figures. The tables contain all attacks.
LOOKS: Mapping[str, legend.Series] = dict(
    zip(
        ("BaVarIA-t", "LiRA online", "LiRA online, fixed variance", "RMIA", "calibrated loss", "loss"),
        drawing.SERIES,
        strict=False,
    )
)
PANEL = 2.6  # inches
SCORES = ("loss", "BaVarIA-t")  # without and with references
WIDE_SIDES = {True: ("members", "canary"), False: ("non-members", "twin")}
INTERVALS = "Shade: 95 % t intervals over {n} targets, widened because targets share records and references."


def _over_targets(table: pa.Table, across: str, up: str) -> dict[str, Curve]:
    """Return the mean over targets of column `up` by the values of `across`, for each attack in the figures."""
    rows_of = groups(table, "attack")
    curves = {}
    for name in LOOKS:
        if (name,) not in rows_of:
            continue
        places = numbers(rows_of[name,], across)
        values = numbers(rows_of[name,], up)
        unique_places = np.unique(places)
        means = []
        for location in unique_places:
            means.append(mean_over_targets(values[places == location]))
        columns = (
            [mean.value for mean in means],
            [mean.low for mean in means],
            [mean.high for mean in means],
        )
        curves[name] = Curve(unique_places, *(np.array(estimates, np.float64) for estimates in columns), n=means[0].n)
    return curves


def positive(full_curve: Curve, lower_end: float) -> Curve:
    """Restrict a curve and its intervals to values of at least `lower_end`, for a logarithmic axis."""
    is_drawn = full_curve.value >= lower_end
    low = np.maximum(full_curve.low, lower_end)
    return Curve(
        full_curve.places[is_drawn],
        full_curve.value[is_drawn],
        low[is_drawn],
        full_curve.high[is_drawn],
        n=full_curve.n,
    )


@with_columns(ROC.names, filled="attack")
def roc(table: pa.Table) -> Figure | None:
    """Draw the true-positive rate against the nominal false-positive rate, both logarithmic, with the diagonal."""
    curves = _over_targets(table, "nominal", "tpr")
    if not curves:
        return None
    lower_end = min(float(full_curve.places[0]) for full_curve in curves.values())
    drawable = {}
    for name, full_curve in curves.items():
        drawable[name] = positive(full_curve, lower_end / 3)
    box = layout.wide_box(0.55, PANEL)
    layers = []
    for name, full_curve in drawable.items():
        layers.append(curve(full_curve, LOOKS[name], marked=0))
    ends = (lower_end, 1.0)
    panel = Panel(
        box,
        [line(ends, ends, "muted", linewidth=1.2, linestyle=(0, (4, 3))), *layers],
        x=Axis("false-positive rate, nominal", log=ends),
        y=Axis("true-positive rate", (lower_end / 3, 1.3), log=ends),
        finish=[lambda axes: drawing.set_log_y_axis(axes, wide=True)],
    )
    n = max(full_curve.n for full_curve in curves.values())
    entries = [legend.series_entry(name, LOOKS[name], marker="") for name in drawable]
    return Chart(
        "roc",
        "How many members does an attack find at a low false-positive rate?",
        "Mean over targets of the share of members above a threshold. The threshold has the nominal false-positive "
        f"rate on the other models. {INTERVALS.format(n=n)} Dashed: an attack without information.",
        " ".join(
            f"{name}: {full_curve.describe(nearest(full_curve, 0.001))} at {_format_rate(full_curve, 0.001)}, "
            f"{full_curve.describe(nearest(full_curve, 0.01))} at {_format_rate(full_curve, 0.01)}."
            for name, full_curve in curves.items()
        ),
        PANEL + 0.7 + legend.height(len(entries), 1 if len(entries) < 3 else 2),
        [panel],
        entries,
    ).figure()


def nearest(full_curve: Curve, rate: float) -> int:
    return int(np.abs(np.log(full_curve.places / rate)).argmin())


def _format_rate(full_curve: Curve, rate: float) -> str:
    return f"{100 * float(full_curve.places[nearest(full_curve, rate)]):.2g} %"


@with_columns(HISTOGRAMS.names, filled="attack")
def histograms(table: pa.Table) -> Figure | None:
    """Draw the scores by membership, for one attack without references and one with references."""
    attack = texts(table, "attack")
    member = integers(table, "member") == 1
    low = numbers(table, "low")
    high = numbers(table, "high")
    count = numbers(table, "count")
    names = [name for name in SCORES if (attack == name).any()]
    if not names:
        return None
    facets = []
    words = []
    n = 0
    for name in names:
        layers = []
        centres = []
        for inside, (side, colour) in WIDE_SIDES.items():
            rows = np.flatnonzero((attack == name) & (member == inside))
            edges = np.append(low[rows], high[rows][-1])
            layers.append(histogram(count[rows] / count[rows].sum(), edges, colour))
            centres.append(f"{side} {drawing.format_number(median(count[rows], edges))}")
            n = int(count[rows].sum())
        facets.append(Facet(layers, name, Axis("share", max_ticks=4), Axis("score, nats")))
        words.append(f"{name}: medians, {', '.join(centres)}.")
    return Chart(
        "scores",
        "How different are the scores of members and non-members?",
        f"Scores of all records on all targets, {n:,} of either kind: the log-odds of the label (loss), and the log "
        "ratio of their densities under models with and without the record. The outer bins include more extreme "
        "scores. If nothing is memorised, both histograms are equal.",
        " ".join(words),
        1.75 * len(names) + 0.2 + legend.ROW,
        facet_panels(facets, 1.75, gap=0.62),
        [legend.area(side, color=drawing.light(colour)) for side, colour in WIDE_SIDES.values()],
    ).figure()


def median(counts: Array, edges: Array) -> float:
    """Return the middle of the bin that contains the median."""
    bin_index = int(np.searchsorted(np.cumsum(counts), counts.sum() / 2))
    return float((edges[bin_index] + edges[bin_index + 1]) / 2)


@with_columns(REFERENCES.names, filled="attack")
def references(table: pa.Table) -> Figure | None:
    """Draw the true-positive rate and the area under the curve against the number of references."""
    curves = {up: _over_targets(table, "references", up) for up in ("tpr", "auc")}
    if not curves["tpr"]:
        return None
    numbers_of = sorted({float(location) for full_curve in curves["tpr"].values() for location in full_curve.places})
    ticks = (numbers_of, [f"{number:g}" for number in numbers_of])
    facets = []
    for up, title in (("tpr", f"true-positive rate at {100 * AT:g} %"), ("auc", "area under the curve")):
        layers = []
        for name, full_curve in curves[up].items():
            layers.append(curve(full_curve, LOOKS[name]))
        finish = [lambda axes: axes.set_xscale("log", base=2), lambda axes: axes.set_xticks(*ticks)]
        facets.append(Facet(layers, title, finish=finish))
    n = max(full_curve.n for full_curve in curves["tpr"].values())
    entries = [legend.series_entry(name, LOOKS[name]) for name in curves["tpr"]]
    return Chart(
        "references",
        "How many reference models does an attack need?",
        f"Means over targets by the number of references, half of which were trained on the record. "
        f"{INTERVALS.format(n=n)} The loss needs no references. LiRA online estimates a variance per record, which is "
        f"noisy with few references. If nothing is memorised, the rate is {100 * AT:g} % and the area 0.5.",
        " ".join(
            f"{name}: true-positive rate {full_curve.describe(0)} with {full_curve.places[0]:g} references, "
            f"{full_curve.describe()} with {full_curve.places[-1]:g}; area under the curve "
            f"{curves['auc'][name].describe(0)} and {curves['auc'][name].describe()}."
            for name, full_curve in curves["tpr"].items()
        ),
        3.95 + legend.height(len(entries), 2) + 0.1 * math.ceil(len(entries) > 4),
        facet_panels(facets, 1.9, Axis("references, models", ticks=ticks), gap=0.42, foot=0.55),
        entries,
    ).figure()
