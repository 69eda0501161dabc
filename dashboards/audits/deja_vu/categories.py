"""Categories of images: memorised, misrepresented, correlated or unassociated, as in figures 5, 15 and 18."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from dashboards import drawing, layout, legend
from dashboards.audits.deja_vu import attacks
from dashboards.audits.deja_vu.attacks import ACROSS, read_curve
from dashboards.chart import Axis, Chart, Curve, Figure, Layer, Panel, intervals, line
from dashboards.columns import integers, numbers

# Colours of the area and the edge of each category, from bottom to top.
LOOKS = {
    "memorised": ("canary", "canary"),
    "misrepresented": ("ochre", "ochre"),
    "correlated": ("twin-band", "twin"),
    "unassociated": ("band", "muted"),
}
# Categories with intervals, and their marks and dashes.
COMPARED: dict[str, tuple[str, str, Any]] = {
    "memorised": ("canary", "o", "-"),
    "misrepresented": ("ochre", "s", (0, (4, 2))),
}
UPPER, LOWER = 1.35, 1.35  # inches
LABELS = 8  # labelled bars
FEW = 4  # bars that would be too wide alone
Shares = dict[str, Curve]


def categories(table: pa.Table) -> Figure | None:
    """The share of each category, and the two compared categories with intervals.

    The axis is the first of epochs, layers and numbers of neighbours with several values.
    """
    table = attacks.both_ways_rows(table)
    found = attacks.read_attacks(table)
    if not found:
        return None
    last = attacks.decisive_attack(found)
    field = next((field for field in ACROSS if len(attacks.attacks_along(found, field)) > 1), "epoch")
    rows = pa.concat_tables([attacks.attack_rows(table, each) for each in attacks.attacks_along(found, field)])
    shown = {name: each for name in LOOKS if (each := read_curve(rows, field, name)) is not None}
    if len(shown) < len(LOOKS) or len({len(each.places) for each in shown.values()}) > 1:
        return None
    at_end = attacks.attack_rows(rows, last)
    n = int(integers(at_end, "images").max())
    caption = (
        "Memorised: named correctly only by the model that was trained on the image; misrepresented: only by the other "
        "model. By chance both are equally frequent, so their difference estimates memorisation. "
        "Correlated: by both; unassociated: by neither. Lines: 95 % intervals. Bars are evenly spaced. "
        f"n: {n:,} images of both sets; constant settings: {last.describe()}."
    )
    p = numbers(at_end, "p_value")
    tested = (
        f" Test of more memorised than misrepresented images: p {p[0]:.2g}." if len(p) and not np.isnan(p[0]) else ""
    )
    alt = " ".join(_describe_shares(shown, field, at) for at in range(len(shown["memorised"].places))) + tested
    places = np.arange(len(shown["memorised"].places))
    named = np.unique(np.linspace(0, len(places) - 1, min(LABELS, len(places))).astype(np.int64))
    ticks = (named, [f"{shown['memorised'].places[at]:g}" for at in named])
    room = max(0.6, (FEW - len(places)) / 2)
    ends = (-room, len(places) - 1 + room)
    lines, limits = comparison(shown, places)
    return Chart(
        "categories",
        "How many images are memorised?",
        caption,
        alt,
        UPPER + LOWER + 1.0 + 2 * legend.ROW,
        [
            Panel(
                layout.wide_box(LOWER + 0.95, UPPER),
                lines,
                Axis(limits=ends, ticks=ticks, grid=False, worded=False),
                Axis("share", limits, 4),
            ),
            Panel(
                layout.wide_box(0.5, LOWER),
                [lambda axes: _draw_stacked_bars(axes, shown, places)],
                Axis(ACROSS[field], ends, ticks=ticks, grid=False),
                Axis("share", (0, 1.02), 4),
            ),
        ],
        [
            legend.area(name, facecolor=drawing.light(area), edgecolor=drawing.light(edge))
            for name, (area, edge) in LOOKS.items()
        ],
    ).figure()


def _describe_shares(shown: Shares, field: str, at: int) -> str:
    """Describe the shares at one position."""
    place = f"{shown['memorised'].places[at]:g}"
    return f"{field.capitalize()} {place}: {', '.join(f'{name} {each.describe(at)}' for name, each in shown.items())}."


def comparison(shown: Shares, places: Any) -> tuple[list[Layer], tuple[float, float]]:
    """Memorised and misrepresented shares, their intervals, and the limits of a common axis."""
    layers: list[Layer] = []
    tops = [0.0]
    for offset, (name, (colour, marker, dash)) in zip((-0.08, 0.08), COMPARED.items(), strict=True):
        each, x = shown[name], places + offset
        layers += [
            intervals(x, each.low, each.high, colour),
            line(x, each.value, colour, marker=marker, markersize=4.5, linestyle=dash, linewidth=1.2),
        ]
        tops += [float(value) for value in np.concatenate([each.value, each.high]) if not np.isnan(value)]
    return layers, drawing.padded_limits(tops)


def _draw_stacked_bars(axes: Any, shown: Shares, places: Any) -> None:
    """All four categories, stacked."""
    below = np.zeros(len(places))
    for name, (area, edge) in LOOKS.items():
        look = {"color": drawing.light(area), "edgecolor": drawing.light(edge), "linewidth": 0.8}
        axes.bar(places, shown[name].value, 0.7, bottom=below, **look)
        below = below + shown[name].value
