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
from dashboards.audits.forgetting.targets import format_range
from dashboards.columns import integers, numbers
from dashboards.figure import Figure
from tasks.audits.forgetting.measures.power import REQUIRED_POWER, smallest_detected_share

Array = NDArray[np.float64]
NUMBERS = ("share", "power", "power_low", "power_high", "effect", "low", "high")
NEEDED = {*NUMBERS, "models", "detected"}
PANEL = 1.95  # inches
APART = 0.6  # decades from the smallest share to where none is, at least
NEAR = 0.11  # of the axis: ticks that are closer have no words of their own


@dataclass(frozen=True)
class Power:
    """Detection rates and effects by the share of D_Q that models were trained on, ascending."""

    share: Array
    models: NDArray[np.int64]
    detected: NDArray[np.int64]
    power: Array
    power_low: Array
    power_high: Array
    effect: Array
    low: Array
    high: Array

    @property
    def smallest(self) -> float | None:
        """The smallest share found, as the summary has it."""
        return smallest_detected_share(dict(zip(self.share.tolist(), self.power.tolist(), strict=True)))

    def describe(self) -> str:
        """The smallest share found, in words."""
        if self.smallest is None:
            return f"no share that was tried is found in {REQUIRED_POWER:.0%} of its models"
        return f"from {format_percent(self.smallest)} of D_Q on at least {REQUIRED_POWER:.0%} of the models are found"


def read_power(table: pa.Table) -> Power | None:
    """The rows that have a share and a power; None without any."""
    if not set(table.column_names) >= NEEDED:
        return None
    share, rate = numbers(table, "share"), numbers(table, "power")
    there = np.flatnonzero(~np.isnan(share) & ~np.isnan(rate))
    if not len(there):
        return None
    order = there[np.argsort(share[there], kind="stable")]
    models, detected = (integers(table, name)[order] for name in ("models", "detected"))
    columns = {name: numbers(table, name)[order] for name in NUMBERS}
    return Power(models=models, detected=detected, **columns)


def power(table: pa.Table, decisions: pa.Table) -> Figure | None:
    """The share of models detected over the share of D_Q, false alarms apart; below, the effect with the targets'."""
    found = read_power(table)
    if found is None:
        return None
    words = f"{capitalise(found.describe())}."
    alt = " ".join(describe_points(found))
    targets = target_effects(decisions)
    title = "How little of the query set does the audit find?"
    return Figure(
        "power", title, figure_caption(found, words, bool(targets)), f"{words} {alt}", draw_svg(found, targets)
    )


def target_effects(decisions: pa.Table) -> list[float]:
    """The effects of given targets, whose training is not known."""
    if not {"effect", "source"} <= set(decisions.column_names):
        return []
    rows = decisions.to_pylist()
    return [row["effect"] for row in rows if row["source"] != "training" and row["effect"] is not None]


def draw_svg(found: Power, targets: Sequence[float]) -> str:
    """The curves as SVG: models detected above, the effect below."""
    places = share_positions([found])
    handles = legend_entries(found, bool(targets))
    figure = drawing.canvas(PANEL * 2 + 0.32 + legend.height(len(handles)))
    panels = layout.stack_axes(figure, 2, PANEL, foot=0.55)
    for axes, title in zip(panels, ("models detected, share", "effect, standard deviations of chance"), strict=True):
        axes.set_title(title, fontsize=drawing.TEXT)
    draw_power_curve(panels[0], found, places, *drawing.SERIES[0])
    panels[0].set_ylim(-0.03, 1.05)
    draw_effects(panels[1], found, places, targets)
    for axes in panels:
        drawing.set_ticks(axes, up=4)
        set_share_axis(axes, places, axes is panels[-1])
    panels[-1].set_xlabel("share of D_Q trained on, beside all of D_C")
    legend.add_above(figure, handles)
    return drawing.svg(figure, "power")


def figure_caption(found: Power, words: str, has_targets: bool) -> str:
    """The caption, with the smallest share found in words."""
    targets = " Level lines: the models that were given." if has_targets else ""
    return (
        "Above: of models that were trained on so much of D_Q beside all of D_C, the share that is found to be surer "
        "of D_Q than of the control set, each audited alone, with 95 % Wilson intervals; hollow, none of D_Q: false "
        "alarms. Below: by how much they are surer, the mean of the models with its 95 % interval over trainings; 0 is "
        f"what chance gives on average.{targets} {words} The axis is logarithmic, with none apart. n: "
        f"{format_range(found.models.tolist())} models of each share."
    )


def legend_entries(found: Power, has_targets: bool) -> list[Any]:
    """The legend's entries: only what occurs."""
    handles = legend.series(["trained on a known share, 95 % interval"], linewidth=1.5, markersize=5.5)
    if (found.share == 0).any():
        hollow = {"markerfacecolor": drawing.light("paper"), "marker": "o", "markersize": 5.5}
        handles.append(legend.line("none of D_Q: false alarms", color=drawing.light("accent"), linewidth=0, **hollow))
    if has_targets:
        handles.append(legend.line("models that were given", **roles.BOUND))
    return handles


def capitalise(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}"


def describe_points(power: Power) -> Iterator[str]:
    """Each share in words."""
    for at, share in enumerate(power.share.tolist()):
        what = "False alarms without D_Q" if share == 0 else f"With {format_percent(share)}"
        words = f"{what}: {power.detected[at]} of {power.models[at]}"
        words += format_interval(power.power_low[at], power.power_high[at])
        words += (
            f", effect {drawing.format_number(float(power.effect[at]))}{format_interval(power.low[at], power.high[at])}"
        )
        yield f"{words}."


def format_interval(low: float, high: float) -> str:
    """An interval in words; empty where it has no ends."""
    return "" if np.isnan(low) or np.isnan(high) else drawing.format_interval(float(low), float(high))


def format_percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def share_positions(curves: Sequence[Power]) -> dict[float, float]:
    """The position of each share on the axis: its logarithm; a share of 0 is set apart on the left."""
    shares = sorted({share for curve in curves for share in curve.share.tolist() if share > 0})
    places = {share: float(np.log10(share)) for share in shares}
    if any((curve.share == 0).any() for curve in curves):
        first = min(places.values(), default=0.0)
        last = max(places.values(), default=0.0)
        places = {0.0: first - max(APART, 0.22 * (last - first)), **places}
    return places


def draw_power_curve(
    axes: Any, power: Power, places: dict[float, float], colour: str, marker: str, dash: Any, offset: float = 0.0
) -> None:
    """The power with its intervals, joined over shares; false alarms stand alone and hollow."""
    x = np.array([places[share] for share in power.share.tolist()]) + offset
    draw_bars(axes, x, power.power_low, power.power_high, colour)
    draw_marks(axes, power, x, power.power, colour, marker, dash)


def draw_bars(axes: Any, x: Array, low: Array, high: Array, colour: str) -> None:
    whole = ~np.isnan(low) & ~np.isnan(high)
    path = drawing.segment_path(x[whole], low[whole], high[whole])
    axes.plot(*path, color=drawing.light(colour), linewidth=1.8, solid_capstyle="butt")


def draw_marks(axes: Any, power: Power, x: Array, values: Array, colour: str, marker: str, dash: Any) -> None:
    """Values with a mark at each share, joined where there is some of D_Q, hollow where there is none."""
    some = power.share > 0
    look = {"color": drawing.light(colour), "marker": marker, "markersize": 5.5}
    axes.plot(x[some], values[some], linestyle=dash, linewidth=1.3, **look)
    axes.plot(x[~some], values[~some], linestyle="none", markerfacecolor=drawing.light("paper"), zorder=3, **look)


def draw_effects(axes: Any, found: Power, places: dict[float, float], targets: Sequence[float]) -> None:
    """The mean effect of the models of each share, over the line at 0, with those of given targets as level lines."""
    axes.axhline(0, **drawing.NULL)
    for effect in targets:
        axes.axhline(effect, **roles.BOUND)
    x = np.array([places[share] for share in found.share.tolist()])
    colour, marker, dash = drawing.SERIES[0]
    draw_bars(axes, x, found.low, found.high, colour)
    draw_marks(axes, found, x, found.effect, colour, marker, dash)
    values = np.concatenate([found.effect, found.low, found.high, np.array(targets, np.float64)])
    axes.set_ylim(*drawing.padded_limits([0.0, *values[~np.isnan(values)].tolist()], 0.05))


def set_share_axis(axes: Any, places: dict[float, float], worded: bool) -> None:
    """Set labelled ticks at the shares, as many as fit, and a line between 0 and the others."""
    low, high = drawing.padded_limits(list(places.values()), 0.05)
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
    axes.set_xticks([places[share] for share in kept], [format_percent(share) if share else "none" for share in kept])
    axes.set_xticks([place for share, place in places.items() if share not in kept], minor=True)
    axes.tick_params(labelbottom=worded)
    axes.grid(axis="x", visible=False)
