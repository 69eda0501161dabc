"""The tables of a run or sweep, as far as they are there, and the same as a file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from orchestrator import audits, status, tables
from orchestrator.errors import EngramError, SpecError
from orchestrator.fields import coerce, nearest
from orchestrator.journal import Journal
from orchestrator.jsonable import jsonable
from orchestrator.store import Store
from tasks.job import Verdict


@dataclass(frozen=True)
class Rows:
    """A table as far as it is there. `varied` are its first columns where it is a sweep's: cells and what they vary."""

    table: pa.Table
    planned: int  # results behind it
    absent: int
    varied: tuple[str, ...] = ()


def read(journal: Journal, store: Store, name: str) -> Rows:
    """The rows of one of the run's tables; a sweep's are those of its cells. SpecError for a table it has not."""
    about = journal.about()
    if "cells" not in about:
        return _rows(journal, store, name)
    cells = [Journal(store.folder("runs", run)) for run in about["cells"]]
    found = [_rows(each, store, name) for each in cells]
    settings = about.get("settings") or [each.about().get("setting") or {} for each in cells]
    fields = list(dict.fromkeys(field for setting in settings for field in setting))
    parts = [
        _beside(rows.table, {"run": cell.run} | {field: setting.get(field) for field in fields})
        for cell, rows, setting in zip(cells, found, settings, strict=True)
        if rows.table.num_columns
    ]
    whole = pa.concat_tables(parts, promote_options="permissive") if parts else pa.table({})
    varied = whole.schema.names[: len(fields) + 1]
    return Rows(whole, sum(r.planned for r in found), sum(r.absent for r in found), tuple(varied))


def answer(journal: Journal, store: Store) -> Verdict | None:
    """The audit's answer in words; None where its summary is not there yet, or the audit gives none or has gone.

    A sweep has no answer of its own: its cells have.
    """
    about = journal.about()
    if "cells" in about:
        return None
    try:
        audit = audits.find(about["audit"]).audit
    except EngramError:
        return None
    table = _rows(journal, store, "summary").table
    if audit.verdict is None or not table.num_rows:
        return None
    return audit.verdict(coerce(about["config"], audit.config, "config"), table)


def write(table: pa.Table, out: str) -> None:
    """Write the table as the file's ending says: .parquet, .csv or .arrow; whole or not at all."""
    path = Path(out).expanduser()
    writer = WRITERS.get(path.suffix)
    if writer is None:
        raise SpecError(f"--out {out}: a file must end in one of {', '.join(WRITERS)}")
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        writer(table, aside)
        os.replace(aside, path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise EngramError(f"cannot write {path}: {os.strerror(error.errno) if error.errno else error}") from None


def _rows(journal: Journal, store: Store, name: str) -> Rows:
    roots = status.roots(journal)
    if name not in roots:
        raise SpecError(f"run {journal.run} has no table {name!r}; it has {', '.join(roots)}{nearest(name, roots)}")
    stored = store.keys()
    there = [key for key in roots[name] if key in stored]
    rows = tables.read(store, there)
    return Rows(pa.table({}) if rows is None else rows, len(roots[name]), len(roots[name]) - len(there))


def _beside(table: pa.Table, values: dict[str, Any]) -> pa.Table:
    """The table with these columns in front, the same in each row."""
    for at, (name, value) in enumerate(values.items()):
        label = f"cell.{name}" if name in table.schema.names else name
        table = table.add_column(at, label, pa.array([value] * table.num_rows))
    return table


def _parquet(table: pa.Table, path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(table, path)


def _csv(table: pa.Table, path: Path) -> None:
    """Nested columns as JSON."""
    from pyarrow import csv

    for at, field in enumerate(table.schema):
        if pa.types.is_nested(field.type):
            texts = [None if value is None else json.dumps(jsonable(value)) for value in table[field.name].to_pylist()]
            table = table.set_column(at, field.name, pa.array(texts, pa.string()))
    csv.write_csv(table, path)


def _arrow(table: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {".parquet": _parquet, ".csv": _csv, ".arrow": _arrow}
