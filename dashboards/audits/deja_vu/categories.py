"""Image categories (memorised, misrepresented, correlated or unassociated), as in figures 5, 15 and 18."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from dashboards import drawing, layout, legend
from dashboards.audits.deja_vu import attacks
from dashboards.audits.deja_vu.attacks import AXIS_LABELS, read_curve
from dashboards.chart import Axis, Chart, Curve, Figure, Layer, Panel, intervals, line
from dashboards.columns import integers, numbers

# Fill and edge colours of each category, from bottom to top.
LOOKS = {
    "memorised": ("canary", "canary"),
    "misrepresented": ("ochre", "ochre"),
    "correlated": ("twin-band", "twin"),
    "unassociated": ("band", "muted"),
}
# Categories drawn with intervals, and their colours, markers and dashes.
COMPARED: dict[str, tuple[str, str, Any]] = {
    "memorised": ("canary", "o", "-"),
    "misrepresented": ("ochre", "s", (0, (4, 2))),
}
# Panel heights in inches.
UPPER = 1.35
LOWER = 1.35
LABELS = 8  # labelled bars
FEW = 4  # fewer bars than this would be too wide
Shares = dict[str, Curve]


def categories(table: pa.Table) -> Figure | None:
    """Draw the share of each category, and the two compared categories with intervals.

    The x axis is the first of epochs, layers and numbers of neighbours that has several values.
    """
    table = attacks.both_ways_rows(table)
    all_attacks = attacks.read_attacks(table)
    if not all_attacks:
        return None
    last = attacks.decisive_attack(all_attacks)
    field = next((field for field in AXIS_LABELS if len(attacks.attacks_along(all_attacks, field)) > 1), "epoch")
    rows = pa.concat_tables([attacks.attack_rows(table, each) for each in attacks.attacks_along(all_attacks, field)])
    shares = {name: each for name in LOOKS if (each := read_curve(rows, field, name)) is not None}
    if len(shares) < len(LOOKS) or len({len(each.places) for each in shares.values()}) > 1:
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
    tested = ""
    if len(p) and not np.isnan(p[0]):
        tested = f" Test of more memorised than misrepresented images: p {p[0]:.2g}."
    alt = " ".join(_describe_shares(shares, field, index) for index in range(len(shares["memorised"].places))) + tested
    places = np.arange(len(shares["memorised"].places))
    labelled = np.unique(np.linspace(0, len(places) - 1, min(LABELS, len(places))).astype(np.int64))
    ticks = (labelled, [f"{shares['memorised'].places[index]:g}" for index in labelled])
    room = max(0.6, (FEW - len(places)) / 2)
    ends = (-room, len(places) - 1 + room)
    lines, limits = comparison(shares, places)
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
                Axis(limits=ends, ticks=ticks, has_grid=False, has_tick_labels=False),
                Axis("share", limits, 4),
            ),
            Panel(
                layout.wide_box(0.5, LOWER),
                [lambda axes: _draw_stacked_bars(axes, shares, places)],
                Axis(AXIS_LABELS[field], ends, ticks=ticks, has_grid=False),
                Axis("share", (0, 1.02), 4),
            ),
        ],
        [
            legend.area(name, facecolor=drawing.light(area), edgecolor=drawing.light(edge))
            for name, (area, edge) in LOOKS.items()
        ],
    ).figure()


def _describe_shares(shares: Shares, field: str, index: int) -> str:
    """Describe the shares at one position."""
    position = f"{shares['memorised'].places[index]:g}"
    return (
        f"{field.capitalize()} {position}: "
        f"{', '.join(f'{name} {share.describe(index)}' for name, share in shares.items())}."
    )


def comparison(shares: Shares, places: Any) -> tuple[list[Layer], tuple[float, float]]:
    """Return the memorised and misrepresented shares with intervals, and common axis limits."""
    layers: list[Layer] = []
    tops = [0.0]
    for offset, (name, (colour, marker, dash)) in zip((-0.08, 0.08), COMPARED.items(), strict=True):
        share = shares[name]
        x = places + offset
        layers += [
            intervals(x, share.low, share.high, colour),
            line(x, share.value, colour, marker=marker, markersize=4.5, linestyle=dash, linewidth=1.2),
        ]
        tops += [float(value) for value in np.concatenate([share.value, share.high]) if not np.isnan(value)]
    return layers, drawing.padded_limits(tops)


def _draw_stacked_bars(axes: Any, shares: Shares, places: Any) -> None:
    """Draw all four categories as stacked bars."""
    below = np.zeros(len(places))
    for name, (area, edge) in LOOKS.items():
        look = {"color": drawing.light(area), "edgecolor": drawing.light(edge), "linewidth": 0.8}
        axes.bar(places, shares[name].value, 0.7, bottom=below, **look)
        below = below + shares[name].value
