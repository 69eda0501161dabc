"""Figures of a sweep: the deciding estimates of all cells against the varied fields, or a repeated published table."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dashboards import drawing, estimates, legend, numbers
from dashboards.chart import Axis, Chart, Facet, Figure, Layer, estimate_marks, facet_panels, intervals
from dashboards.run import Run
from dashboards.summary import Row, finite, read_setting, row_label, shorten
from orchestrator.spec import resolve
from tasks.contract.grouping import group_by
from tasks.contract.summaries import name_of

LINES = 6  # maximum number of lines; more could not be distinguished, so the cells are listed instead
LETTERS = 52  # letters that fit below the panels
MOST = 4  # summary rows drawn if no verdict selects any
# Inches of a panel: the deciding row alone, and one of several rows.
LARGE = 2.6
PANEL = 1.5
OTHERS = "How do the other numbers change?"
Setting = Mapping[str, Any]
Name = tuple[str, str]  # metric and setting of a summary row


@dataclass(frozen=True)
class Cell:
    """One cell of a sweep: its distinguishing values as text, and its summary rows by metric and setting.

    `carrying` names the row that compares the cells, then the rows that decide its verdict.
    """

    setting: Mapping[str, str]
    rows: Mapping[Name, Row]
    carrying: Sequence[Name] = ()


@dataclass(frozen=True)
class SweepAxis:
    """The field on the x axis, its ordered values as text, and whether lines join the estimates."""

    field: str
    places: Sequence[str]
    joined: bool

    @classmethod
    def from_values(cls, field: str, values: Sequence[Any]) -> SweepAxis:
        """Create an axis for these values. Numbers are sorted and joined by lines."""
        return cls(field, _order_values(values), numeric(values))

    def index(self, cell: Cell) -> int:
        """Return the position of a cell on the axis."""
        return self.places.index(cell.setting[self.field])


def sweep(run: Run) -> Iterator[Figure]:
    """Yield figures of the cells' estimates against the varied fields.

    The first figure shows the first deciding row, the second has one panel per other deciding row.
    """
    settings = _varied_settings(run.cells)
    varied = varied_fields(settings)
    if not varied:
        return
    cells = []
    for of_run, setting in zip(run.cells, settings, strict=True):
        varied_setting = {name: value for name, value in setting.items() if name in varied}
        cells.append(_as_cell(of_run, varied_setting))
    aligned, carried = _align_cells([cell for cell in cells if cell.rows])
    names = []
    for name in carried:
        if any(_drawable(cell, name) for cell in aligned):
            names.append(name)
    if not names:
        return
    across = SweepAxis.from_values(varied[0], [setting[varied[0]] for setting in settings])
    lines = _group_by_line(aligned, varied[1:])
    fits = len(lines) <= LINES and sum(len(place) + 2 for place in across.places) <= LETTERS
    title = f"How does the answer change with {' and '.join(varied)}?"
    if len(aligned) == len(cells):
        of_all = ""
    else:
        of_all = f" {len(aligned)} of {len(cells)} cells have results."
    if fits:
        yield _line_chart(aligned, lines, names[:1], across, title, of_all)
        if len(names) > 1:
            others = _line_chart(aligned, lines, names[1:], across, OTHERS, of_all)
            yield replace(others, name="sweep-others")
    else:
        yield from _cell_forests(aligned, names, title, of_all)


def _as_cell(run: Run, setting: Setting) -> Cell:
    """Read a cell's summary and convert `setting` to text."""
    texts = {name: _value_label(value) for name, value in setting.items()}
    rows = {(row["metric"], row["setting"]): row for row in run.summary}
    carrying = [] if run.headline is None else [name_of(run.headline.row)]
    if run.verdict is not None:
        carrying.extend(run.verdict.rows)
    return Cell(texts, rows, list(dict.fromkeys(carrying)))


def _group_by_line(cells: Sequence[Cell], field_names: Sequence[str]) -> dict[str, list[Cell]]:
    """Group the cells by line. Each line is labelled with the values of the fields that are not on the x axis."""
    return group_by(cells, lambda cell: ", ".join(f"{field} {cell.setting[field]}" for field in field_names))


def _varied_settings(cells: Sequence[Run]) -> list[Setting]:
    """Return each cell's values for all varied fields.

    If its run is older than the sweep, read them from its configuration.
    """
    settings = [cell.about.get("setting") or {} for cell in cells]
    names: dict[str, None] = {}
    for setting in settings:
        names |= dict.fromkeys(setting)
    completed: list[Setting] = []
    for cell, setting in zip(cells, settings, strict=True):
        config = cell.about.get("config")
        completed.append({name: setting.get(name, config_value(config, name)) for name in names})
    return completed


def name_cells(run: Run) -> tuple[str, list[str], list[str]]:
    """Return the varied fields as text, and the cell names with and without field names.

    All three are empty if there are fewer than two cells or no field varies.
    """
    settings = _varied_settings(run.cells)
    varied = varied_fields(settings)
    if not varied or len(run.cells) < 2:
        return "", [], []
    names = []
    labels = []
    for setting in settings:
        values = [_value_label(setting[field]) for field in varied]
        names.append(", ".join(f"{field} {value}" for field, value in zip(varied, values, strict=True)))
        labels.append(", ".join(values))
    return " and ".join(varied), names, labels


def config_value(config: Any, path: str) -> Any:
    """Return the value of a configuration field by its dotted path. Returns None if there is no such field."""
    for name in path.split("."):
        if isinstance(config, Mapping):
            config = config.get(name)
        else:
            config = None
    return config


def _align_cells(cells: Sequence[Cell]) -> tuple[list[Cell], list[Name]]:
    """Return the cells and the row names to draw: deciding rows, or the first rows if no cell has a verdict.

    If the deciding rows share one metric but differ in their settings (such as the last epoch of each cell), they are
    matched on the settings that they have in common.
    """
    carried = next((cell.carrying for cell in cells if cell.carrying), ())
    if not carried:
        all_names: dict[Name, None] = {}
        for cell in cells:
            all_names |= dict.fromkeys(cell.rows)
        return list(cells), list(all_names)[:MOST]
    row_names = []
    for cell in cells:
        row_names.append({name: _carrying_row(cell, name, carried) for name in carried})
    names = {}
    for name in carried:
        names[name] = _common_name([of_cell[name] for of_cell in row_names])
    aligned = []
    for cell, of_cell in zip(cells, row_names, strict=True):
        rows = dict(cell.rows)
        for name, row_name in of_cell.items():
            if row_name in cell.rows:
                rows[names[name]] = cell.rows[row_name]
        aligned.append(replace(cell, rows=rows))
    return aligned, list(names.values())


def _carrying_row(cell: Cell, name: Name, carried: Sequence[Name]) -> Name:
    """Return the cell's own deciding row for this metric if it is unique. Otherwise return the given name."""
    metric = name[0]
    own_rows = [row_name for row_name in cell.carrying if row_name[0] == metric]
    carried_metrics = [row_name[0] for row_name in carried]
    if len(own_rows) == 1 and carried_metrics.count(metric) == 1:
        return own_rows[0]
    return name


def _common_name(names: Sequence[Name]) -> Name:
    """Return the metric shared by these names and the settings in which they agree."""
    if len(set(names)) == 1:
        return names[0]
    settings = [read_setting(setting) for _, setting in names]
    shared = {}
    for field, value in settings[0].items():
        if all(setting.get(field) == value for setting in settings):
            shared[field] = value
    return names[0][0], json.dumps(shared)


def _drawable(cell: Cell, name: Name) -> bool:
    """Whether the cell has an estimate in this summary row."""
    return name in cell.rows and finite(cell.rows[name]["estimate"])


def varied_fields(settings: Sequence[Setting]) -> list[str]:
    """Return the fields that distinguish the cells.

    Numeric fields with the most values make the best axis, so they come first.
    """
    values: dict[str, dict[str, Any]] = {}
    labelled_settings = []
    for setting in settings:
        labels = {}
        for field, value in setting.items():
            labels[field] = _value_label(value)
            values.setdefault(field, {})[labels[field]] = value
        labelled_settings.append(labels)
    distinguishing = resolve.distinguishing_fields(labelled_settings)
    return sorted(distinguishing, key=lambda field: (not numeric(values[field].values()), -len(values[field])))


def _order_values(values: Sequence[Any]) -> list[str]:
    """Return the distinct values as text. Numbers are sorted, other values keep their order."""
    distinct = {_value_label(value): value for value in values}
    return sorted(distinct, key=lambda text: float(distinct[text])) if numeric(values) else list(distinct)


def numeric(values: Any) -> bool:
    return all(finite(value) and not isinstance(value, bool) for value in values)


def _value_label(value: Any) -> str:
    """Return a short label for a swept value. Data sets are named without digests."""
    if value is None:
        return "none"
    if isinstance(value, str):
        return shorten(value.partition("@")[0], 18)
    if isinstance(value, Mapping):
        return shorten(numbers.short(value), 18)
    if finite(value) and not isinstance(value, bool):
        return f"{value:g}"
    return shorten(json.dumps(value), 18)


def _line_chart(
    cells: Sequence[Cell],
    lines: Mapping[str, Sequence[Cell]],
    names: Sequence[Name],
    across: SweepAxis,
    title: str,
    note: str,
) -> Figure:
    """Draw one panel per summary row: its estimate against one field, with one line per value of the other fields."""
    panel = LARGE if len(names) == 1 else PANEL
    labels = []
    if any(lines):
        labels = [shorten(label, 2 * legend.ENTRY) for label in lines]
    column_count = legend.columns(list(lines))
    caption = (
        f"Estimates with 95 % intervals; the values of the axis are evenly spaced. {_null_caption(cells, names)}{note}"
    )
    alt = " ".join(describe_row(_cell_row(cell, name)) for name in names for cell in cells if _drawable(cell, name))
    ticks = (range(len(across.places)), across.places)
    axis = Axis(across.field, (-0.5, len(across.places) - 0.5), ticks=ticks, has_grid=False)
    facets = []
    for name in names:
        facets.append(Facet(list(_line_layers(lines.values(), name, across)), _row_title(name)))
    panels = facet_panels(facets, panel, axis, gap=0.42)
    height = panel * len(names) + 0.35 + legend.height(len(labels), column_count)
    entries = legend.series(labels, across.joined, linewidth=1.2)
    return Chart("sweep", title, caption, alt, height, panels, entries, column_count).figure()


def _line_layers(lines: Collection[Sequence[Cell]], name: Name, across: SweepAxis) -> Iterator[Layer]:
    """Yield the estimates for each line's cells, side by side, and their null values.

    Each null value is drawn as a dash at its axis position. If all null values are equal, they form one dashed line.
    """
    for index, ((colour, marker, dash), of_line) in enumerate(zip(drawing.SERIES, lines, strict=False)):
        line_cells = sorted((cell for cell in of_line if _drawable(cell, name)), key=across.index)
        x = np.array([across.index(cell) for cell in line_cells]) + (index - (len(lines) - 1) / 2) * 0.09
        look: dict[str, Any] = {"marker": marker, "linestyle": dash if across.joined else "none", "linewidth": 1.2}
        yield estimate_marks(x, [cell.rows[name] for cell in line_cells], colour, **look)
    cells = [cell for of_line in lines for cell in of_line if _drawable(cell, name)]
    nulls = set()
    for cell in cells:
        if finite(cell.rows[name]["null"]):
            nulls.add((across.index(cell), cell.rows[name]["null"]))
    if nulls:
        null_positions, values = np.array(sorted(nulls)).T
        dashes = {"linestyle": drawing.NULL["linestyle"]}
        yield intervals(
            values, null_positions - 0.5, null_positions + 0.5, "muted", drawing.NULL["linewidth"], level=True, **dashes
        )


def _cell_forests(cells: Sequence[Cell], names: Sequence[Name], title: str, note: str) -> Iterator[Figure]:
    """Yield forest plots with one row per cell, for when there are more cells than lines can show."""
    rows = []
    for name in names:
        for cell in cells:
            if _drawable(cell, name):
                rows.append(_cell_row(cell, name))
    for figure in estimates.forests(rows, "sweep", title, describe_row):
        yield replace(figure, caption=f"Each row is a cell: {', '.join(cells[0].setting)}. {figure.caption}{note}")


def _cell_row(cell: Cell, name: Name) -> Row:
    """Return the cell's summary row with the cell itself as the setting."""
    return {**cell.rows[name], "metric": _row_title(name), "setting": json.dumps(cell.setting), "published": None}


def _row_title(name: Name) -> str:
    """Return a title for a summary row: its metric and setting."""
    words = row_label({"setting": name[1]}, LETTERS - len(name[0]))
    if words == "all":
        return name[0]
    return f"{name[0]}, {words}"


def _null_caption(cells: Sequence[Cell], names: Sequence[Name]) -> str:
    """Describe the dashed line and the sample size of each estimate."""
    rows = [cell.rows[name] for cell in cells for name in names if _drawable(cell, name)]
    dashed = ""
    if any(finite(row["null"]) for row in rows):
        dashed = "Dashed: null value, expected without memorisation. "
    counts = sorted({row["n"] for row in rows if row["n"] is not None})
    units = ", ".join(sorted({row["unit"] for row in rows if row["unit"]}))
    n = "unknown"
    if counts:
        if len(counts) == 1:
            n = f"{counts[0]}"
        else:
            n = f"{counts[0]} to {counts[-1]}"
    return f"{dashed}n of each: {n} ({units or 'unknown unit'})."


def describe_row(row: Row) -> str:
    """Describe a cell's estimate and interval as text."""
    where = ", ".join(f"{field} {value}" for field, value in read_setting(row["setting"]).items())
    return f"{row['metric']} at {where}: {drawing.format_number(row['estimate'])}{estimates.format_ends(row)}."


def repetition(run: Run) -> Iterator[Figure]:
    """Yield figures that repeat a published table.

    They contain all cell estimates with a published value, labelled by the varied fields.
    """
    settings = _varied_settings(run.cells)
    fields = varied_fields(settings)
    rows = []
    for cell, setting in zip(run.cells, settings, strict=True):
        for row in cell.summary:
            if finite(row["published"]) and finite(row["estimate"]):
                rows.append(
                    {
                        **row,
                        "setting": json.dumps({"cell": cell_label(setting, fields), **read_setting(row["setting"])}),
                    }
                )
    yield from estimates.forests(rows, "published", estimates.REPEATED)


def cell_label(setting: Setting, fields: list[str]) -> str:
    """Return a short label for a cell's setting. Fields that are true appear as their names."""
    words = []
    for field in fields:
        if setting[field] is not False:
            words.append(field if setting[field] is True else _value_label(setting[field]))
    return ", ".join(words) or "plain"
