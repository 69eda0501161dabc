"""Compares lower bounds on epsilon with the accountant's epsilon, in sweeps with privately trained cells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboards import drawing, legend
from dashboards.chart import Axis, Chart, Facet, Figure, Layer, facet_panels, line
from dashboards.run import Run
from dashboards.summary import find_rows, format_range
from tasks.contract.epsilon_rows import AT_LEAST, BOUND, CONFIDENCE, SHOWN_AT_MOST, SPENT

PANEL = 2.2  # inches
WITHOUT = "none"  # label of the cell trained without privacy
LINEAR = 0.1  # the axis is linear up to this epsilon, because bounds are often 0


@dataclass(frozen=True)
class Rung:
    """One cell: the accountant's epsilon, the measured bounds and the largest attainable bounds by name.

    The accountant's epsilon is None if the cell was trained without privacy.
    """

    spent: float | None
    delta: float
    bounds: Mapping[str, float]
    largest_bounds: Mapping[str, float]
    n: Sequence[int]

    @property
    def name(self) -> str:
        if self.spent is None:
            return WITHOUT
        return drawing.format_number(self.spent)

    @property
    def description(self) -> str:
        if self.spent is None:
            where = "without privacy"
        else:
            where = f"accountant {self.name}"
        bounds = ", ".join(f"{name} {drawing.format_number(low)}" for name, low in self.bounds.items())
        return f"{where}: {bounds}."


def epsilon_bounds(run: Run) -> Iterator[Figure]:
    """Yield a figure of each cell's bounds and the accountant's epsilon, if any cell was trained with privacy."""
    rungs = [rung for rung in map(read_rung, run.cells) if rung is not None]
    if all(rung.spent is None for rung in rungs):
        return
    rungs.sort(key=lambda rung: (rung.spent is None, rung.spent))
    names = list(dict.fromkeys(name for rung in rungs for name in rung.bounds))
    entries = [
        *(legend.series_entry(name, look) for name, look in zip(names, drawing.SERIES, strict=False)),
        legend.line("accountant", color=drawing.light("violet"), linewidth=2.2),
    ]
    limit_note = ""
    if any(r.largest_bounds for r in rungs):
        limit_note = " Short thin line: the largest bound that this number of trainings can give."
    distinct_deltas = sorted({rung.delta for rung in rungs})
    deltas = ", ".join(f"{delta:g}" for delta in distinct_deltas)
    yield Chart(
        "epsilon-bounds",
        "Does the training reveal more than its epsilon allows?",
        f"Lower bounds on epsilon at delta {deltas}, each with a confidence of {100 * CONFIDENCE:g} %, and the epsilon "
        "of the accountant. A bound above it shows a broken promise; a bound below it does not prove the promise. "
        f"The axis is linear up to {LINEAR:g} and logarithmic above. none: trained without privacy.{limit_note} "
        f"n of each bound: {format_range([n for rung in rungs for n in rung.n])}.",
        " ".join(rung.description[:1].upper() + rung.description[1:] for rung in rungs),
        PANEL + 0.6 + legend.height(len(entries), 2),
        facet_panels([_rung_facet(rungs, names)], PANEL, foot=0.55),
        entries,
        columns=2,
    ).figure()


def read_rung(cell: Run) -> Rung | None:
    """Read the epsilon bounds of a cell. Returns None if it has none."""
    bound_rows = list(find_rows(cell.summary, AT_LEAST))
    if not bound_rows:
        return None
    spent = next((row["estimate"] for _, row in find_rows(cell.summary, SPENT)), None)
    limits = {}
    for setting, row in find_rows(cell.summary, SHOWN_AT_MOST):
        limits[setting[BOUND]] = row["estimate"]
    bounds = {setting[BOUND]: row["estimate"] for setting, row in bound_rows}
    return Rung(spent, bound_rows[0][0]["delta"], bounds, limits, [row["n"] for _, row in bound_rows])


def _rung_facet(rungs: Sequence[Rung], names: Sequence[str]) -> Facet:
    layers: list[Layer] = [
        line([index - 0.4, index + 0.4], [rung.spent] * 2, "violet", linewidth=2.2)
        for index, rung in enumerate(rungs)
        if rung.spent is not None
    ]
    step = 0.6 / max(1, len(names) - 1)
    for number, (name, (colour, marker, _)) in enumerate(zip(names, drawing.SERIES, strict=False)):
        rungs_by_x = {index - 0.3 + number * step: rung for index, rung in enumerate(rungs) if name in rung.bounds}
        for x, rung in rungs_by_x.items():
            if name in rung.largest_bounds:
                layers.append(line([x - 0.06, x + 0.06], [rung.largest_bounds[name]] * 2, "muted", linewidth=1.2))
        values = [rung.bounds[name] for rung in rungs_by_x.values()]
        layers.append(line(list(rungs_by_x), values, colour, marker=marker, markersize=6, linestyle="none"))
    ticks = (range(len(rungs)), [rung.name for rung in rungs])
    across = Axis("epsilon of the accountant", (-0.5, len(rungs) - 0.5), ticks=ticks, has_grid=False)
    return Facet(layers, y=Axis("lower bound on epsilon", max_ticks=None), x=across, finish=[_set_epsilon_axis])


def _set_epsilon_axis(axes: Any) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axes.set_yscale("symlog", linthresh=LINEAR, linscale=0.5)
    axes.set_ylim(bottom=-LINEAR / 4)
    axes.yaxis.set_major_locator(FixedLocator([0, 0.1, 0.3, 1, 3, 10, 30, 100]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
