"""Memory and overfitting of kernel densities in one dimension, as in figure 1."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dashboards import drawing, layout, legend
from dashboards.audits.density.observations import Array
from dashboards.columns import numbers
from dashboards.figure import Figure

NAMES = {
    "with_point": ("trained on all points", "twin", "-"),
    "without_point": ("without one point", "canary", (0, (4, 2))),
    "overfitted": ("overfitted", "violet", (0, (1, 1.5))),
}
PANELS = (("with_point", "without_point"), ("with_point", "overfitted"))
TITLES = ("memorised: one point away, and the density changes there", "overfitted: too narrow everywhere")
PANEL = 1.55  # inches


def kernel_density(table: pa.Table) -> Figure | None:
    """The density with and without the point, and beside the overfitted one."""
    if not {"x", *NAMES} <= set(table.column_names):
        return None
    columns = np.stack([numbers(table, name) for name in ("x", *NAMES)])
    columns = columns[:, ~np.isnan(columns).any(axis=0)]
    if columns.shape[1] < 2:
        return None
    x, *values = columns[:, np.argsort(columns[0], kind="stable")]
    curves = dict(zip(NAMES, values, strict=True))
    caption = (
        "A kernel density of points on a line, exact and without chance. Shade: what one point does to it. M of that "
        "point is the logarithm of the ratio of the two densities where it lies: memory is local, and differs from an "
        "overfitted density, which is wrong everywhere."
    )
    title = "What is meant by memory, and how does it differ from overfitting?"
    return Figure("kernel", title, caption, describe_densities(x, curves), draw_svg(x, curves))


def draw_svg(x: Array, curves: dict[str, Array]) -> str:
    """The densities as SVG, two in each panel."""
    figure = drawing.canvas(PANEL * len(PANELS) + 2 * legend.ROW + 0.37)
    most = max(float(values.max()) for values in curves.values())
    panels = layout.stack_axes(figure, len(PANELS), PANEL)
    for axes, names, title in zip(panels, PANELS, TITLES, strict=True):
        axes.set_title(title, fontsize=drawing.TEXT)
        if "without_point" in names:
            axes.fill_between(
                x, curves["without_point"], curves["with_point"], color=drawing.light("canary-band"), linewidth=0
            )
        for name in names:
            _, colour, dash = NAMES[name]
            axes.plot(x, curves[name], color=drawing.light(colour), linewidth=1.8, linestyle=dash)
        axes.set_xlim(float(x[0]), float(x[-1]))
        axes.set_ylim(0, 1.06 * most)
        drawing.set_ticks(axes, 6, 4)
        axes.tick_params(labelbottom=axes is panels[-1])
        axes.set_ylabel("density")
    panels[-1].set_xlabel("x")
    lines = [
        legend.line(label, color=drawing.light(colour), linewidth=1.8, linestyle=dash)
        for label, colour, dash in NAMES.values()
    ]
    legend.add_above(figure, lines)
    return drawing.svg(figure, "kernel")


def describe_densities(x: Array, curves: dict[str, Array]) -> str:
    with_it, without = curves["with_point"], curves["without_point"]
    at = int((with_it - without).argmax())
    ratio = float(np.log(with_it[at] / without[at])) if without[at] > 0 else None
    least = "" if ratio is None else f", M {drawing.format_number(ratio)} nats"
    return (
        f"The point matters most at x = {drawing.format_number(float(x[at]))}"
        f": density {drawing.format_number(float(with_it[at]))} "
        f"with it and {drawing.format_number(float(without[at]))} without{least}. The overfitted density reaches "
        f"{drawing.format_number(float(curves['overfitted'].max()))}, the "
        f"others {drawing.format_number(float(with_it.max()))}."
    )
