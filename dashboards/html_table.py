"""Large tables as compact HTML, so that a table with a thousand rows and sixty columns opens quickly."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from markupsafe import Markup, escape

from dashboards.run import Run
from orchestrator.inspection import status
from orchestrator.quantities import jsonable
from orchestrator.store import stored_keys

MOST = 1000  # rows shown


@dataclass(frozen=True)
class Sheet:
    """One table of a run, truncated to `shown_rows` rows and without the columns in `left_out`."""

    name: str
    rows: int
    columns: int
    shown_rows: int
    left_out: tuple[str, ...]
    html: Markup


@dataclass(frozen=True)
class Unshown:
    """A table split over many jobs, too large to show on a page."""

    name: str
    results: int
    planned: int


def sheets(run: Run) -> tuple[list[Sheet], list[Unshown]]:
    """Return the run's stored tables except the summary: first the tables to show, then those that are too large.

    A table is too large if it is split over many jobs.
    """
    shown_sheets: list[Sheet] = []
    unshown: list[Unshown] = []
    if run.cells:
        return shown_sheets, unshown
    existing_keys = stored_keys(run.store)
    for name, keys in status.roots(run.journal).items():
        stored_count = sum(key in existing_keys for key in keys)
        if name == "summary" or not stored_count:
            continue
        if len(keys) > 1:
            unshown.append(Unshown(name, stored_count, len(keys)))
        else:
            shown_sheets.append(sheet(name, run.table(name)))
    return shown_sheets, unshown


def sheet(name: str, table: pa.Table) -> Sheet:
    """Return the table's first rows. Columns of lists, records and bytes are left out."""
    columns = []
    for index, field in enumerate(table.schema):
        if not _opaque(field.type):
            columns.append(index)
    first = table.select(columns).slice(0, MOST)
    # HTML permits omitting the closing tags of cells and rows, and quotes around plain values.
    head = "".join(f"<th scope=col>{escape(name)}" for name in first.schema.names)
    cells = []
    for column in first.columns:
        cells.append([_cell(value) for value in column.to_pylist()])
    body = "".join(f"<tr>{''.join(row)}\n" for row in zip(*cells, strict=True))
    names = table.schema.names
    return Sheet(
        name=name,
        rows=table.num_rows,
        columns=table.num_columns,
        shown_rows=first.num_rows,
        left_out=tuple(name for index, name in enumerate(names) if index not in columns),
        html=Markup(f"<thead><tr>{head}<tbody>{body}"),
    )


def _opaque(kind: pa.DataType) -> bool:
    tests: tuple[Callable[[pa.DataType], bool], ...] = (
        pa.types.is_nested,
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_fixed_size_binary,
    )
    return any(test(kind) for test in tests)


def _cell(value: Any) -> str:
    """Render a table cell. A float carries all its digits in `title`."""
    if value is None:
        return "<td>"
    if isinstance(value, float):
        if math.isfinite(value):
            return f"<td title={value!r}>{value:.4g}"
        return f"<td>{value}"
    if isinstance(value, int):
        return f"<td>{value}"
    return f"<td class=text>{escape(jsonable(value))}"
