"""Memorisation and overfitting of one-dimensional kernel densities, as in figure 1."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dashboards import drawing, legend
from dashboards.chart import Array, Axis, Chart, Facet, Figure, area, facet_panels, line
from dashboards.columns import numbers, with_columns

NAMES = {
    "with_point": ("trained on all points", "twin", "-"),
    "without_point": ("without one point", "canary", (0, (4, 2))),
    "overfitted": ("overfitted", "violet", (0, (1, 1.5))),
}
PANELS = {
    ("with_point", "without_point"): "memorised: without one point, the density changes there",
    ("with_point", "overfitted"): "overfitted: too narrow everywhere",
}
PANEL = 1.55  # inches


@with_columns({"x", *NAMES})
def kernel_density(table: pa.Table) -> Figure | None:
    """Draw the density with and without the point, and compare it with the overfitted density."""
    columns = np.stack([numbers(table, name) for name in ("x", *NAMES)])
    columns = columns[:, ~np.isnan(columns).any(axis=0)]
    if columns.shape[1] < 2:
        return None
    x, *values = columns[:, np.argsort(columns[0], kind="stable")]
    curves = dict(zip(NAMES, values, strict=True))
    highest = max(float(values.max()) for values in curves.values())
    facets = []
    for names, title in PANELS.items():
        if "overfitted" in names:
            shade = []
        else:
            shade = [area(x, curves["without_point"], curves["with_point"], "canary-band")]
        lines = []
        for name in names:
            lines.append(line(x, curves[name], NAMES[name][1], linewidth=1.8, linestyle=NAMES[name][2]))
        facets.append(Facet([*shade, *lines], title, Axis("density", (0, 1.06 * highest), 4)))
    return Chart(
        "kernel",
        "How does memorisation differ from overfitting?",
        "An exact kernel density of points on a line. Shade: the effect of one point. M of that point is the logarithm "
        "of the ratio of the two densities at the point. Memorisation is local; an overfitted density is wrong "
        "everywhere.",
        _describe_densities(x, curves),
        PANEL * len(PANELS) + 2 * legend.ROW + 0.37,
        facet_panels(facets, PANEL, Axis("x", (float(x[0]), float(x[-1])), 6)),
        [
            legend.line(label, color=drawing.light(colour), linewidth=1.8, linestyle=dash)
            for label, colour, dash in NAMES.values()
        ],
    ).figure()


def _describe_densities(x: Array, curves: dict[str, Array]) -> str:
    with_it = curves["with_point"]
    without = curves["without_point"]
    position = int((with_it - without).argmax())
    ratio = None
    if without[position] > 0:
        ratio = float(np.log(with_it[position] / without[position]))
    if ratio is None:
        difference = ""
    else:
        difference = f", M {drawing.format_number(ratio)} nats"
    return (
        f"The point matters most at x = {drawing.format_number(float(x[position]))}"
        f": density {drawing.format_number(float(with_it[position]))} "
        f"with it and {drawing.format_number(float(without[position]))} without{difference}. "
        f"The overfitted density reaches {drawing.format_number(float(curves['overfitted'].max()))}, the "
        f"others {drawing.format_number(float(with_it.max()))}."
    )
