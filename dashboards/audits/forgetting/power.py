"""The power of the audit: its detection rate against the share of D_Q in training, for a run or for sweep cells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dashboards import drawing, layout, legend
from dashboards.audits.forgetting.targets import BOUND
from dashboards.chart import Array, Axis, Chart, Facet, Figure, Layer, Panel, facet_panels, intervals, level, line
from dashboards.columns import integers, numbers, with_columns
from dashboards.run import Run
from dashboards.summary import format_range, shorten
from dashboards.sweep import name_cells
from tasks.audits.forgetting.measures.power import REQUIRED_POWER, smallest_detected_share

NUMBERS = ("share", "power", "power_low", "power_high", "effect", "low", "high")
NEEDED = {*NUMBERS, "models", "detected"}
PANEL = 1.95  # inches
APART = 0.6  # minimum distance from the smallest share to the position of 0, in decades
NEAR = 0.11  # as a fraction of the axis; ticks that are closer together have no label


@dataclass(frozen=True)
class Power:
    """Detection rates and effects by the share of D_Q on which models were trained, in ascending order."""

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
        """The smallest detected share, as stated in the summary."""
        return smallest_detected_share(dict(zip(self.share.tolist(), self.power.tolist(), strict=True)))

    def describe(self) -> str:
        if self.smallest is None:
            return f"no tested share is detected in {REQUIRED_POWER:.0%} of its models"
        return f"from {format_percent(self.smallest)} of D_Q, at least {REQUIRED_POWER:.0%} of the models are detected"


@with_columns(NEEDED)
def read_power(table: pa.Table) -> Power | None:
    """Read the rows with a share and a power. Returns None if there are none."""
    share = numbers(table, "share")
    rate = numbers(table, "power")
    rows = np.flatnonzero(~np.isnan(share) & ~np.isnan(rate))
    if not len(rows):
        return None
    order = rows[np.argsort(share[rows], kind="stable")]
    models = integers(table, "models")[order]
    detected = integers(table, "detected")[order]
    columns = {name: numbers(table, name)[order] for name in NUMBERS}
    return Power(models=models, detected=detected, **columns)


def power(table: pa.Table, decisions: pa.Table) -> Figure | None:
    """Draw the detection rate against the share of D_Q, with false alarms set apart.

    A second panel shows the effect of models and targets.
    """
    curve = read_power(table)
    if curve is None:
        return None
    words = f"{_capitalise(curve.describe())}."
    alt = " ".join(_describe_points(curve))
    targets = target_effects(decisions)
    places = _share_positions([curve])
    handles = legend_entries(curve, bool(targets))
    detections = Facet(
        _power_layers(curve, _share_places(curve, places), drawing.SERIES[0]),
        "detection rate",
        Axis(limits=(-0.03, 1.05), max_ticks=4),
        Axis(),
        [lambda axes: _set_share_axis(axes, places, False)],
    )
    return Chart(
        "power",
        "How small a share of D_Q does the audit detect?",
        _power_caption(curve, words, bool(targets)),
        f"{words} {alt}",
        PANEL * 2 + 0.32 + legend.height(len(handles)),
        facet_panels([detections, effect_facet(curve, places, targets)], PANEL, foot=0.55),
        handles,
    ).figure()


@with_columns(("effect", "source"), list)
def target_effects(decisions: pa.Table) -> list[float]:
    """Return the effects of third-party targets, whose training is unknown."""
    rows = decisions.to_pylist()
    effects = []
    for row in rows:
        if row["source"] != "training" and row["effect"] is not None:
            effects.append(row["effect"])
    return effects


def _power_caption(curve: Power, words: str, has_targets: bool) -> str:
    """Return the caption, including the smallest share found."""
    targets = ""
    if has_targets:
        targets = " Level lines: third-party models."
    return (
        "Above: detection rate of models trained on all of D_C and this share of D_Q, each audited alone, with 95 % "
        "Wilson intervals; hollow: models without D_Q, which are false alarms. Below: their mean effect (how much more "
        "certain they are about D_Q than about the control set) with its 95 % interval over trainings; 0 is the "
        f"average by chance.{targets} {words} The axis is logarithmic, with 0 set apart. n: "
        f"{format_range(curve.models.tolist())} models of each share."
    )


def legend_entries(curve: Power, has_targets: bool) -> list[Any]:
    """Return legend entries for the marks that occur."""
    handles = legend.series(["trained on a known share, 95 % interval"], linewidth=1.5, markersize=5.5)
    if (curve.share == 0).any():
        hollow = {"markerfacecolor": drawing.light("paper"), "marker": "o", "markersize": 5.5}
        handles.append(legend.line("none of D_Q: false alarms", color=drawing.light("accent"), linewidth=0, **hollow))
    if has_targets:
        handles.append(legend.line("third-party models", **BOUND))
    return handles


def _capitalise(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}"


def _describe_points(curve: Power) -> Iterator[str]:
    for index, share in enumerate(curve.share.tolist()):
        if share == 0:
            label = "False alarms without D_Q"
        else:
            label = f"With {format_percent(share)}"
        words = f"{label}: {curve.detected[index]} of {curve.models[index]}"
        words += drawing.format_interval(curve.power_low[index], curve.power_high[index])
        interval = drawing.format_interval(curve.low[index], curve.high[index])
        words += f", effect {drawing.format_number(float(curve.effect[index]))}{interval}"
        yield f"{words}."


def format_percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _share_positions(curves: Sequence[Power]) -> dict[float, float]:
    """Return the axis position of each share, which is its logarithm. A share of 0 is set apart on the left."""
    shares = sorted({share for curve in curves for share in curve.share.tolist() if share > 0})
    places = {share: float(np.log10(share)) for share in shares}
    if any((curve.share == 0).any() for curve in curves):
        first = min(places.values(), default=0.0)
        last = max(places.values(), default=0.0)
        places = {0.0: first - max(APART, 0.22 * (last - first)), **places}
    return places


def _share_places(power: Power, places: dict[float, float]) -> Array:
    return np.array([places[share] for share in power.share.tolist()])


def _power_layers(power: Power, x: Array, series: legend.Series) -> list[Layer]:
    """Draw the power with its intervals, joined over shares. False alarms stand alone and are hollow."""
    return [
        _whole_intervals(x, power.power_low, power.power_high, series[0]),
        *_share_marks(power, x, power.power, series),
    ]


def _whole_intervals(x: Array, low: Array, high: Array, colour: str) -> Layer:
    has_interval = ~np.isnan(low) & ~np.isnan(high)
    return intervals(x[has_interval], low[has_interval], high[has_interval], colour)


def _share_marks(power: Power, x: Array, values: Array, series: legend.Series) -> list[Layer]:
    """Draw a mark at each share. Shares above 0 are joined; a share of 0 is hollow."""
    is_positive = power.share > 0
    colour, marker, dash = series
    look: dict[str, Any] = {"marker": marker, "markersize": 5.5}
    hollow = {"markerfacecolor": drawing.light("paper"), "zorder": 3}
    return [
        line(x[is_positive], values[is_positive], colour, linestyle=dash, linewidth=1.3, **look),
        line(x[~is_positive], values[~is_positive], colour, linestyle="none", **look, **hollow),
    ]


def effect_facet(curve: Power, places: dict[float, float], targets: Sequence[float]) -> Facet:
    """Return the mean effect at each share, with the effects of third-party targets as horizontal lines."""
    x = _share_places(curve, places)
    values = np.concatenate([curve.effect, curve.low, curve.high, np.array(targets, np.float64)])
    return Facet(
        [
            level(0),
            *(level(effect, BOUND) for effect in targets),
            _whole_intervals(x, curve.low, curve.high, drawing.SERIES[0][0]),
            *_share_marks(curve, x, curve.effect, drawing.SERIES[0]),
        ],
        "effect, standard deviations of chance",
        Axis(limits=drawing.padded_limits([0.0, *values[~np.isnan(values)].tolist()], 0.05), max_ticks=4),
        Axis("share of D_Q in training, in addition to all of D_C"),
        [lambda axes: _set_share_axis(axes, places, True)],
    )


def _set_share_axis(axes: Any, places: dict[float, float], worded: bool) -> None:
    """Label as many shares as fit on the axis, and draw a line between 0 and the others."""
    low, high = drawing.padded_limits(list(places.values()), 0.05)
    if low == high or len(places) == 1:
        low, high = low - 0.5, high + 0.5
    axes.set_xlim(low, high)
    if 0.0 in places and len(places) > 1:
        smallest = min(position for share, position in places.items() if share > 0)
        axes.axvline((places[0.0] + smallest) / 2, color=drawing.light("grid"), linewidth=3, zorder=0)
    labelled: list[float] = []
    for share in sorted(places, reverse=True):
        if (
            all(abs(places[share] - places[labelled_share]) >= NEAR * (high - low) for labelled_share in labelled)
            or share == 0
        ):
            labelled.append(share)
    axes.set_xticks(
        [places[share] for share in labelled], [format_percent(share) if share else "none" for share in labelled]
    )
    axes.set_xticks([position for share, position in places.items() if share not in labelled], minor=True)
    axes.tick_params(labelbottom=worded)
    axes.grid(axis="x", visible=False)


def compare_cells(run: Run) -> Iterator[Figure]:
    """Yield the power curves of the cells, one line per cell, named by the varied fields."""
    field, names, _ = name_cells(run)
    powers = []
    for name, cell in zip(names, run.cells, strict=False):
        powers.append((name, read_power(cell.table("power"))))
    curves = [(name, power) for name, power in powers if power is not None]
    if len(curves) > 1:
        yield _compare_power(curves, field)


def _compare_power(curves: list[tuple[str, Power]], field: str) -> Figure:
    """Draw the curves in one panel, slightly offset so that intervals remain visible."""
    visible = curves[: len(drawing.SERIES)]
    caption = (
        "Detection rate of models trained on all of D_C and this share of D_Q, each audited alone, with 95 % Wilson "
        "intervals; hollow: models without D_Q, which are false alarms. Lines are drawn slightly apart so that "
        "intervals do not hide each other; the axis is logarithmic, with 0 set apart. "
        f"n: {format_range([int(n) for _, power in visible for n in power.models])} models of each share."
        f"{layout.left_out_note(len(visible), len(curves), 'cells')}"
    )
    places = _share_positions([power for _, power in visible])
    step = 0.012 * (max(places.values()) - min(places.values()))
    layers = []
    for index, ((_, power), series) in enumerate(zip(visible, drawing.SERIES, strict=False)):
        layers.extend(
            _power_layers(power, _share_places(power, places) + step * (index - (len(visible) - 1) / 2), series)
        )
    legend_columns = legend.columns([name for name, _ in visible])
    return Chart(
        "powers",
        f"How small a share of D_Q is detected, by {field}?",
        caption,
        " ".join(f"{name}: {power.describe()}. {' '.join(_describe_points(power))}" for name, power in visible),
        3.0 + legend.height(len(visible), legend_columns),
        [
            Panel(
                layout.wide_box(0.55, 2.3),
                layers,
                Axis("share of D_Q in training, in addition to all of D_C"),
                Axis("detection rate", (-0.03, 1.05)),
                finish=[lambda axes: _set_share_axis(axes, places, True)],
            )
        ],
        legend.series([shorten(name, 2 * legend.ENTRY) for name, _ in visible], linewidth=1.3, markersize=5),
        legend_columns,
    ).figure()
