"""The tables of a run or sweep, complete or not, and their export to a file."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from orchestrator.errors import EngramError, SpecError
from orchestrator.headlines import headline_shape
from orchestrator.inspection import search_results, status
from orchestrator.inspection.disclosure import typed_config
from orchestrator.inspection.search_results import SearchResults
from orchestrator.planning.commitment import draw_of
from orchestrator.quantities import inert, jsonable
from orchestrator.run_folder import tables
from orchestrator.run_folder.journal import Journal
from orchestrator.run_folder.looks import read_look
from orchestrator.spec import audits, resolve
from orchestrator.spec.audits import RegisteredAudit
from orchestrator.spec.fields import coerce, nearest
from orchestrator.store import Store, atomic_write, stored_keys
from tasks.contract.audit import UndeclaredAnswer
from tasks.contract.certificate import Certificate
from tasks.contract.circumstances import Circumstances
from tasks.contract.commitment import Binding
from tasks.contract.decision_rates import add_rates
from tasks.contract.objectives import Headline, undeclared_headline
from tasks.contract.verdict import Verdict
from tasks.worker.files import FileError, expand_home

T = TypeVar("T")
SUMMARY = "summary"  # the table with an audit's numbers
EFFECT = b"engram.effect"  # in its metadata: the number that compares runs


@dataclass(frozen=True)
class Rows:
    """A table with the rows stored so far.

    The table of a sweep begins with columns for the run and the setting of each cell. `varied` lists the columns that
    distinguish the cells. `redundant_columns` lists columns that vary together with these or repeat other columns.
    """

    table: pa.Table
    planned_count: int  # number of planned results behind the table
    absent: int
    varied: tuple[str, ...] = ()
    redundant_columns: tuple[str, ...] = ()


def read(journal: Journal, store: Store, name: str) -> Rows:
    """Return the rows of one of the run's tables. For a sweep, return the rows of all cells that have the table.

    A search is a sweep of its trials, with the additional tables `trials` and `front`. Raises SpecError for a table
    that neither the run nor any cell of the sweep has.
    """
    if name in search_results.TABLES and search_results.is_search(journal.about()):
        return _trials(search_results.read_search(journal), name)
    settings = cells(journal)
    if not settings:
        return _rows(journal, store, name)
    by_cell = {}
    problem: SpecError | None = None
    for cell in settings:
        try:
            by_cell[cell] = _rows(journal.sibling(cell), store, name)
        except SpecError as error:
            problem = problem or error
    if problem is not None and not by_cell:
        raise problem
    fields = list(dict.fromkeys(field for setting in settings.values() for field in setting))
    columns: dict[str, list[Any]] = {"run": list(settings)}
    for field in fields:
        columns[field] = tables.uniform([setting.get(field) for setting in settings.values()])
    parts = []
    for index, cell in enumerate(settings):
        if cell in by_cell and by_cell[cell].table.num_columns:
            values = {field: column[index] for field, column in columns.items()}
            parts.append(_prepend_columns(by_cell[cell].table, values))
    if parts:
        table = pa.concat_tables(parts, promote_options="permissive")
    else:
        table = pa.table({})
    distinguishing_fields = {"run", *resolve.distinguishing_fields(list(settings.values()))}
    column_names = list(zip(columns, table.schema.names, strict=False))  # a column name may differ from the field name
    return Rows(
        table=table,
        planned_count=sum(rows.planned_count for rows in by_cell.values()),
        absent=sum(rows.absent for rows in by_cell.values()),
        varied=tuple(column for field, column in column_names if field in distinguishing_fields),
        redundant_columns=tuple(column for field, column in column_names if field not in distinguishing_fields),
    )


def table_names(journal: Journal) -> tuple[str, ...]:
    """Return the names of the tables of a run, of the cells of a sweep, or of a search."""
    names: dict[str, None] = {}
    if search_results.is_search(journal.about()):
        names |= dict.fromkeys(search_results.TABLES)
    for cell in cells(journal) or (journal.run,):
        names |= dict.fromkeys(status.roots(journal.sibling(cell)))
    return tuple(names)


def export(journal: Journal, store: Store, name: str) -> Rows:
    """Return the table of `read` in the form shown to users, with the run and the settings of a summary as columns."""
    if name in search_results.TABLES and (search := search_results.read_if_search(journal)) is not None:
        return trials(search, name)
    rows = read(journal, store, name)
    if rows.varied:
        table = tables.flatten_settings(rows.table)
    else:
        table = tables.flatten_table(rows.table, journal.run)
    if name == SUMMARY:
        table = _describe_effect(table, headline(journal, store))
    added = []
    for column in table.schema.names:
        if column not in rows.table.schema.names:
            added.append(column)
    return replace(rows, table=table, redundant_columns=(*rows.redundant_columns, *added))


def _describe_effect(table: pa.Table, effect: Headline | None) -> pa.Table:
    """Return a summary with the number that compares runs in its metadata, as JSON with the unit of the estimate."""
    if effect is None:
        return table
    shape = json.dumps(jsonable(headline_shape(effect)))
    return table.replace_schema_metadata({**(table.schema.metadata or {}), EFFECT: shape.encode()})


def trials(search: SearchResults, name: str) -> Rows:
    """Return a table of a search in the form shown to users, with one column per choice."""
    rows = _trials(search, name)
    return replace(
        rows, table=tables.flatten_settings(rows.table), redundant_columns=(search_results.SEARCH, tables.SETTING)
    )


def summary(journal: Journal, store: Store) -> Rows:
    """Return the summary. It is empty if all tables that it summarises failed and the failures were tolerated."""
    try:
        return read(journal, store, SUMMARY)
    except SpecError:
        return Rows(pa.table({}), 0, 0)


def cells(journal: Journal) -> dict[str, Mapping[str, Any]]:
    """Return the runs of a sweep with their settings. Returns an empty dict for a single run."""
    about = journal.about()
    runs = about.get("cells", [])
    # Older sweeps stored settings only in their cells.
    settings = about.get("settings") or [journal.sibling(run).about().get("setting") for run in runs]
    return {run: setting or {} for run, setting in zip(runs, settings, strict=True)}


def answer(journal: Journal, store: Store) -> Verdict | None:
    """Return the audit's verdict.

    Returns None if the summary is not stored yet, if the audit has no verdicts or is not installed, and for a sweep,
    whose cells have the answers. Raises EngramError if the audit does not declare the answer.
    """
    circumstances = _read_circumstances(journal)
    return _judge_run(
        journal, store, lambda registered, config, table: registered.audit.answer(config, table, circumstances)
    )


def headline(journal: Journal, store: Store) -> Headline | None:
    """Return the number that compares runs of the audit. Returns None if the summary lacks it, and for a sweep.

    If the audit is no longer installed, or its configuration has changed since the run, this is the first summary row.
    """
    about = journal.about()
    if "cells" in about:
        return None
    table = summary(journal, store).table
    if not table.num_rows:
        return None
    try:
        registered = audits.find(about["audit"])
        config = coerce(about["config"], registered.audit.config, "config")
    except EngramError:
        return undeclared_headline(table)
    return registered.audit.headline(config, table)


def certificate(journal: Journal, store: Store) -> Certificate | None:
    """Return the answer for readers without a machine-learning background, or None without a verdict."""

    def read_if_there(name: str) -> pa.Table:
        try:
            return read(journal, store, name).table
        except SpecError:
            return pa.table({})

    circumstances = _read_circumstances(journal)

    def certify(registered: RegisteredAudit, config: Any, table: pa.Table) -> Certificate | None:
        certificate = registered.audit.certify(registered.question, config, table, read_if_there, circumstances)
        if certificate is None:
            return None
        return add_rates(certificate, registered.name, config)

    return _judge_run(journal, store, certify)


def _read_circumstances(journal: Journal) -> Circumstances:
    """Return the circumstances recorded in the run's folder for its answer. Runs of earlier versions are supported."""
    about = journal.about()
    binding: Binding | None = about.get("binding")
    if binding is None:
        config = typed_config(about)
        if config is None:
            draw = None
        else:
            draw = draw_of(about["audit"], config)
        binding = ""
        if draw is not None and draw.nonce:
            binding = "draw"
    return Circumstances(binding, read_look(about))


def _judge_run(journal: Journal, store: Store, judge: Callable[[RegisteredAudit, Any, pa.Table], T | None]) -> T | None:
    """Apply `judge` to the audit, configuration and summary of a run. Returns None without a verdict or summary."""
    about = journal.about()
    if "cells" in about:
        registered = None
    else:
        registered = audits.find_installed(about["audit"])
    if registered is None or registered.audit.verdict is None:
        return None
    table = summary(journal, store).table
    if not table.num_rows:
        return None
    try:
        return judge(registered, coerce(about["config"], registered.audit.config, "config"), table)
    except UndeclaredAnswer as error:
        raise EngramError(f"{about['audit']}: {error}") from None


def short_answer(journal: Journal, store: Store) -> str:
    """Return the answer of a run or search in one or two words.

    For a sweep, returns the number of cells per answer. Returns an empty string if there is no answer.
    """
    if search_results.is_search(journal.about()):
        recommendation = search_results.read_search(journal).answer
        if recommendation is None:
            return ""
        return recommendation.answer
    answer_counts: Counter[str] = Counter()
    for cell in cells(journal):
        with suppress(EngramError):
            verdict = answer(journal.sibling(cell), store)
            answer_counts.update([] if verdict is None else [verdict.answer])
    if answer_counts:
        return ", ".join(f"{count} {word}" for word, count in answer_counts.most_common())
    with suppress(EngramError):
        verdict = answer(journal, store)
        return "" if verdict is None else verdict.answer
    return ""


def write(table: pa.Table, out: str | Path) -> None:
    """Write the table atomically in the format given by the file suffix: .parquet, .csv or .arrow."""
    try:
        path = expand_home(str(out))
    except FileError as error:
        raise SpecError(f"--out {error}") from None
    writer = WRITERS.get(path.suffix)
    if writer is None:
        raise SpecError(f"--out {out}: a file must end in one of {', '.join(WRITERS)}")
    try:
        with atomic_write.put_in_place(path) as draft:
            writer(table, draft)
    except OSError as error:
        raise EngramError(f"cannot write {path}: {os.strerror(error.errno) if error.errno else error}") from None


def _rows(journal: Journal, store: Store, name: str) -> Rows:
    roots = status.roots(journal)
    if name not in roots:
        raise SpecError(
            f"run {journal.run} has no table {name!r}; it has {', '.join(roots) or 'none'}{nearest(name, roots)}"
        )
    existing_keys = stored_keys(store)
    available_keys = [key for key in roots[name] if key in existing_keys]
    rows = tables.read(store, available_keys)
    return Rows(pa.table({}) if rows is None else rows, len(roots[name]), len(roots[name]) - len(available_keys))


def _trials(search: SearchResults, name: str) -> Rows:
    """Return the trials of a search, or those on its front, with the name of the search as the first column."""
    rows = search.table(name)
    table = rows.add_column(0, search_results.SEARCH, tables.column([search.name] * rows.num_rows))
    return Rows(table, search.planned, max(0, search.planned - search.made))


def _prepend_columns(table: pa.Table, values: dict[str, Any]) -> pa.Table:
    """Prepend columns for these fields to the table. Each has the same value in every row."""
    for index, (name, value) in enumerate(values.items()):
        table = table.add_column(index, tables.cell_column(name, table), pa.array([value] * table.num_rows))
    return table


def _parquet(table: pa.Table, path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(table, path)


def _csv(table: pa.Table, path: Path) -> None:
    """Write CSV, with nested columns as JSON and with text that no spreadsheet evaluates."""
    from pyarrow import csv

    for index, field in enumerate(table.schema):
        if pa.types.is_nested(field.type):
            texts = []
            for value in table[field.name].to_pylist():
                texts.append(None if value is None else json.dumps(jsonable(value)))
            table = table.set_column(index, field.name, pa.array(texts, pa.string()))
        elif pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            texts = []
            for text in table[field.name].to_pylist():
                texts.append(None if text is None else inert(text))
            table = table.set_column(index, field.name, pa.array(texts, field.type))
    csv.write_csv(table, path)


def _arrow(table: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {".parquet": _parquet, ".csv": _csv, ".arrow": _arrow}
