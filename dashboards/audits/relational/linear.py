"""The linear model: learning and memorization over time, and what differential privacy leaves of the latter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dashboards import drawing, legend
from dashboards.chart import Axis, Chart, Curve, Facet, Figure, curve, facet_panels, level, line, marks
from dashboards.columns import groups, numbers, with_columns
from dashboards.summary import finite

STEP, PRIVATE_STEP = 2.1, 1.8  # inches from a panel to the next
LINES: dict[str, tuple[str, legend.Series]] = {
    "learning": ("1 - loss", ("twin", "", "-")),
    "memorization": ("memorization, raw query", ("canary", "", (0, (4, 2)))),
}
NULL = 0.5
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


@with_columns({"samples", "features", "time", *LINES})
def flow(table: pa.Table) -> Figure | None:
    """A panel for each size, with the bands of intervals over trainings: figures 1 and 5."""
    rows_of_size = {size: rows.sort_by("time") for size, rows in groups(table, "samples", "features").items()}
    trainings = sorted({int(count) for count in numbers(table, "n")})
    caption = (
        "Linear models trained to tell x from z = (x, y) by gradient flow from 0, on Gaussian samples. Learning is 1 "
        "less the loss; memorization 1 less the error of the answer to [0, y], which does not contain x. Both are "
        "about 1/2 where every answer is 0 (dashed): memorization above it is memory. Bands: 95 % intervals over "
        f"{' to '.join(map(str, trainings[:: max(1, len(trainings) - 1)]))} trainings, each on samples of its own."
    )
    facets: list[Facet] = []
    for (samples, features), rows in rows_of_size.items():
        times = numbers(rows, "time")
        layers = [level(NULL)]
        for name, (_, series) in LINES.items():
            columns = [numbers(rows, f"{name}{end}") for end in ("", "_low", "_high")]
            layers.append(curve(Curve(times, *columns), series, 1.5, 0.2, 0))
        last = len(facets) == len(rows_of_size) - 1
        across = Axis("time: steps times learning rate" if last else "", log=times.tolist(), worded=last)
        title = f"n = {samples} samples, d = {features} features"
        facets.append(Facet(layers, title, Axis(limits=(0.3, 1.03), most=4), across))
    return Chart(
        "linear",
        "How does a linear model memorise over time?",
        caption,
        " ".join(_describe_size(samples, features, rows) for (samples, features), rows in rows_of_size.items()),
        STEP * len(facets) + 0.4 + legend.height(len(LINES)),
        facet_panels(facets, STEP),
        [legend.series_entry(label, series, linewidth=1.5) for label, series in LINES.values()],
    ).figure()


def _describe_size(samples: int, features: int, part: pa.Table) -> str:
    values, times = numbers(part, "memorization"), numbers(part, "time")
    at = int(np.argmax(values))
    return (
        f"{samples} samples, {features} features: memorization is highest, "
        f"{drawing.format_number(float(values[at]))}, at "
        f"time {drawing.format_number(float(times[at]))}, and {drawing.format_number(float(values[-1]))} at the end."
    )


@with_columns(("mechanism", "epsilon", "m", "success_bound"))
def privacy(table: pa.Table) -> Figure | None:
    """A panel for each mechanism: m of the better query with its interval, below its bounds."""
    shown = {name: _better_query_rows(table.to_pylist(), name) for name in MECHANISMS}
    shown = {name: rows for name, rows in shown.items() if rows}
    if not shown:
        return None
    n = next(iter(shown.values()))[0]["n"]
    caption = (
        "m: how much more often x is told from y on training samples than on fresh ones, by the better of two queries. "
        "Lines: 95 % intervals over trainings, hidden where narrower than their mark. Above the lines of the bounds m "
        "cannot lie; epsilon / H(X) is for a pure epsilon only, which noisy gradient descent does not give. "
        f"n: {n:,} trainings at each epsilon, each on samples of its own."
    )
    colour, marker, _ = drawing.SERIES[0]
    handles = [legend.line("measured m", color=drawing.light(colour), marker=marker, linewidth=1.8)]
    handles += [
        legend.line(label, color=drawing.light(bound), linestyle=dash, linewidth=1.3)
        for label, bound, dash in BOUNDS.values()
    ]
    every = [row["epsilon"] for rows in shown.values() for row in rows]
    facets = [_mechanism_facet(name, rows) for name, rows in shown.items()]
    return Chart(
        "private",
        "What does differential privacy leave of it?",
        caption,
        " ".join(
            f"{MECHANISMS[name].capitalize()}: m {drawing.format_number(rows[0]['m'])} at epsilon "
            f"{rows[0]['epsilon']:g}, {drawing.format_number(rows[-1]['m'])} at {rows[-1]['epsilon']:g}."
            for name, rows in shown.items()
        ),
        PRIVATE_STEP * len(shown) + 0.45 + legend.height(3, 1),
        facet_panels(facets, PRIVATE_STEP, Axis("epsilon", log=every), foot=0.55),
        handles,
        columns=1,
    ).figure()


def _mechanism_facet(name: str, rows: Sequence[Row]) -> Facet:
    """m by epsilon with its intervals and bounds."""
    epsilons = [row["epsilon"] for row in rows]
    bounds = [
        line(
            epsilons,
            [row[column] if finite(row[column]) else np.nan for row in rows],
            bound,
            linestyle=dash,
            linewidth=1.3,
        )
        for column, (_, bound, dash) in BOUNDS.items()
    ]
    whole = [row for row in rows if finite(row["low"])]
    path = drawing.segment_path(*([row[end] for row in whole] for end in ("epsilon", "low", "high")))
    colour, marker, _ = drawing.SERIES[0]
    measured = [line(*path, colour, linewidth=1.8), marks(epsilons, [row["m"] for row in rows], colour, marker, 5)]
    return Facet([level(0), *bounds, *measured], MECHANISMS[name], Axis(limits=(-0.06, 1.0), most=4))


def _better_query_rows(rows: Sequence[Row], mechanism: str) -> list[Row]:
    """The rows of a mechanism by epsilon, of the query with the larger m each."""
    best: dict[float, Row] = {}
    for row in rows:
        if row["mechanism"] == mechanism and row["epsilon"] is not None:
            epsilon = row["epsilon"]
            best[epsilon] = row if epsilon not in best or row["m"] > best[epsilon]["m"] else best[epsilon]
    return [best[epsilon] for epsilon in sorted(best)]
