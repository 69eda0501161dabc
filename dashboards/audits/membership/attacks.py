"""How attacks tell members from others: at every false-positive rate, by their scores, and with fewer references."""

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

# The attacks that are drawn, each with its look; the tables have them all.
LOOKS: Mapping[str, legend.Series] = dict(
    zip(
        ("BaVarIA-t", "LiRA online", "LiRA online, fixed variance", "RMIA", "calibrated loss", "loss"),
        drawing.SERIES,
        strict=False,
    )
)
PANEL = 2.6  # inches
SCORES = ("loss", "BaVarIA-t")  # without references and with them
WIDE_SIDES = {True: ("members", "canary"), False: ("other records", "twin")}
INTERVALS = "Shade: 95 % t intervals over {n} targets, widened since these share records and references."


def _over_targets(table: pa.Table, across: str, up: str) -> dict[str, Curve]:
    """Of each attack that is drawn the mean of a column over targets, by the values of another one."""
    rows_of = groups(table, "attack")
    curves = {}
    for name in LOOKS:
        if (name,) not in rows_of:
            continue
        places, values = numbers(rows_of[name,], across), numbers(rows_of[name,], up)
        at = np.unique(places)
        means = [mean_over_targets(values[places == place]) for place in at]
        columns = ([getattr(mean, end) for mean in means] for end in ("value", "low", "high"))
        curves[name] = Curve(at, *(np.array(each, np.float64) for each in columns), n=means[0].n)
    return curves


def positive(shown: Curve, least: float) -> Curve:
    """The curve where it can be drawn on a logarithmic axis, whose lower end its intervals do not leave."""
    there = shown.value >= least
    low = np.maximum(shown.low, least)
    return Curve(shown.places[there], shown.value[there], low[there], shown.high[there], n=shown.n)


@with_columns(ROC.names, filled="attack")
def roc(table: pa.Table) -> Figure | None:
    """The true-positive rate over the nominal false-positive rate, both logarithmic, with the diagonal."""
    curves = _over_targets(table, "nominal", "tpr")
    if not curves:
        return None
    least = min(float(shown.places[0]) for shown in curves.values())
    shown = {name: positive(each, least / 3) for name, each in curves.items()}
    box = layout.wide_box(0.55, PANEL)
    layers = [curve(each, LOOKS[name], marked=0) for name, each in shown.items()]
    ends = (least, 1.0)
    panel = Panel(
        box,
        [line(ends, ends, "muted", linewidth=1.2, linestyle=(0, (4, 3))), *layers],
        x=Axis("false-positive rate, nominal", log=ends),
        y=Axis("true-positive rate", (least / 3, 1.3), log=ends),
        finish=[lambda axes: drawing.set_log_y_axis(axes, wide=True)],
    )
    n = max(each.n for each in curves.values())
    entries = [legend.series_entry(name, LOOKS[name], marker="") for name in shown]
    return Chart(
        "roc",
        "How many members does an attack find, at how few false alarms?",
        "Mean over targets of the share of members above a threshold that was set on the other models: above it lie so "
        f"many of the records that these were not trained on. {INTERVALS.format(n=n)} Dashed: an attack that tells "
        "nothing.",
        " ".join(
            f"{name}: {each.describe(nearest(each, 0.001))} at {_format_rate(each, 0.001)}, "
            f"{each.describe(nearest(each, 0.01))} at {_format_rate(each, 0.01)}."
            for name, each in curves.items()
        ),
        PANEL + 0.7 + legend.height(len(entries), 1 if len(entries) < 3 else 2),
        [panel],
        entries,
    ).figure()


def nearest(shown: Curve, rate: float) -> int:
    return int(np.abs(np.log(shown.places / rate)).argmin())


def _format_rate(shown: Curve, rate: float) -> str:
    return f"{100 * float(shown.places[nearest(shown, rate)]):.2g} %"


@with_columns(HISTOGRAMS.names, filled="attack")
def histograms(table: pa.Table) -> Figure | None:
    """The scores of an attack without references and of one with them, by membership."""
    attack, member = texts(table, "attack"), integers(table, "member") == 1
    low, high, count = numbers(table, "low"), numbers(table, "high"), numbers(table, "count")
    names = [name for name in SCORES if (attack == name).any()]
    if not names:
        return None
    facets, words, n = [], [], 0
    for name in names:
        layers, centres = [], []
        for inside, (side, colour) in WIDE_SIDES.items():
            rows = np.flatnonzero((attack == name) & (member == inside))
            edges = np.append(low[rows], high[rows][-1])
            layers.append(histogram(count[rows] / count[rows].sum(), edges, colour))
            centres.append(f"{side} {drawing.format_number(median(count[rows], edges))}")
            n = int(count[rows].sum())
        facets.append(Facet(layers, name, Axis("share", most=4), Axis("score, nats")))
        words.append(f"{name}: medians, {', '.join(centres)}.")
    return Chart(
        "scores",
        "How far apart are the scores of members and of other records?",
        f"Scores of all records on all targets, {n:,} of either kind: the log-odds of the label by themselves (loss), "
        "and the log ratio of what models with the record and without it would say. The outermost bins hold what lies "
        "beyond them. Where nothing is told, both histograms are the same.",
        " ".join(words),
        1.75 * len(names) + 0.2 + legend.ROW,
        facet_panels(facets, 1.75, gap=0.62),
        [legend.area(side, color=drawing.light(colour)) for side, colour in WIDE_SIDES.values()],
    ).figure()


def median(counts: Array, edges: Array) -> float:
    """The middle of the bin that holds the median."""
    at = int(np.searchsorted(np.cumsum(counts), counts.sum() / 2))
    return float((edges[at] + edges[at + 1]) / 2)


@with_columns(REFERENCES.names, filled="attack")
def references(table: pa.Table) -> Figure | None:
    """The true-positive rate and the area under the curve over the number of references."""
    curves = {up: _over_targets(table, "references", up) for up in ("tpr", "auc")}
    if not curves["tpr"]:
        return None
    numbers_of = sorted({float(place) for each in curves["tpr"].values() for place in each.places})
    ticks = (numbers_of, [f"{number:g}" for number in numbers_of])
    facets = []
    for up, title in (("tpr", f"true-positive rate at {100 * AT:g} %"), ("auc", "area under the curve")):
        layers = [curve(each, LOOKS[name]) for name, each in curves[up].items()]
        finish = [lambda axes: axes.set_xscale("log", base=2), lambda axes: axes.set_xticks(*ticks)]
        facets.append(Facet(layers, title, finish=finish))
    n = max(each.n for each in curves["tpr"].values())
    entries = [legend.series_entry(name, LOOKS[name]) for name in curves["tpr"]]
    return Chart(
        "references",
        "How many reference models does an attack need?",
        f"Means over targets by the number of references, half of which were trained on the record. "
        f"{INTERVALS.format(n=n)} The loss needs none. Variances of single records, which LiRA online takes, are noise "
        f"with few. Where nothing is told, the rate is {100 * AT:g} % and the area .5.",
        " ".join(
            f"{name}: true-positive rate {each.describe(0)} with {each.places[0]:g} references, {each.describe()} with "
            f"{each.places[-1]:g}; area under the curve {curves['auc'][name].describe(0)} and "
            f"{curves['auc'][name].describe()}."
            for name, each in curves["tpr"].items()
        ),
        3.95 + legend.height(len(entries), 2) + 0.1 * math.ceil(len(entries) > 4),
        facet_panels(facets, 1.9, Axis("references, models", ticks=ticks), gap=0.42, foot=0.55),
        entries,
    ).figure()
