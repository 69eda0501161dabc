"""Which estimator tells models that saw the feature from models that did not, at which price in false alarms."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dashboards import drawing
from dashboards.audits.unique_feature.pairs import Array
from dashboards.columns import integers, numbers, texts
from dashboards.estimates import finite
from dashboards.figure import Figure

LEVEL = 0.05  # of false positives, at which estimators are compared
ZOOM = 0.2
LETTERS = 34  # of an estimator's name in the legend
# Each has its colour, mark and dash in every figure.
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
BY_MODELS = "detection rate by number of models"  # rows of the summary
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Curve:
    """The detection rate of an estimator over its false positive rate, rising, with its 95 % Wilson interval."""

    estimator: str
    false: Array
    detected: Array
    low: Array
    high: Array
    n: int

    def at(self, level: float) -> int:
        """Where the curve is at so many false positives at most."""
        return max(0, int(np.searchsorted(self.false, level + 1e-9, side="right")) - 1)

    def said(self) -> str:
        """The detection rate at LEVEL, with its interval."""
        at = self.at(LEVEL)
        return f"{drawing.number(self.detected[at])}{drawing.interval(self.low[at], self.high[at])}"


def detection(table: pa.Table, called: pa.Table) -> Figure | None:
    """Detection rate against false positive rate, whole and near 0, the estimator that detects most at 5 % first."""
    found = curves(table)
    if not found:
        return None
    shown = found[: len(drawing.SERIES)]
    looks = series([each.estimator for each in shown])
    side, foot = 1.88, 0.25 * (len(shown) + 1) + 0.12
    figure = drawing.canvas(side + foot + 0.85)
    operating = operated(called)
    for left, most in ((0.68, 1.0), (3.14, ZOOM)):
        axes = drawing.place(figure, left, foot + 0.55, side, side)
        axes.plot([0, 1], [0, 1], color=drawing.light("muted"), linewidth=1.2, linestyle=(0, (1, 2)))
        axes.axvline(LEVEL, color=drawing.light("muted"), linewidth=0.9)
        for curve in reversed(shown):
            colour, marker, dash = looks[curve.estimator]
            look: dict[str, Any] = {"color": drawing.light(colour)}
            if most == ZOOM:
                axes.fill_between(curve.false, curve.low, curve.high, step="post", alpha=0.1, linewidth=0, **look)
            axes.step(curve.false, curve.detected, where="post", linewidth=1.5, linestyle=dash, **look)
            if curve.estimator in operating and operating[curve.estimator][0] <= most:
                axes.plot(*operating[curve.estimator], marker, markersize=6, clip_on=False, zorder=3, **look)
        axes.set_xlim(0, most)
        axes.set_ylim(0, 1.02)
        drawing.ticks(axes, 5, 5)
        axes.set_title("all" if most == 1.0 else f"up to {ZOOM:.0%}", fontsize=drawing.TEXT)
    figure.axes[0].set_ylabel("detection rate")
    figure.text(
        (0.68 + side + 0.29) / drawing.WIDTH,
        (foot + 0.1) / figure.get_size_inches()[1],
        "false positive rate",
        ha="center",
    )
    key(figure, shown, foot)
    more = f" {len(found) - len(shown)} that detect less are not drawn." if len(found) > len(shown) else ""
    marks = (
        "Mark: where p ≤ 0.05 by the estimator's own test puts it; right of the upright line it calls too many twins. "
    )
    caption = (
        "Share of canary models that an estimator calls, over the share of their twins, which never saw the feature, "
        f"that it then calls too. Dotted: chance; upright: {LEVEL:.0%} false positives. "
        f"{marks if operating else ''}Shade on the right: 95 % Wilson intervals. n: {sizes(found)} trainings of each "
        f"kind. The legend is ordered by the detection rate at {LEVEL:.0%}.{more}"
    )
    alt = (
        f"Detected at {LEVEL:.0%} false positives: "
        + ", ".join(f"{each.estimator} {each.said()}" for each in found)
        + "."
    )
    alt += "".join(
        f" {each.estimator} at p ≤ 0.05: {operating[each.estimator][1]:.0%} of canary models and "
        f"{operating[each.estimator][0]:.0%} of twins."
        for each in found
        if each.estimator in operating
    )
    title = "Which estimator finds the models that saw the feature, at how many false alarms?"
    return Figure("detection", title, caption, alt, drawing.svg(figure, "detection"))


def curves(table: pa.Table) -> list[Curve]:
    """The curves of all estimators, the one that detects most at LEVEL first."""
    names = ("false_positive_rate", "detection_rate", "low", "high")
    if not {"estimator", "n", *names} <= set(table.column_names):
        return []
    estimator, counts = texts(table, "estimator"), integers(table, "n")
    columns = [numbers(table, name) for name in names]
    found = []
    for name in dict.fromkeys(estimator.tolist()):
        chosen = (estimator == name) & ~np.isnan(columns).any(axis=0)
        if chosen.any():
            order = np.lexsort((columns[1][chosen], columns[0][chosen]))
            false, detected, low, high = (column[chosen][order] for column in columns)
            found.append(Curve(str(name), false, detected, low, high, int(counts[chosen].max())))
    return sorted(found, key=lambda each: -float(each.detected[each.at(LEVEL)]))


def operated(table: pa.Table) -> dict[str, tuple[float, float]]:
    """Estimator -> the share of twins and of canary models that its own p-value calls at 5 %."""
    if not {"estimator", "model", "called"} <= set(table.column_names):
        return {}
    estimator, model, called = texts(table, "estimator"), texts(table, "model"), integers(table, "called")
    found = {}
    for name in dict.fromkeys(estimator.tolist()):
        kinds = [called[(estimator == name) & (model == kind)] for kind in ("twin", "canary")]
        if all(len(each) for each in kinds):
            found[str(name)] = (float(kinds[0].mean()), float(kinds[1].mean()))
    return found


def sizes(found: Sequence[Curve]) -> str:
    counts = sorted({each.n for each in found})
    return f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def key(figure: Any, shown: Sequence[Curve], foot: float) -> None:
    """Below the panels, a line for each estimator with its mark, its name and its detection rate at LEVEL."""
    axes = drawing.place(figure, 0, 0, drawing.WIDTH, foot)
    axes.set_axis_off()
    axes.set_xlim(0, drawing.WIDTH)
    axes.set_ylim(0, foot)
    small: dict[str, Any] = {"fontsize": drawing.TEXT - 1, "va": "center"}
    y = foot - 0.2
    axes.text(drawing.WIDTH - 0.1, y, f"detected at {LEVEL:.0%}", ha="right", color=drawing.light("muted"), **small)
    looks = series([each.estimator for each in shown])
    for curve in shown:
        colour, marker, dash = looks[curve.estimator]
        y -= 0.25
        look: dict[str, Any] = {"color": drawing.light(colour)}
        axes.plot([0.1, 0.6], [y, y], linestyle=dash, linewidth=1.5, **look)
        axes.plot([0.35], [y], marker, markersize=6, **look)
        axes.text(0.72, y, shortened(curve.estimator), **small)
        axes.text(drawing.WIDTH - 0.1, y, curve.said(), ha="right", **small)


def series(names: Sequence[str]) -> Mapping[str, tuple[str, str, Any]]:
    """How each estimator is drawn: those that the audit has always alike, others as what is left."""
    own = dict(zip(ESTIMATORS, drawing.SERIES, strict=True))
    left = [each for name, each in own.items() if name not in names]
    return {name: own[name] if name in own else left.pop(0) for name in names}


def shortened(text: str) -> str:
    return text if len(text) <= LETTERS else text[: LETTERS - 1] + "…"


def by_models(summary: Sequence[Row]) -> Figure | None:
    """The detection rate over the number of models that are asked together, a line for each estimator."""
    lines = dict(of_estimators(summary))
    if not lines:
        return None
    ordered = sorted(lines.items(), key=lambda each: -each[1][-1]["estimate"])[: len(drawing.SERIES)]
    foot = 0.25 * len(ordered) + 0.12
    figure = drawing.canvas(foot + 2.6)
    axes = drawing.place(figure, 0.75, foot + 0.55, drawing.WIDTH - 0.95, 1.95)
    places = sorted({row["models"] for _, rows in ordered for row in rows})
    axes.axhline(LEVEL, color=drawing.light("muted"), linewidth=1.2, linestyle=(0, (1, 2)))
    looks = series([name for name, _ in ordered])
    for at, (name, rows) in enumerate(ordered):
        colour, marker, dash = looks[name]
        x = np.array([places.index(row["models"]) for row in rows]) + (at - (len(ordered) - 1) / 2) * 0.07
        look: dict[str, Any] = {"color": drawing.light(colour)}
        axes.plot(
            x, [row["estimate"] for row in rows], marker=marker, markersize=5.5, linestyle=dash, linewidth=1.2, **look
        )
        for place, row in zip(x, rows, strict=True):
            if finite(row["low"]) and finite(row["high"]):
                axes.plot([place] * 2, [row["low"], row["high"]], linewidth=1.6, solid_capstyle="butt", **look)
    axes.set_xlim(-0.5, len(places) - 0.5)
    axes.set_ylim(-0.02, 1.04)
    drawing.ticks(axes)
    axes.set_xticks(range(len(places)), [f"{place:g}" for place in places])
    axes.grid(axis="x", visible=False)
    axes.set_xlabel("models with the canary, each of another seed")
    axes.set_ylabel("detection rate")
    named(figure, [name for name, _ in ordered], foot)
    caption = (
        f"How often an estimator detects the feature when so many models are asked together, at {LEVEL:.0%} false "
        "positives (dotted: what it would be without memory). Lines: 95 % intervals, hidden where narrower than the "
        "mark; marks stand evenly apart."
    )
    alt = " ".join(
        f"{name}: " + ", ".join(f"{drawing.number(row['estimate'])} with {row['models']:g}" for row in rows) + "."
        for name, rows in ordered
    )
    title = "How many models does it take to find the feature?"
    return Figure("by-models", title, caption, alt, drawing.svg(figure, "by-models"))


def of_estimators(summary: Sequence[Row]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Each estimator's rows of the summary, by the number of models."""
    lines: dict[str, list[dict[str, Any]]] = {}
    for row in summary:
        if row["metric"] == BY_MODELS and finite(row["estimate"]):
            setting = json.loads(row["setting"] or "{}")
            if "estimator" in setting and finite(setting.get("models")):
                lines.setdefault(str(setting["estimator"]), []).append({**row, "models": setting["models"]})
    for name, rows in lines.items():
        yield name, sorted(rows, key=lambda row: row["models"])


def named(figure: Any, names: Sequence[str], foot: float) -> None:
    axes = drawing.place(figure, 0, 0, drawing.WIDTH, foot)
    axes.set_axis_off()
    axes.set_xlim(0, drawing.WIDTH)
    axes.set_ylim(0, foot)
    looks = series(names)
    for at, name in enumerate(names):
        colour, marker, dash = looks[name]
        y = foot - 0.1 - 0.25 * at
        axes.plot([0.1, 0.6], [y, y], linestyle=dash, linewidth=1.5, color=drawing.light(colour))
        axes.plot([0.35], [y], marker, markersize=6, color=drawing.light(colour))
        axes.text(0.72, y, name, fontsize=drawing.TEXT - 1, va="center")
