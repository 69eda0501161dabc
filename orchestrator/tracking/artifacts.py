"""The artifacts of a run in the tracking store: the page, its figures, and tables.

They contain none of the user's own images: the page that shows these is a separate file, and tables omit binary
columns.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from orchestrator.inspection import answers, page_seal, pages, results, search_results, status
from orchestrator.inspection.search_results import SearchResults
from orchestrator.quantities import encodable, jsonable
from orchestrator.run_folder.journal import Journal
from orchestrator.store import Store
from orchestrator.store.entry import content
from orchestrator.store.regular_file import regular_bytes
from tasks.contract.schemas import SUMMARY

ROWS = 1000  # maximum rows of a table shown in MLflow's pages; the Parquet file has all of them
CELLS = "cells"  # name of the table with the answers of a sweep
LARGEST = 64 * 2**20  # size limit for uploaded tables, in bytes


@dataclass(frozen=True)
class Artifact:
    """A file and its `path` among the artifacts.

    If `table` is true, it is JSON with columns and data, which MLflow's pages display as a table.
    """

    path: str
    data: bytes
    table: bool = False

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


def run_artifacts(journal: Journal, store: Store, search: SearchResults | None) -> Iterator[Artifact]:
    """Yield the current artifacts of a run or sweep, or of `search` if it is given."""
    for path in _page_files(journal.folder):
        data = regular_bytes(path)
        # In MLflow, the pages of other runs are not in the same folder, and its frame does not follow links.
        if path.name == pages.PAGE:
            data = page_seal.make_standalone(data)
        yield Artifact(str(path.relative_to(journal.folder)), data)
    if search is not None:  # the search has its own tables, which describe the trials
        exported = {name: results.trials(search, name) for name in search_results.TABLES}
    else:
        exported = {name: results.export(journal, store, name) for name in single(journal)}
    tables = {name: (rows.table, rows.redundant_columns) for name, rows in exported.items()}
    if search is not None:
        cells = pa.table({})
    else:
        cells = _answers_of_cells(journal, store)
    for name, (all_columns, redundant_columns) in ({CELLS: (cells, ())} | tables if cells.num_rows else tables).items():
        table = shareable(all_columns)
        if not table.num_rows or table.nbytes > LARGEST:
            continue
        sink = io.BytesIO()
        _parquet(table, sink)
        yield Artifact(f"tables/{name}.parquet", sink.getvalue())
        is_complete = table.num_rows <= ROWS
        if is_complete:
            path_in_mlflow = f"tables/{name}.json"
        else:
            path_in_mlflow = f"tables/{name}, first {ROWS} of {table.num_rows} rows.json"
        columns = []
        for column in table.schema.names:
            if column not in redundant_columns:
                columns.append(column)
        rows = []
        for row in table.slice(0, ROWS).to_pylist():
            rows.append([jsonable(row[column], encodable) for column in columns])
        yield Artifact(path_in_mlflow, json.dumps({"columns": columns, "data": rows}).encode(), table=True)


def _answers_of_cells(journal: Journal, store: Store) -> pa.Table:
    """Return one row per sweep cell: its distinguishing fields, its effect in words, its answer and the effect's row.

    Returns an empty table for a single run.
    """
    rows = []
    for cell in answers.cell_answers(journal, store):
        summary_row = {} if cell.headline is None else cell.headline.row
        answer = cell.verdict.answer if cell.verdict else None
        row: dict[str, Any] = {**cell.varied, "effect": cell.effect or None, "answer": answer}
        row |= {name: summary_row.get(name) for name in SUMMARY.names}
        rows.append({**row, "run": cell.run})
    if rows:
        return pa.Table.from_pylist(rows)
    return pa.table({})


def _page_files(folder: Path) -> list[Path]:
    """Return the page and its figures, but never the page that shows the user's own images."""
    page = pages.page(folder)
    figures = sorted(path for path in (folder / "figures").glob("*") if path.is_file())
    return [*([page] if page else []), *figures]


def single(journal: Journal) -> list[str]:
    """Return the names of the tables computed by a single job.

    For a sweep, this must be true of every cell that has them.
    """
    cells = [journal.sibling(name) for name in journal.about().get("cells", ())]
    parts: dict[str, int] = {}
    for run in cells or [journal]:
        for name, keys in status.roots(run).items():
            parts[name] = max(parts.get(name, 0), len(keys))
    return [name for name, job_count in parts.items() if job_count == 1]


def fingerprint(journal: Journal, store: Store, search: SearchResults | None) -> str:
    """Return a hash that changes whenever an artifact does.

    To be fast, a table is represented by its key and whether it is stored.
    """
    digest = hashlib.sha256()
    for path in _page_files(journal.folder):
        digest.update(f"{path.name}\0{hashlib.sha256(regular_bytes(path)).hexdigest()}\n".encode())
    digest.update(json.dumps(journal.about(), sort_keys=True).encode())
    if search is not None:
        digest.update(content(search.table(search_results.TRIALS)).encode())
    for run in journal.parts():
        for keys in run.roots().values():
            if len(keys) == 1:
                digest.update(f"{keys[0]} {keys[0] in store}\n".encode())
    return digest.hexdigest()


def shareable(table: pa.Table) -> pa.Table:
    """Return the table without its metadata and without binary columns, which may contain images."""
    names = [field.name for field in table.schema if not _holds_bytes(field.type)]
    return table.select(names).replace_schema_metadata(None)


def _holds_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return True
    return any(_holds_bytes(kind.field(index).type) for index in range(kind.num_fields))


def _parquet(table: pa.Table, sink: io.BytesIO) -> None:
    import pyarrow.parquet as pq

    pq.write_table(table, sink)
