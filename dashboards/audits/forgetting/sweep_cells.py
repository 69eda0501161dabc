"""A sweep's cells together: how little each finds, such as of query sets of several sizes."""

from __future__ import annotations

from collections.abc import Iterator

from dashboards import drawing
from dashboards.audits.forgetting import style
from dashboards.audits.forgetting.power import Power, across, curve, points, read, ticked
from dashboards.audits.forgetting.targets import span_of
from dashboards.estimates import shortened
from dashboards.figure import Figure
from dashboards.run import Run
from dashboards.sweep import ENTRY, fields, varied_in, word

LETTERS = 2 * ENTRY


def cells(run: Run) -> Iterator[Figure]:
    """The power curves of the cells, one line each, named by what varies."""
    settings = varied_in(run.cells)
    varied = fields(settings)
    found = []
    for each, setting in zip(run.cells, settings, strict=True):
        curve_of = read(each.table("power"))
        if curve_of is not None:
            found.append((", ".join(f"{field} {word(setting[field])}" for field in varied), curve_of))
    if varied and len(found) > 1:
        yield powers(found, " and ".join(varied))


def powers(found: list[tuple[str, Power]], what: str) -> Figure:
    """The curves over one another, a little apart at each share so that their intervals are seen."""
    shown = found[: len(drawing.SERIES)]
    beside = 2 if max(len(name) for name, _ in shown) <= ENTRY else 1
    foot = style.ROW * -(-len(shown) // beside)
    figure = drawing.canvas(3.0 + foot)
    axes = drawing.place(figure, style.LEFT, 0.55, drawing.WIDTH - style.LEFT - style.RIGHT, 2.3)
    everything = [each for _, each in shown]
    places = across(everything)
    step = 0.012 * (max(places.values()) - min(places.values()))
    handles = []
    for at, ((name, each), look) in enumerate(zip(shown, drawing.SERIES, strict=False)):
        curve(axes, each, places, *look, offset=step * (at - (len(shown) - 1) / 2))
        colour, marker, dash = look
        line = {"color": drawing.light(colour), "marker": marker, "linestyle": dash, "linewidth": 1.3, "markersize": 5}
        handles.append(style.of_line(shortened(name, LETTERS), **line))
    axes.set_ylim(-0.03, 1.05)
    drawing.ticks(axes, up=5)
    ticked(axes, places, True)
    axes.set_xlabel("share of D_Q trained on, beside all of D_C")
    axes.set_ylabel("models detected, share")
    style.legend(figure, handles, beside)
    caption = (
        "Of models that were trained on so much of D_Q beside all of D_C, the share that the audit calls not "
        "forgotten, each model audited alone by its one-sided rho, with 95 % Wilson intervals; hollow, none of D_Q: "
        "false alarms. Lines "
        "stand a little apart so that intervals do not hide one another; the axis is logarithmic, with none apart. "
        f"n: {span_of([int(n) for each in everything for n in each.models])} models of each share."
        f"{style.rest(len(shown), len(found), 'cells')}"
    )
    alt = " ".join(f"{name}: {each.said()}. {' '.join(points(each))}" for name, each in shown)
    title = f"How little of the query set is found, by {what}?"
    return Figure("powers", title, caption, alt, drawing.svg(figure, "powers"))
