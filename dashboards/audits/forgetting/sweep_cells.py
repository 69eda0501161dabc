"""A sweep's cells together: how little each finds, such as of query sets of several sizes."""

from __future__ import annotations

from collections.abc import Iterator

from dashboards import drawing, layout, legend
from dashboards.audits.forgetting.power import (
    Power,
    describe_points,
    draw_power_curve,
    read_power,
    set_share_axis,
    share_positions,
)
from dashboards.audits.forgetting.targets import format_range
from dashboards.estimates import shorten
from dashboards.figure import Figure
from dashboards.run import Run
from dashboards.sweep import value_label, varied_fields, varied_settings

LETTERS = 2 * legend.ENTRY


def compare_cells(run: Run) -> Iterator[Figure]:
    """The power curves of the cells, one line each, named by what varies."""
    settings = varied_settings(run.cells)
    varied = varied_fields(settings)
    curves = []
    for cell, setting in zip(run.cells, settings, strict=True):
        power = read_power(cell.table("power"))
        if power is not None:
            curves.append((", ".join(f"{field} {value_label(setting[field])}" for field in varied), power))
    if varied and len(curves) > 1:
        yield compare_power(curves, " and ".join(varied))


def compare_power(curves: list[tuple[str, Power]], what: str) -> Figure:
    """The curves over one another, a little apart at each share so that their intervals are seen."""
    shown = curves[: len(drawing.SERIES)]
    caption = (
        "Of models that were trained on so much of D_Q beside all of D_C, the share that is found to be surer "
        "of D_Q than of the control set, each audited alone, with 95 % Wilson intervals; hollow, none of D_Q: "
        "false alarms. Lines "
        "stand a little apart so that intervals do not hide one another; the axis is logarithmic, with none apart. "
        f"n: {format_range([int(n) for _, power in shown for n in power.models])} models of each share."
        f"{layout.left_out_note(len(shown), len(curves), 'cells')}"
    )
    alt = " ".join(f"{name}: {power.describe()}. {' '.join(describe_points(power))}" for name, power in shown)
    return Figure("powers", f"How little of the query set is found, by {what}?", caption, alt, draw_svg(shown))


def draw_svg(curves: list[tuple[str, Power]]) -> str:
    """The curves as SVG, each with an entry in the legend."""
    labels = [shorten(name, LETTERS) for name, _ in curves]
    beside = legend.columns([name for name, _ in curves])
    figure = drawing.canvas(3.0 + legend.height(len(curves), beside))
    axes = layout.wide_axes(figure, 0.55, 2.3)
    places = share_positions([power for _, power in curves])
    step = 0.012 * (max(places.values()) - min(places.values()))
    for at, ((_, power), look) in enumerate(zip(curves, drawing.SERIES, strict=False)):
        draw_power_curve(axes, power, places, *look, offset=step * (at - (len(curves) - 1) / 2))
    axes.set_ylim(-0.03, 1.05)
    drawing.set_ticks(axes, up=5)
    set_share_axis(axes, places, True)
    axes.set_xlabel("share of D_Q trained on, beside all of D_C")
    axes.set_ylabel("models detected, share")
    legend.add_above(figure, legend.series(labels, linewidth=1.3, markersize=5), beside)
    return drawing.svg(figure, "powers")
