"""What differential privacy leaves of a linear model's memorization, beside its bounds, by epsilon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dashboards import drawing, layout, legend
from dashboards.estimates import finite
from dashboards.figure import Figure

PANEL = 1.8  # inches
MECHANISMS: Mapping[str, str] = {
    "randomised_response": "randomised response: pure epsilon, of x alone",
    "output_perturbation": "output perturbation: pure epsilon",
    "noisy_descent": "noisy gradient descent: (epsilon, delta)",
}
BOUNDS: Mapping[str, tuple[str, str, Any]] = {
    "bound": ("epsilon / H(X): theorem 3.6", "violet", (0, (4, 2))),
    "success_bound": ("bound on any attack's success", "ink", (0, (1, 1.5))),
}
Row = Mapping[str, Any]


def privacy(table: pa.Table) -> Figure | None:
    """A panel for each mechanism: m of the better query with its interval, below its bounds."""
    if not {"mechanism", "epsilon", "m", "success_bound"} <= set(table.column_names):
        return None
    shown = {name: better_query_rows(table.to_pylist(), name) for name in MECHANISMS}
    shown = {name: rows for name, rows in shown.items() if rows}
    if not shown:
        return None
    alt = " ".join(
        f"{MECHANISMS[name].capitalize()}: m {drawing.format_number(rows[0]['m'])} at epsilon {rows[0]['epsilon']:g}, "
        f"{drawing.format_number(rows[-1]['m'])} at {rows[-1]['epsilon']:g}."
        for name, rows in shown.items()
    )
    n = next(iter(shown.values()))[0]["n"]
    caption = (
        "m: how much more often x is told from y on training samples than on fresh ones, by the better of two queries. "
        "Lines: 95 % intervals over trainings, hidden where narrower than their mark. Above the lines of the bounds m "
        "cannot lie; epsilon / H(X) is for a pure epsilon only, which noisy gradient descent does not give. "
        f"n: {n:,} trainings at each epsilon, each on samples of its own."
    )
    return Figure("private", "What does differential privacy leave of it?", caption, alt, draw_svg(shown))


def better_query_rows(rows: Sequence[Row], mechanism: str) -> list[Row]:
    """The rows of a mechanism by epsilon, of the query with the larger m each."""
    best: dict[float, Row] = {}
    for row in rows:
        if row["mechanism"] == mechanism and row["epsilon"] is not None:
            epsilon = row["epsilon"]
            best[epsilon] = row if epsilon not in best or row["m"] > best[epsilon]["m"] else best[epsilon]
    return [best[epsilon] for epsilon in sorted(best)]


def draw_svg(shown: Mapping[str, Sequence[Row]]) -> str:
    """The panels as SVG."""
    figure = drawing.canvas(PANEL * len(shown) + 0.45 + legend.height(3, 1))
    panels = layout.stack_axes(figure, len(shown), PANEL, foot=0.55)
    colour, marker, _ = drawing.SERIES[0]
    every = [row["epsilon"] for rows in shown.values() for row in rows]
    for axes, (name, rows) in zip(panels, shown.items(), strict=True):
        axes.set_title(MECHANISMS[name], fontsize=drawing.TEXT)
        axes.axhline(0, **drawing.NULL)
        epsilons = [row["epsilon"] for row in rows]
        for column, (_, bound, dash) in BOUNDS.items():
            values = [row[column] if finite(row[column]) else np.nan for row in rows]
            axes.plot(epsilons, values, color=drawing.light(bound), linestyle=dash, linewidth=1.3)
        whole = [row for row in rows if finite(row["low"])]
        path = drawing.segment_path(*([row[name] for row in whole] for name in ("epsilon", "low", "high")))
        axes.plot(*path, color=drawing.light(colour), linewidth=1.8)
        axes.plot(epsilons, [row["m"] for row in rows], marker, markersize=5, color=drawing.light(colour))
        drawing.set_ticks(axes, up=4)
        drawing.set_log_x_axis(axes, every)
        axes.set_ylim(-0.06, 1.0)
    for axes in panels[:-1]:
        axes.tick_params(labelbottom=False)
    panels[-1].set_xlabel("epsilon")
    handles = [legend.line("measured m", color=drawing.light(colour), marker=marker, linewidth=1.8)]
    handles += [
        legend.line(label, color=drawing.light(bound), linestyle=dash, linewidth=1.3)
        for label, bound, dash in BOUNDS.values()
    ]
    legend.add_above(figure, handles, 1)
    return drawing.svg(figure, "private")
