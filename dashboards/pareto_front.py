"""Plots the trials of a search by memorisation and utility: front, start, winner and fresh audits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from dashboards import drawing, layout, legend
from dashboards.chart import Axis, Chart, Figure, Layer, Panel, annotation, level, line
from dashboards.run import Run
from dashboards.summary import shorten
from orchestrator.inspection import search_results
from orchestrator.inspection.search_results import FRESH, START, SearchResults, value
from tasks.contract.objectives import Objective

HEIGHT = 3.9  # inches for the axes and their labels
LETTERS = 44  # letters in an axis label
Value = Mapping[str, Any]
Limits = tuple[float, float]


@dataclass(frozen=True)
class Point:
    """A trial with both estimates. `kind` is a key of `LOOKS`."""

    kind: str
    label: str
    memorization: Value
    utility: Value


@dataclass(frozen=True)
class Look:
    """Appearance of one kind of point: name, colour, marker, size, fill and opacity."""

    words: str
    colour: str
    marker: str
    size: float
    filled: bool = True
    strength: float = 1.0


# Each kind has its own marker shape. A fresh audit uses the shape of its trial, unfilled.
LOOKS: Mapping[str, Look] = {
    "dominated": Look("dominated by another trial", "muted", "o", 3.5, strength=0.45),
    "stopped": Look("stopped early", "muted", "x", 4.5, strength=0.45),
    "front": Look("on the front", "accent", "o", 6),
    "start": Look("start", "ink", "s", 7),
    "winner": Look("winner", "violet", "D", 7.5),
    "fresh start": Look("start, fresh seeds", "ink", "s", 12, filled=False),
    "fresh winner": Look("winner, fresh seeds", "violet", "D", 12.5, filled=False),
}
FAINT = ("dominated", "stopped")
NUMBERED = ("winner", "start", "front")  # priority when there is no room for all numbers
APART = 0.06  # minimum distance between two numbers, as a fraction of the axes
ALLOWED: Mapping[str, Any] = {"color": drawing.light("ochre"), "linewidth": 1.4, "linestyle": (0, (5, 2))}


def pareto_front(run: Run) -> Iterator[Figure]:
    """Yield the figure. Yields nothing if no trial has both estimates or the audit is not installed."""
    search = run.search
    objectives = run.objectives
    if search is None or objectives is None:
        return
    drawn_points = points(search)
    if not drawn_points:
        return
    memorization = objectives.memorization
    utility = objectives.utility
    start = next((point for point in drawn_points if point.kind == "start"), None)
    if start is None:
        least_utility = None
    else:
        least_utility = start.utility["estimate"] - utility.sign * search.settings["give_up"]
    existing_kinds = {point.kind for point in drawn_points}
    kinds = [kind for kind in LOOKS if kind in existing_kinds]
    entries = [_legend_entry(kind) for kind in kinds]
    if least_utility is not None:
        entries += [legend.line("lowest acceptable utility", **ALLOWED)]
    across, up = axis_limits(drawn_points, memorization, utility, least_utility)
    x_label = f"{memorization.name}, {memorization.unit} ({memorization.better} is better)"
    panel = Panel(
        layout.wide_box(0.55, HEIGHT - 0.65),
        [
            _front_line(
                [point for point in drawn_points if point.kind == "front" or point.label in _front_labels(search)]
            ),
            *([] if least_utility is None else [level(least_utility, ALLOWED)]),
            *chain.from_iterable(map(_trial_layers, sorted(drawn_points, key=lambda point: kinds.index(point.kind)))),
            *_trial_numbers([point for point in drawn_points if point.kind in NUMBERED], across, up),
        ],
        Axis(shorten(x_label, LETTERS), across),
        Axis(shorten(f"{utility.name}, {utility.unit}", LETTERS - 8), up),
    )
    yield Chart(
        "front",
        "How much utility does less memorisation cost?",
        figure_caption(search, utility, least_utility),
        " ".join(_describe_point(point, memorization, utility) for point in drawn_points),
        HEIGHT + legend.height(len(entries)),
        [panel],
        entries,
    ).figure()


def points(search: SearchResults) -> list[Point]:
    """Return a point for each trial that has both estimates, in table order."""
    drawn_points = []
    for row in search.trials:
        memorization = value(row, "memorization")
        utility = value(row, "utility")
        if memorization is not None and utility is not None:
            if row["trial"] == START:
                label = "start"
            else:
                label = f"{row['trial']}"
            drawn_points.append(Point(kind(search, row), label, memorization, utility))
    return drawn_points


def kind(search: SearchResults, row: search_results.Row) -> str:
    """Return the kind of a trial's point, which is a key of `LOOKS`."""
    if search.answer is None:
        winner = None
    else:
        winner = search.answer.winner
    if row["part"] == FRESH:
        if row["trial"] == START:
            return "fresh start"
        return "fresh winner"
    if row["trial"] == START:
        return "start"
    if row["trial"] == winner:
        return "winner"
    if row["front"]:
        return "front"
    if row["state"] == "stopped early":
        return "stopped"
    return "dominated"


def _front_labels(search: SearchResults) -> set[str]:
    """Return the labels of the trials on the front."""
    labels = set()
    for row in search.trials:
        if row["front"]:
            labels.add("start" if row["trial"] == START else f"{row['trial']}")
    return labels


def axis_limits(
    drawn_points: Sequence[Point], memorization: Objective, utility: Objective, least_utility: float | None
) -> tuple[Limits, Limits]:
    """Return axis limits that contain all estimates, and the intervals of all points that are not faint.

    Better values are to the left and at the top.
    """
    strong = [point for point in drawn_points if point.kind not in FAINT] or drawn_points
    x = [point.memorization["estimate"] for point in drawn_points] + _interval_ends(
        [point.memorization for point in strong]
    )
    y = [point.utility["estimate"] for point in drawn_points] + _interval_ends([point.utility for point in strong])
    low_memorization, high_memorization = drawing.padded_limits(x)
    low, high = drawing.padded_limits([*y, *([] if least_utility is None else [least_utility])])
    return (
        (low_memorization, high_memorization)
        if memorization.better == "lower"
        else (high_memorization, low_memorization),
        (low, high) if utility.better == "higher" else (high, low),
    )


def _interval_ends(values: Sequence[Value]) -> list[float]:
    result = []
    for estimate in values:
        for name in ("low", "high"):
            if estimate[name] is not None:
                result.append(estimate[name])
    return result


def _front_line(front: Sequence[Point]) -> Layer:
    """Draw a thin line along the front, in order of memorisation."""
    ordered = sorted(
        (point for point in front if not point.kind.startswith("fresh")),
        key=lambda point: point.memorization["estimate"],
    )
    x = [point.memorization["estimate"] for point in ordered]
    y = [point.utility["estimate"] for point in ordered]
    return line(x, y, "accent", linewidth=1.0, linestyle=(0, (2, 2)))


def _trial_layers(point: Point) -> Iterator[Layer]:
    """Yield the layers of a trial: one line per interval, and the marker."""
    look = LOOKS[point.kind]
    x, y = point.memorization["estimate"], point.utility["estimate"]
    bar: dict[str, Any] = {"linewidth": 0.7 if point.kind in FAINT else 1.4, "solid_capstyle": "butt"}
    for across, estimate in ((True, point.memorization), (False, point.utility)):
        if estimate["low"] is not None and estimate["high"] is not None:
            span = [estimate["low"], estimate["high"]]
            yield line(*((span, [y, y]) if across else ([x, x], span)), look.colour, alpha=look.strength, **bar)
    yield line([x], [y], look.colour, **mark(look))


def _trial_numbers(numbered_points: Sequence[Point], x_limits: Limits, y_limits: Limits) -> Iterator[Layer]:
    """Yield the trial numbers next to their markers, skipping numbers that would overlap an earlier one."""
    (left, right), (low, high) = x_limits, y_limits
    places: list[tuple[float, float]] = []
    for point in sorted(numbered_points, key=lambda point: NUMBERED.index(point.kind)):
        x, y = point.memorization["estimate"], point.utility["estimate"]
        position = ((x - left) / (right - left), (y - low) / (high - low))
        if all(
            abs(position[0] - position_taken[0]) > APART or abs(position[1] - position_taken[1]) > APART
            for position_taken in places
        ):
            places.append(position)
            colour = drawing.light(LOOKS[point.kind].colour)
            yield annotation(point.label, (x, y), (6, 6), color=colour, fontsize=drawing.TEXT - 1.5)


def mark(look: Look) -> dict[str, Any]:
    """Return the marker for one kind of point as matplotlib line properties."""
    colour = drawing.light(look.colour)
    return {
        "linestyle": "none",
        "marker": look.marker,
        "markersize": look.size,
        "markerfacecolor": colour if look.filled else "none",  # so that markers underneath stay visible
        "markeredgecolor": colour,
        "markeredgewidth": 1.2 if look.filled else 1.8,
        "alpha": look.strength,
    }


def _legend_entry(kind: str) -> Any:
    look = mark(LOOKS[kind])
    return legend.line(
        LOOKS[kind].words, **look | {"markersize": min(look["markersize"], 8.0)}
    )  # fits into one legend row


def figure_caption(search: SearchResults, utility: Objective, least_utility: float | None) -> str:
    units = sorted({str(row["memorization_unit"]) for row in search.trials if row["memorization_unit"]})
    counts = sorted({row["memorization_n"] for row in search.trials if row["memorization_n"] is not None})
    if len(set(counts)) == 1:
        n = f"{counts[0]}"
    else:
        n = f"{counts[0]} to {counts[-1]}"
    if least_utility is None:
        allowed = ""
    else:
        allowed = f"Below the dashed line, the loss of {utility.name} is too large. "
    fresh = any(row["part"] == FRESH for row in search.trials)
    fresh_note = ""
    if fresh:
        fresh_note = (
            "Hollow marks: audited again with fresh seeds. They decide the answer, because the winner was selected for "
            "its number. "
        )
    return (
        f"Each mark is a trial, numbered as in the table below, with the 95 % intervals of memorisation and utility. "
        f"Left: less memorisation. Top: higher utility. {allowed}{fresh_note}n of each: {n} ({', '.join(units)})."
    )


def _describe_point(point: Point, memorization: Objective, utility: Objective) -> str:
    """Describe a trial as text for screen readers."""
    numbers = []
    for objective, estimate in ((memorization, point.memorization), (utility, point.utility)):
        interval = drawing.format_interval(estimate["low"], estimate["high"])
        numbers.append(f"{objective.name} {drawing.format_number(estimate['estimate'])}{interval}")
    if point.label == "start":
        number = ""
    else:
        number = f", trial {point.label}"
    words = LOOKS[point.kind].words
    return f"{words[0].upper()}{words[1:]}{number}: {', '.join(numbers)}."
