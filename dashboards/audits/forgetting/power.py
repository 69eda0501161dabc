"""The power of the audit: the smallest share of the query set in training that it detects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dashboards import drawing, layout, legend
from dashboards.audits.forgetting import roles
from dashboards.audits.forgetting.targets import span_of
from dashboards.columns import integers, numbers, texts
from dashboards.figure import Figure
from tasks.audits.forgetting.kolmogorov_smirnov import Score
from tasks.audits.forgetting.measures.power import smallest_detected

Array = NDArray[np.float64]
NUMBERS = ("share", "power", "power_low", "power_high", "rho", "low", "high")
NEEDED = {*NUMBERS, "models", "detected", "score", "decision"}
PANEL = 1.95  # inches
BESIDE = 0.015  # of the axis: from the curve of one score to that of the other
APART = 0.6  # decades from the smallest share to where none is, at least
NEAR = 0.11  # of the axis: ticks that are closer have no words of their own


@dataclass(frozen=True)
class Power:
    """Detection rates and rho by the share of D_Q that models were trained on, ascending."""

    share: Array
    models: NDArray[np.int64]
    detected: NDArray[np.int64]
    power: Array
    power_low: Array
    power_high: Array
    rho: Array
    low: Array
    high: Array
    decision: NDArray[np.str_]  # on all models of the share together

    @property
    def has_rho(self) -> bool:
        """Whether any share has a rho."""
        return bool((~np.isnan(self.rho)).any())

    @property
    def smallest(self) -> float | None:
        """The smallest share detected, as the summary has it."""
        decisions: Any = dict(zip(self.share.tolist(), self.decision.tolist(), strict=True))
        return smallest_detected(decisions)

    def in_words(self) -> str:
        """The smallest share detected, in words."""
        if self.smallest is None:
            return "no share that was tried is detected by all of its models together"
        return f"from {percent(self.smallest)} of D_Q on each share is detected by all of its models together"


def read(table: pa.Table, score: Score = "one-sided") -> Power | None:
    """The rows of this score that have a share and a power; None without any."""
    if not set(table.column_names) >= NEEDED:
        return None
    of_score = texts(table, "score") == score
    share, rate = numbers(table, "share"), numbers(table, "power")
    there = np.flatnonzero(of_score & ~np.isnan(share) & ~np.isnan(rate))
    if not len(there):
        return None
    order = there[np.argsort(share[there], kind="stable")]
    models, detected = (integers(table, name)[order] for name in ("models", "detected"))
    columns = {name: numbers(table, name)[order] for name in NUMBERS}
    return Power(models=models, detected=detected, decision=texts(table, "decision")[order], **columns)


Curves = Sequence[tuple[Power, legend.Series]]


def power(table: pa.Table, margin: float | None) -> Figure | None:
    """The share of models detected over the share of D_Q, false alarms apart, and rho below; of both scores."""
    one_sided, two_sided = read(table), read(table, "published")
    if one_sided is None:
        return None
    words = f"{capital(one_sided.in_words())}."
    words += "" if two_sided is None else f" Two-sided, {two_sided.in_words()}."
    alt = " ".join(points(one_sided))
    alt += "" if two_sided is None else f" Two-sided: {' '.join(points(two_sided))}"
    caption = about(one_sided, two_sided, margin, words)
    title = "How little of the query set does the audit find?"
    return Figure("power", title, caption, f"{words} {alt}", drawn(one_sided, two_sided, margin))


def drawn(one_sided: Power, two_sided: Power | None, margin: float | None) -> str:
    """The curves as SVG: models detected above, rho below."""
    # What the answer rests on comes last, over the other.
    curves = [(one_sided, drawing.SERIES[0])] if two_sided is None else [
        (two_sided, drawing.SERIES[1]), (one_sided, drawing.SERIES[0])
    ]  # fmt: skip
    places = across([curve for curve, _ in curves])
    beside = BESIDE * (max(places.values()) - min(places.values()) or 1.0)
    offsets = [0.0] if two_sided is None else [beside / 2, -beside / 2]
    handles = entries([curve for curve, _ in curves])
    titles = ("models detected, share", "rho of all models together")[: 1 + one_sided.has_rho]
    figure = drawing.canvas(PANEL * len(titles) + 0.32 + legend.height(len(handles)))
    panels = layout.stacked(figure, len(titles), PANEL, foot=0.55)
    for axes, title in zip(panels, titles, strict=True):
        axes.set_title(title, fontsize=drawing.TEXT)
        if axes is panels[0]:
            for (points, look), offset in zip(curves, offsets, strict=True):
                curve(axes, points, places, *look, offset=offset)
            axes.set_ylim(-0.03, 1.05)
        else:
            of_rho(axes, curves, places, margin, offsets)
        drawing.ticks(axes, up=4)
        ticked(axes, places, axes is panels[-1])
    panels[-1].set_xlabel("share of D_Q trained on, beside all of D_C")
    legend.above(figure, handles)
    return drawing.svg(figure, "power")


def about(one_sided: Power, two_sided: Power | None, margin: float | None, words: str) -> str:
    """The caption, with the smallest shares detected in words."""
    caption = (
        "Above: of models that were trained on so much of D_Q beside all of D_C, the share that the audit calls not "
        "forgotten, each model audited alone, with 95 % Wilson intervals; hollow, none of D_Q: false alarms. "
    )
    if two_sided is not None:
        caption += "The answer rests on the one-sided distance; dashed: with the published, two-sided one. "
    if one_sided.has_rho:
        caption += (
            "Below: rho of all of them together, with its 95 % bootstrap interval over images and models. Dashed: 1"
        )
        caption += ". " if margin is None else f"; line: {1 - margin:g}, below which they are called not forgotten. "
    caption += f"{words} The axis is logarithmic, with none apart. "
    return f"{caption}n: {span_of(one_sided.models.tolist())} models of each share."


def entries(curves: Sequence[Power]) -> list[Any]:
    """The legend's entries: the scores, the main one first, and false alarms."""
    labels = ("one-sided, 95 % interval", "two-sided, as published")[: len(curves)]
    handles = legend.series(labels, linewidth=1.5, markersize=5.5)
    if any((curve.share == 0).any() for curve in curves):
        hollow = {"markerfacecolor": drawing.light("paper"), "marker": "o", "markersize": 5.5}
        handles.append(legend.line("none of D_Q: false alarms", color=drawing.light("accent"), linewidth=0, **hollow))
    return handles


def capital(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}"


def points(power: Power) -> Iterator[str]:
    """Each share in words."""
    for at, share in enumerate(power.share.tolist()):
        what = "False alarms without D_Q" if share == 0 else f"With {percent(share)}"
        words = f"{what}: {power.detected[at]} of {power.models[at]}"
        words += interval(power.power_low[at], power.power_high[at])
        if not np.isnan(power.rho[at]):
            words += f", rho {drawing.number(float(power.rho[at]))}{interval(power.low[at], power.high[at])}"
        yield f"{words}."


def interval(low: float, high: float) -> str:
    """An interval in words; empty where it has no ends."""
    return "" if np.isnan(low) or np.isnan(high) else drawing.interval(float(low), float(high))


def percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def across(curves: Sequence[Power]) -> dict[float, float]:
    """The position of each share on the axis: its logarithm; a share of 0 is set apart on the left."""
    shares = sorted({share for curve in curves for share in curve.share.tolist() if share > 0})
    places = {share: float(np.log10(share)) for share in shares}
    if any((curve.share == 0).any() for curve in curves):
        first = min(places.values(), default=0.0)
        last = max(places.values(), default=0.0)
        places = {0.0: first - max(APART, 0.22 * (last - first)), **places}
    return places


def curve(
    axes: Any, power: Power, places: dict[float, float], colour: str, marker: str, dash: Any, offset: float = 0.0
) -> None:
    """The power with its intervals, joined over shares; false alarms stand alone and hollow."""
    x = np.array([places[share] for share in power.share.tolist()]) + offset
    bars(axes, x, power.power_low, power.power_high, colour)
    marked(axes, power, x, power.power, colour, marker, dash)


def bars(axes: Any, x: Array, low: Array, high: Array, colour: str) -> None:
    whole = ~np.isnan(low) & ~np.isnan(high)
    path = drawing.broken(x[whole], low[whole], high[whole])
    axes.plot(*path, color=drawing.light(colour), linewidth=1.8, solid_capstyle="butt")


def marked(axes: Any, power: Power, x: Array, values: Array, colour: str, marker: str, dash: Any) -> None:
    """Values with a mark at each share, joined where there is some of D_Q, hollow where there is none."""
    some = power.share > 0
    look = {"color": drawing.light(colour), "marker": marker, "markersize": 5.5}
    axes.plot(x[some], values[some], linestyle=dash, linewidth=1.3, **look)
    axes.plot(x[~some], values[~some], linestyle="none", markerfacecolor=drawing.light("paper"), zorder=3, **look)


def of_rho(
    axes: Any, curves: Curves, places: dict[float, float], margin: float | None, offsets: Sequence[float]
) -> None:
    """rho of all models of a share together, over the lines at 1 and at the bound of the decision."""
    axes.axhline(1, **drawing.NULL)
    if margin is not None:
        axes.axhline(1 - margin, **roles.BOUND)
    for (power, (colour, marker, dash)), offset in zip(curves, offsets, strict=True):
        x = np.array([places[share] for share in power.share.tolist()]) + offset
        bars(axes, x, power.low, power.high, colour)
        marked(axes, power, x, power.rho, colour, marker, dash)
    values = np.concatenate([part for power, _ in curves for part in (power.rho, power.low, power.high)])
    axes.set_ylim(*drawing.span([0.0, 1.0, *values[~np.isnan(values)].tolist()], 0.05))


def ticked(axes: Any, places: dict[float, float], worded: bool) -> None:
    """Set labelled ticks at the shares, as many as fit, and a line between 0 and the others."""
    low, high = drawing.span(list(places.values()), 0.05)
    if low == high or len(places) == 1:
        low, high = low - 0.5, high + 0.5
    axes.set_xlim(low, high)
    if 0.0 in places and len(places) > 1:
        some = min(place for share, place in places.items() if share > 0)
        axes.axvline((places[0.0] + some) / 2, color=drawing.light("grid"), linewidth=3, zorder=0)
    kept: list[float] = []
    for share in sorted(places, reverse=True):
        if all(abs(places[share] - places[other]) >= NEAR * (high - low) for other in kept) or share == 0:
            kept.append(share)
    axes.set_xticks([places[share] for share in kept], [percent(share) if share else "none" for share in kept])
    axes.set_xticks([place for share, place in places.items() if share not in kept], minor=True)
    axes.tick_params(labelbottom=worded)
    axes.grid(axis="x", visible=False)
