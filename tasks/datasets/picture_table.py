"""Tables that name images: CSV or Parquet, a row for each, with a path, a label and further columns.

Cells become text: 1.0 becomes 1, and a missing value becomes empty. CSV is what spreadsheets save
(`tasks.worker.delimited_text`). Names of columns are matched without regard to case.

A list of images has the columns path, label and, if wished, split (`tasks.datasets.splits`). Paths are relative to
the file. Labels are text or numbers (`tasks.datasets.classes`). Without a column split, of every class's rows the
first, the sixth, the eleventh ... are the test split.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tasks.datasets.classes import Classes, LabelError, column_values, declared_names, name_label, number_classes
from tasks.datasets.dataset import DatasetError, file_bytes
from tasks.datasets.labelled import Labelled, check_classes, labelled_source, select_entries
from tasks.datasets.options import AS_THEY_ARE, Options
from tasks.datasets.source import Source
from tasks.datasets.splits import ALLOWED, Split, choose_splits, split_called, spread, unread_note
from tasks.worker.delimited_text import DelimitedTextError, match_names, read_delimited
from tasks.worker.size_limits import TooLarge, read_parquet

SUFFIXES = (".csv", ".parquet")
NAMED = ("path", "label")  # what every row must have


@dataclass(frozen=True)
class Columns:
    """The columns that a table must have, once each, and one that it may have; others are passed over.

    `what` is the table's name in an error message.
    """

    what: str
    needed: tuple[str, ...]
    optional: str

    @property
    def known(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.needed, self.optional)))


@dataclass(frozen=True)
class Cells:
    """A row's cells as text by column; `at` says where it stands."""

    at: str
    text: Mapping[str, str]


@dataclass(frozen=True)
class Table:
    """The rows of a table, and the names that its metadata declare for labels that are numbers."""

    rows: list[Cells]
    declared: tuple[str, ...] = ()

    def number_labels(self, file: Path, labels: Sequence[str] | None = None) -> Classes:
        """The classes of these labels, or of all rows; DatasetError for a declared class that does not occur."""
        try:
            return number_classes([row.text["label"] for row in self.rows] if labels is None else labels, self.declared)
        except LabelError as error:
            raise DatasetError(f"{file} {error}") from None


def read_table(file: Path, columns: Columns) -> Table:
    """The table in a file. Raises DatasetError for a file without rows, and for a row that lacks a path or a label."""
    if file.suffix.lower() not in SUFFIXES:
        raise DatasetError(f"{file} is no {columns.what}; it must end in {' or '.join(SUFFIXES)}")
    table = from_parquet(file, columns) if file.suffix.lower() == ".parquet" else Table(list(_from_csv(file, columns)))
    if not table.rows:
        raise DatasetError(f"{file} has no rows")
    for row in table.rows:
        for name in NAMED:
            if not row.text[name]:
                raise DatasetError(f"{row.at} has no {name}")
    return table


def _from_csv(file: Path, columns: Columns) -> Iterator[Cells]:
    try:
        text = read_delimited(file_bytes(file), columns.known)
        _check_columns(file, text.header, columns)
        for line, cells in text.rows():
            yield Cells(f"{file}, line {line}", dict(zip(text.header, cells, strict=True)))
    except DelimitedTextError as error:
        raise DatasetError(error.describe(file)) from None


def from_parquet(file: Path, columns: Columns) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(file)
        header = match_names(schema.names, columns.known)
        _check_columns(file, header, columns)
        original_names = dict(zip(header, schema.names, strict=True))  # as the file writes it
        names = [name for name in columns.known if name in header]
        table = read_parquet(file, columns=[original_names[name] for name in names])
    except (OSError, pa.ArrowException, TooLarge) as error:
        raise DatasetError(f"{file} cannot be read: {' '.join(str(error).split())}") from None
    declared = declared_names(schema.metadata, original_names["label"])
    values = [column_values(table.column(original_names[name])) for name in names]
    rows = []
    for number, cells in enumerate(zip(*values, strict=True)):
        at = f"{file}, row {number}"
        rows.append(Cells(at, _read_row(at, dict(zip(names, cells, strict=True)), declared)))
    return Table(rows, declared)


def _read_row(at: str, cells: Mapping[str, Any], declared: Sequence[str]) -> dict[str, str]:
    """The cells of a row as text; `declared` are the names of labels that are numbers."""
    row = {}
    for column, cell in cells.items():
        try:
            row[column] = name_label(cell, declared if column == "label" else ())
        except LabelError as error:
            raise DatasetError(f"{at}: {column} {error}") from None
    return row


def _check_columns(file: Path, header: Sequence[str], columns: Columns) -> None:
    if any(header.count(name) != 1 for name in columns.needed) or header.count(columns.optional) > 1:
        have, needed = ", ".join(header) or "none", ", ".join(dict.fromkeys(columns.needed))
        separated = ", separated by commas, semicolons or tabs" if len(header) == 1 else ""
        raise DatasetError(
            f"{file} has the columns {have}; it must have {needed} and, if wished, {columns.optional}, each once"
            f"{separated}"
        )


LIST_COLUMNS = Columns("list of pictures", NAMED, "split")


def list_source(file: Path, options: Options = AS_THEY_ARE) -> Source:
    """The images it lists; a DatasetError naming the row that is not as it should be."""
    selected = options.selection
    columns = LIST_COLUMNS
    if selected is not None:
        columns = replace(columns, needed=(*columns.needed, selected.column))
    table = read_table(file, columns)
    splits, notes = _read_splits(table.rows)
    rows = table.rows if splits is None else [row for row, split in zip(table.rows, splits, strict=True) if split]
    met: dict[Path, str] = {}
    for row in rows:
        listed_path = row.text["path"]
        path = file.parent / listed_path
        if path in met:
            raise DatasetError(f"{row.at} names {listed_path} again, after {met[path]}; a picture must be listed once")
        if not path.is_file():
            raise DatasetError(f"{row.at} names {listed_path}, but there is no file {path}")
        met[path] = row.at
    classes = table.number_labels(file, [row.text["label"] for row in rows])
    numbers = classes.labels.tolist()
    spread_splits = spread(numbers) if splits is None else (split for split in splits if split)
    entries = [
        Labelled(path, number, split, is_drawn=splits is None)
        for path, number, split in zip(met, numbers, spread_splits, strict=True)
    ]
    if selected is not None:
        entries = select_entries(
            entries, selected, [(row.at, row.text[selected.column]) for row in rows], file, classes.names
        )
    check_classes(entries, classes.names, file)
    return labelled_source(entries, classes.names, options, also=(file,), notes=notes)


def _read_splits(rows: Sequence[Cells]) -> tuple[list[Split | None] | None, tuple[str, ...]]:
    """The split of each row, None for one that is not read, and a note about those; None without a column split."""
    if "split" not in rows[0].text:
        return None, ()
    split_names = []
    for row in rows:
        name = split_called(row.text["split"])
        if name is None:
            raise DatasetError(f"{row.at}: split is {row.text['split']!r:.80}; it must be {ALLOWED}")
        split_names.append(name)
    read_as = choose_splits(split_names)
    splits = [read_as.get(name) for name in split_names]
    unread = splits.count(None)
    return splits, (unread_note(unread),) if unread else ()
