"""A paper's table over the cells of a sweep: each number of ours beside the published one."""

from __future__ import annotations

import json
from collections.abc import Iterator

from dashboards import estimates, sweep
from dashboards.figure import Figure
from dashboards.run import Run


def repetition(run: Run) -> Iterator[Figure]:
    """The estimates of all cells for which there is a published number, each named by what its cell varied."""
    settings = sweep.varied_in(run.cells)
    fields = sweep.fields(settings)
    rows = [
        {**row, "setting": json.dumps({"cell": named(setting, fields), **json.loads(row["setting"] or "{}")})}
        for cell, setting in zip(run.cells, settings, strict=True)
        for row in cell.summary
        if estimates.finite(row["published"]) and estimates.finite(row["estimate"])
    ]
    if rows:
        yield estimates.forest(rows, "published", estimates.REPEATED)


def named(setting: sweep.Setting, fields: list[str]) -> str:
    """What a cell varied in few words: a switch by its name where it is on."""
    words = [
        field if setting[field] is True else sweep.word(setting[field])
        for field in fields
        if setting[field] is not False
    ]
    return ", ".join(words) or "plain"
