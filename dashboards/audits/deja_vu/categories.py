"""What becomes of single pictures: memorised, misrepresented, correlated or unassociated: figures 5, 15 and 18."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from dashboards import drawing, layout, legend
from dashboards.audits.deja_vu import attacks
from dashboards.audits.deja_vu.curves import ACROSS, Curve, read_curve
from dashboards.columns import integers, numbers
from dashboards.figure import Figure

# Each with the colours of its area and of its edge, from the lowest up.
LOOKS = {
    "memorised": ("canary", "canary"),
    "misrepresented": ("ochre", "ochre"),
    "correlated": ("twin-band", "twin"),
    "unassociated": ("band", "muted"),
}
# Of these the intervals are drawn, with these marks and dashes.
COMPARED: dict[str, tuple[str, str, Any]] = {
    "memorised": ("canary", "o", "-"),
    "misrepresented": ("ochre", "s", (0, (4, 2))),
}
UPPER, LOWER = 1.35, 1.35  # inches
LABELS = 8  # bars that are named
FEW = 4  # bars that would be too wide alone
Shares = dict[str, Curve]


def categories(table: pa.Table) -> Figure | None:
    """The share of each category by what varies, and the two that are to be compared with their intervals.

    That are epochs, or without several of them layers, or numbers of neighbours.
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
    n = int(integers(at_end, "pictures").max())
    caption = (
        "Memorised: named rightly by the model that was trained on the picture alone; misrepresented: by the other "
        "alone. By chance both happen equally often, so that what is remembered is the distance of the two. "
        "Correlated: by both; unassociated: by neither. Lines: 95 % intervals. Bars stand evenly apart. "
        f"n: {n:,} pictures of both sets; what does not vary is {last.describe()}."
    )
    p = numbers(at_end, "p_value")
    tested = f" That more are memorised than misrepresented: p {p[0]:.2g}." if len(p) and not np.isnan(p[0]) else ""
    alt = " ".join(describe_shares(shown, field, at) for at in range(len(shown["memorised"].places))) + tested
    return Figure("categories", "How many pictures are memorised?", caption, alt, draw_svg(shown, ACROSS[field]))


def describe_shares(shown: Shares, field: str, at: int) -> str:
    """The shares at one of the places, in words."""
    place = f"{shown['memorised'].places[at]:g}"
    return f"{field.capitalize()} {place}: {', '.join(f'{name} {each.describe(at)}' for name, each in shown.items())}."


def draw_svg(shown: Shares, across: str) -> str:
    """The shares as SVG over what `across` says: the two that are compared above, all four stacked below."""
    figure = drawing.canvas(UPPER + LOWER + 1.0 + 2 * legend.ROW)
    compared = layout.wide_axes(figure, LOWER + 0.95, UPPER)
    stacked = layout.wide_axes(figure, 0.5, LOWER)
    places = np.arange(len(shown["memorised"].places))
    draw_comparison(compared, shown, places)
    draw_stacked_bars(stacked, shown, places)
    named = np.unique(np.linspace(0, len(places) - 1, min(LABELS, len(places))).astype(np.int64))
    for axes in (compared, stacked):
        room = max(0.6, (FEW - len(places)) / 2)
        axes.set_xlim(-room, len(places) - 1 + room)
        axes.grid(axis="x", visible=False)
        axes.set_xticks(named, [f"{shown['memorised'].places[at]:g}" for at in named])
        axes.set_ylabel("share")
    compared.tick_params(labelbottom=False)
    stacked.set_xlabel(across)
    legend.add_above(figure, legend_entries())
    return drawing.svg(figure, "categories")


def draw_comparison(axes: Any, shown: Shares, places: Any) -> None:
    """Memorised against misrepresented, each with its interval."""
    tops = [0.0]
    for offset, (name, (colour, marker, dash)) in zip((-0.08, 0.08), COMPARED.items(), strict=True):
        each, look = shown[name], {"color": drawing.light(colour)}
        x = places + offset
        axes.plot(*drawing.segment_path(x, each.low, each.high), linewidth=1.8, solid_capstyle="butt", **look)
        axes.plot(x, each.value, marker=marker, markersize=4.5, linestyle=dash, linewidth=1.2, **look)
        tops += [float(value) for value in np.concatenate([each.value, each.high]) if not np.isnan(value)]
    axes.set_ylim(*drawing.padded_limits(tops))
    drawing.set_ticks(axes, up=4)


def draw_stacked_bars(axes: Any, shown: Shares, places: Any) -> None:
    """All four, one upon the other."""
    below = np.zeros(len(places))
    for name, (area, edge) in LOOKS.items():
        look = {"color": drawing.light(area), "edgecolor": drawing.light(edge), "linewidth": 0.8}
        axes.bar(places, shown[name].value, 0.7, bottom=below, **look)
        below = below + shown[name].value
    axes.set_ylim(0, 1.02)
    drawing.set_ticks(axes, up=4)


def legend_entries() -> list[Any]:
    """The legend's entries of the four categories."""
    areas = [
        legend.area(name, facecolor=drawing.light(area), edgecolor=drawing.light(edge))
        for name, (area, edge) in LOOKS.items()
    ]
    return areas
