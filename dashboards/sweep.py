"""A sweep's cells in one picture: what the answer rests on, over what was varied."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboards import drawing, estimates
from dashboards.estimates import Row, finite, shortened
from dashboards.figure import Figure
from dashboards.run import Run
from orchestrator.inspection import labels

LINES = 6  # more of them cannot be told apart: then the cells are listed
LETTERS = 52  # that fit below the panels
ENTRY = 24  # letters of a legend's entry that leave room for another beside it
MOST = 4  # rows of the summary where no verdict names any
PANEL = 1.5  # inches
Setting = Mapping[str, Any]
Name = tuple[str, str]  # metric and setting of a row of the summary


@dataclass(frozen=True)
class Cell:
    """What tells a sweep's cell from the others, each value as text, and its summary by metric and setting."""

    setting: Mapping[str, str]
    rows: Mapping[Name, Row]


def sweep(run: Run) -> Iterator[Figure]:
    """The cells' estimates over what was varied, a panel for each row of the summary that carries the verdict."""
    settings = varied_in(run.cells)
    varied = fields(settings)
    if not varied:
        return
    settings = [{name: value for name, value in setting.items() if name in varied} for setting in settings]
    cells = [cell(each, setting) for each, setting in zip(run.cells, settings, strict=True)]
    there = [each for each in cells if each.rows]
    names = [name for name in carrying(run, there) if any(drawable(each, name) for each in there)]
    if not names:
        return
    across, *others = varied
    lines = list(dict.fromkeys(tuple(each.setting[field] for field in others) for each in there))
    places = ordered([setting[across] for setting in settings])
    fits = len(lines) <= LINES and sum(len(place) + 2 for place in places) <= LETTERS
    joined = numeric([setting[across] for setting in settings])
    drawn = in_panels(there, names, across, others, places, joined) if fits else listed(there, names)
    of_all = "" if len(there) == len(cells) else f" {len(there)} of {len(cells)} cells are there yet."
    yield Figure(
        "sweep",
        f"How does the answer change with {' and '.join(varied)}?",
        f"{drawn.caption}{of_all}",
        " ".join(said(each, name) for name in names for each in there if drawable(each, name)),
        drawn.svg,
    )


def cell(run: Run, setting: Setting) -> Cell:
    texts = {name: word(value) for name, value in setting.items()}
    return Cell(texts, {(row["metric"], row["setting"]): row for row in run.summary})


def varied_in(cells: Sequence[Run]) -> list[Setting]:
    """Each cell's values of all that is varied. A cell that was a run before the sweep has them in its config alone."""
    settings = [cell.about.get("setting") or {} for cell in cells]
    names = list(dict.fromkeys(name for setting in settings for name in setting))
    return [
        {name: setting.get(name, at(cell.about.get("config"), name)) for name in names}
        for cell, setting in zip(cells, settings, strict=True)
    ]


def at(config: Any, path: str) -> Any:
    """The value of a config's field, dotted where it is nested; None where there is none."""
    for name in path.split("."):
        config = config.get(name) if isinstance(config, Mapping) else None
    return config


def carrying(run: Run, cells: Sequence[Cell]) -> list[Name]:
    """The rows that carry the verdict, or the first of the summary where there is none."""
    verdict = next((each.verdict for each in run.cells if each.verdict), None)
    if verdict is not None:
        return list(verdict.rows)
    return list(dict.fromkeys(name for each in cells for name in each.rows))[:MOST]


def drawable(cell: Cell, name: Name) -> bool:
    return name in cell.rows and finite(cell.rows[name]["estimate"])


def fields(settings: Sequence[Setting]) -> list[str]:
    """What tells the cells apart: numbers with the most values first, since they make the best axis."""
    values: dict[str, dict[str, Any]] = {}
    for setting in settings:
        for field, value in setting.items():
            values.setdefault(field, {})[word(value)] = value
    telling = labels.telling([{field: word(value) for field, value in setting.items()} for setting in settings])
    return sorted(telling, key=lambda field: (not numeric(values[field].values()), -len(values[field])))


def ordered(values: Sequence[Any]) -> list[str]:
    """The swept values as text: numbers in their order, others as they were given."""
    distinct = {word(value): value for value in values}
    return sorted(distinct, key=lambda text: float(distinct[text])) if numeric(values) else list(distinct)


def numeric(values: Any) -> bool:
    return all(finite(value) and not isinstance(value, bool) for value in values)


def word(value: Any) -> str:
    """A swept value in few letters; a data set without its digest."""
    if value is None:
        return "none"
    if isinstance(value, str):
        return shortened(value.partition("@")[0], 18)
    return f"{value:g}" if finite(value) and not isinstance(value, bool) else shortened(json.dumps(value), 18)


@dataclass(frozen=True)
class Drawn:
    svg: str
    caption: str


def in_panels(
    cells: Sequence[Cell], names: Sequence[Name], across: str, others: list[str], places: list[str], joined: bool
) -> Drawn:
    """A panel for each row: its estimate over one field, a line for each value of the others; `joined` over numbers."""
    lines: dict[tuple[str, ...], list[Cell]] = {}
    for each in cells:
        lines.setdefault(tuple(each.setting[field] for field in others), []).append(each)
    labels = [", ".join(f"{field} {value}" for field, value in zip(others, values, strict=True)) for values in lines]
    beside = 2 if max(map(len, labels)) <= ENTRY else 1
    legend = 0.27 * -(-len(lines) // beside) if others else 0.0
    figure = drawing.canvas(PANEL * len(names) + 0.35 + legend)
    for at, name in enumerate(names):
        bottom = 0.5 + PANEL * (len(names) - 1 - at)
        axes = drawing.place(figure, 0.75, bottom, drawing.WIDTH - 0.95, PANEL - 0.42)
        for index, of_line in enumerate(lines.values()):
            offset = (index - (len(lines) - 1) / 2) * 0.09
            colour, marker, dash = drawing.SERIES[index]
            look = {"color": drawing.light(colour), "marker": marker, "linestyle": dash if joined else "none"}
            line(axes, [each for each in of_line if drawable(each, name)], name, across, places, offset, look)
        nulls(axes, cells, name, across, places)
        axes.set_xlim(-0.5, len(places) - 0.5)
        drawing.ticks(axes, up=4)
        axes.set_xticks(range(len(places)), places if at + 1 == len(names) else [""] * len(places))
        axes.grid(axis="x", visible=False)
        axes.set_title(titled(name), fontsize=drawing.TEXT)
    axes.set_xlabel(across)
    if others:
        key(figure, labels, beside, joined)
    return Drawn(
        drawing.svg(figure, "sweep"),
        f"Estimates with their 95 % intervals; values stand evenly apart. {about_null(cells, names)}",
    )


def line(
    axes: Any, cells: Sequence[Cell], name: Name, across: str, places: list[str], offset: float, look: dict[str, Any]
) -> None:
    cells = sorted(cells, key=lambda each: places.index(each.setting[across]))
    x = [places.index(each.setting[across]) + offset for each in cells]
    rows = [each.rows[name] for each in cells]
    axes.plot(x, [row["estimate"] for row in rows], linewidth=1.2, **look)
    for at, row in zip(x, rows, strict=True):
        if finite(row["low"]) and finite(row["high"]):
            axes.plot([at, at], [row["low"], row["high"]], color=look["color"], linewidth=1.8, solid_capstyle="butt")


def nulls(axes: Any, cells: Sequence[Cell], name: Name, across: str, places: list[str]) -> None:
    """A dashed line where all cells have one null; a dash over each of the values where they differ."""
    found = [(each.setting[across], each.rows[name]["null"]) for each in cells if drawable(each, name)]
    for place, null in sorted({(place, null) for place, null in found if finite(null)}):
        at = places.index(place)
        axes.plot(
            [at - 0.5, at + 0.5], [null, null], color=drawing.light("muted"), linewidth=1.2, linestyle=(0, (4, 3))
        )


def listed(cells: Sequence[Cell], names: Sequence[Name]) -> Drawn:
    """A row for each cell, where there are too many for lines."""
    rows = [
        {**each.rows[name], "metric": titled(name), "setting": json.dumps(each.setting), "published": None}
        for name in names
        for each in cells
        if drawable(each, name)
    ]
    figure = estimates.forest(rows, "sweep", "")
    return Drawn(figure.svg, f"A row is a cell: {', '.join(cells[0].setting)}. {figure.caption}")


def key(figure: Any, labels: Sequence[str], beside: int, joined: bool) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D(
            [],
            [],
            color=drawing.light(colour),
            marker=marker,
            linestyle=dash if joined else "none",
            linewidth=1.2,
            label=shortened(label, 2 * ENTRY),
        )
        for (colour, marker, dash), label in zip(drawing.SERIES, labels, strict=False)
    ]
    figure.legend(handles=handles, loc="upper left", ncols=beside, bbox_to_anchor=(0, 1), borderaxespad=0.1)


def titled(name: Name) -> str:
    """A row of the summary by name: its metric and what was varied in it."""
    words = estimates.label({"setting": name[1]})
    return name[0] if words == "all" else f"{name[0]}, {words}"


def about_null(cells: Sequence[Cell], names: Sequence[Name]) -> str:
    rows = [each.rows[name] for each in cells for name in names if drawable(each, name)]
    dashed = "Dashed: where nothing is memorised. " if any(finite(row["null"]) for row in rows) else ""
    counts = sorted({row["n"] for row in rows if row["n"] is not None})
    units = ", ".join(sorted({row["unit"] for row in rows if row["unit"]}))
    n = "" if not counts else f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{dashed}n of each: {n or 'not said'} ({units or 'unit not said'})."


def said(cell: Cell, name: Name) -> str:
    row = cell.rows[name]
    where = ", ".join(f"{field} {value}" for field, value in cell.setting.items())
    interval = ""
    if finite(row["low"]) and finite(row["high"]):
        interval = f", {drawing.number(row['low'])} to {drawing.number(row['high'])}"
    return f"{titled(name)} at {where}: {drawing.number(row['estimate'])}{interval}."
