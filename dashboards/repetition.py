"""A paper's table as a sweep: each estimate beside the published value."""

from __future__ import annotations

import json
from collections.abc import Iterator

from dashboards import estimates, sweep
from dashboards.figure import Figure
from dashboards.run import Run


def repetition(run: Run) -> Iterator[Figure]:
    """The estimates of all cells that have a published value, labelled by what their cells varied."""
    settings = sweep.varied_settings(run.cells)
    fields = sweep.varied_fields(settings)
    rows = [
        {**row, "setting": json.dumps({"cell": cell_label(setting, fields), **json.loads(row["setting"] or "{}")})}
        for cell, setting in zip(run.cells, settings, strict=True)
        for row in cell.summary
        if estimates.finite(row["published"]) and estimates.finite(row["estimate"])
    ]
    if rows:
        yield estimates.forest(rows, "published", estimates.REPEATED)


def cell_label(setting: sweep.Setting, fields: list[str]) -> str:
    """A short label of a cell's setting; booleans by their names if true."""
    words = [
        field if setting[field] is True else sweep.value_label(setting[field])
        for field in fields
        if setting[field] is not False
    ]
    return ", ".join(words) or "plain"
