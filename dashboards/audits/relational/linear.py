"""Figures of the linear model: learning and memorization over time, and memorization under differential privacy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dashboards import drawing, legend
from dashboards.chart import Axis, Chart, Curve, Facet, Figure, curve, facet_panels, level, line, marks
from dashboards.columns import groups, numbers, with_columns
from dashboards.summary import finite

# Inches from one panel to the next.
STEP = 2.1
PRIVATE_STEP = 1.8
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
    """Draw one panel per size, with intervals over trainings (figures 1 and 5)."""
    rows_of_size = {size: rows.sort_by("time") for size, rows in groups(table, "samples", "features").items()}
    trainings = sorted({int(count) for count in numbers(table, "n")})
    caption = (
        "Linear models that predict x from z = (x, y), trained by gradient flow from 0 on Gaussian samples. Learning "
        "is 1 minus the loss. Memorization is 1 minus the error of the prediction for [0, y], which does not contain "
        "x. Both are about 1/2 if every prediction is 0 (dashed); memorization above 1/2 is memory. Bands: 95 % "
        f"intervals over {' to '.join(map(str, trainings[:: max(1, len(trainings) - 1)]))} trainings, each on its own "
        "samples."
    )
    facets: list[Facet] = []
    for (samples, features), rows in rows_of_size.items():
        times = numbers(rows, "time")
        layers = [level(NULL)]
        for name, (_, series) in LINES.items():
            columns = [numbers(rows, f"{name}{end}") for end in ("", "_low", "_high")]
            layers.append(curve(Curve(times, *columns), series, 1.5, 0.2, 0))
        last = len(facets) == len(rows_of_size) - 1
        across = Axis("time: steps times learning rate" if last else "", log=times.tolist(), has_tick_labels=last)
        title = f"n = {samples} samples, d = {features} features"
        facets.append(Facet(layers, title, Axis(limits=(0.3, 1.03), max_ticks=4), across))
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
    values = numbers(part, "memorization")
    times = numbers(part, "time")
    peak = int(np.argmax(values))
    return (
        f"{samples} samples, {features} features: memorization peaks at {drawing.format_number(float(values[peak]))} "
        f"(time {drawing.format_number(float(times[peak]))}) and ends at {drawing.format_number(float(values[-1]))}."
    )


@with_columns(("mechanism", "epsilon", "m", "success_bound"))
def privacy(table: pa.Table) -> Figure | None:
    """Draw one panel per mechanism: m of the better query with intervals and bounds."""
    rows_by_mechanism = {}
    for name in MECHANISMS:
        rows_by_mechanism[name] = _better_query_rows(table.to_pylist(), name)
    rows_by_mechanism = {name: rows for name, rows in rows_by_mechanism.items() if rows}
    if not rows_by_mechanism:
        return None
    n = next(iter(rows_by_mechanism.values()))[0]["n"]
    caption = (
        "m: success rate of predicting x from y on training samples, minus that on fresh samples, by the better of two "
        "queries. Lines: 95 % intervals over trainings, hidden if narrower than the marker. m cannot exceed the "
        "bounds; epsilon / H(X) requires a pure epsilon, which noisy gradient descent does not provide. "
        f"n: {n:,} trainings per epsilon, each on its own samples."
    )
    colour, marker, _ = drawing.SERIES[0]
    handles = [legend.line("measured m", color=drawing.light(colour), marker=marker, linewidth=1.8)]
    handles += [
        legend.line(label, color=drawing.light(bound), linestyle=dash, linewidth=1.3)
        for label, bound, dash in BOUNDS.values()
    ]
    every = [row["epsilon"] for rows in rows_by_mechanism.values() for row in rows]
    facets = [_mechanism_facet(name, rows) for name, rows in rows_by_mechanism.items()]
    return Chart(
        "private",
        "How much memorization remains under differential privacy?",
        caption,
        " ".join(
            f"{MECHANISMS[name].capitalize()}: m {drawing.format_number(rows[0]['m'])} at epsilon "
            f"{rows[0]['epsilon']:g}, {drawing.format_number(rows[-1]['m'])} at {rows[-1]['epsilon']:g}."
            for name, rows in rows_by_mechanism.items()
        ),
        PRIVATE_STEP * len(rows_by_mechanism) + 0.45 + legend.height(3, 1),
        facet_panels(facets, PRIVATE_STEP, Axis("epsilon", log=every), foot=0.55),
        handles,
        columns=1,
    ).figure()


def _mechanism_facet(name: str, rows: Sequence[Row]) -> Facet:
    """Draw m against epsilon with intervals and bounds."""
    epsilons = [row["epsilon"] for row in rows]
    bounds = []
    for column, (_, bound, dash) in BOUNDS.items():
        values = [row[column] if finite(row[column]) else np.nan for row in rows]
        bounds.append(line(epsilons, values, bound, linestyle=dash, linewidth=1.3))
    with_interval = [row for row in rows if finite(row["low"])]
    path = drawing.segment_path(*([row[end] for row in with_interval] for end in ("epsilon", "low", "high")))
    colour, marker, _ = drawing.SERIES[0]
    measured = [line(*path, colour, linewidth=1.8), marks(epsilons, [row["m"] for row in rows], colour, marker, 5)]
    return Facet([level(0), *bounds, *measured], MECHANISMS[name], Axis(limits=(-0.06, 1.0), max_ticks=4))


def _better_query_rows(rows: Sequence[Row], mechanism: str) -> list[Row]:
    """Return the rows of a mechanism by epsilon, for the query with the larger m."""
    best: dict[float, Row] = {}
    for row in rows:
        if row["mechanism"] == mechanism and row["epsilon"] is not None:
            epsilon = row["epsilon"]
            if epsilon not in best or row["m"] > best[epsilon]["m"]:
                best[epsilon] = row
    return [best[epsilon] for epsilon in sorted(best)]
