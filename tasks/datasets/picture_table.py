"""Image tables in CSV or Parquet, with one row per image and columns for path, label and more.

Cells become text: 1.0 becomes 1, and a missing value becomes empty. CSV may be in any form that spreadsheets save
(`tasks.worker.delimited_text`). Column names are matched case-insensitively.

A list of images has the columns path, label and, optionally, split (`tasks.datasets.splits`). Paths are relative to the
file. Labels are text or numbers (`tasks.datasets.classes`). Without a split column, the first, sixth, eleventh, ...
rows of each class form the test split.
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
LIST = "list of images"
NAMED = ("path", "label")  # required in every row


@dataclass(frozen=True)
class Columns:
    """The required columns of a table, without repetitions, and an optional column. Other columns are ignored.

    `kind` is what error messages call the table.
    """

    kind: str
    required: tuple[str, ...]
    optional: str

    @property
    def known(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.required, self.optional)))


@dataclass(frozen=True)
class Cells:
    """The cells of a row as text, by column. `where` is the row's position, for error messages."""

    where: str
    text: Mapping[str, str]


@dataclass(frozen=True)
class Table:
    """The rows of a table, and the names that its metadata declares for numeric labels."""

    rows: list[Cells]
    declared: tuple[str, ...] = ()

    def number_labels(self, file: Path, labels: Sequence[str] | None = None) -> Classes:
        """Number the classes of these labels, or of all rows. Raises DatasetError if a declared class is missing."""
        try:
            return number_classes([row.text["label"] for row in self.rows] if labels is None else labels, self.declared)
        except LabelError as error:
            raise DatasetError(f"{file} {error}") from None


def read_table(file: Path, columns: Columns) -> Table:
    """Read the table in a file.

    Raises DatasetError if the file has no rows, or if a row has no path or label.
    """
    if file.suffix.lower() not in SUFFIXES:
        raise DatasetError(f"{file} is not a {columns.kind}; it must end in {' or '.join(SUFFIXES)}")
    if file.suffix.lower() == ".parquet":
        table = from_parquet(file, columns)
    else:
        table = Table(list(_from_csv(file, columns)))
    if not table.rows:
        raise DatasetError(f"{file} has no rows")
    for row in table.rows:
        for name in NAMED:
            if not row.text[name]:
                raise DatasetError(f"{row.where} has no {name}")
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
        original_names = dict(zip(header, schema.names, strict=True))  # as spelled in the file
        names = [name for name in columns.known if name in header]
        table = read_parquet(file, columns=[original_names[name] for name in names])
    except (OSError, pa.ArrowException, TooLarge) as error:
        raise DatasetError(f"{file} cannot be read: {' '.join(str(error).split())}") from None
    declared = declared_names(schema.metadata, original_names["label"])
    values = [column_values(table.column(original_names[name])) for name in names]
    rows = []
    for number, cells in enumerate(zip(*values, strict=True)):
        where = f"{file}, row {number}"
        rows.append(Cells(where, _read_row(where, dict(zip(names, cells, strict=True)), declared)))
    return Table(rows, declared)


def _read_row(where: str, cells: Mapping[str, Any], declared: Sequence[str]) -> dict[str, str]:
    """Return the cells of a row as text. `declared` holds the names of numeric labels."""
    row = {}
    for column, cell in cells.items():
        try:
            row[column] = name_label(cell, declared if column == "label" else ())
        except LabelError as error:
            raise DatasetError(f"{where}: {column} {error}") from None
    return row


def _check_columns(file: Path, header: Sequence[str], columns: Columns) -> None:
    if any(header.count(name) != 1 for name in columns.required) or header.count(columns.optional) > 1:
        have = ", ".join(header) or "none"
        required_names = ", ".join(dict.fromkeys(columns.required))
        separated = ""
        if len(header) == 1:
            separated = ", separated by commas, semicolons or tabs"
        of_features = ""
        if columns.kind == LIST:
            of_features = f". A table of features needs its label column: table:{file.name}#label=COLUMN"
        raise DatasetError(
            f"{file} has the columns {have}; it must have {required_names} and, optionally, {columns.optional}, each "
            f"once{separated}{of_features}"
        )


LIST_COLUMNS = Columns(LIST, NAMED, "split")


def list_source(file: Path, options: Options = AS_THEY_ARE) -> Source:
    """Return the listed images. Raises DatasetError, naming the row, if a row is invalid."""
    selected = options.selection
    columns = LIST_COLUMNS
    if selected is not None:
        columns = replace(columns, required=(*columns.required, selected.column))
    table = read_table(file, columns)
    splits, notes = _read_splits(table.rows)
    if splits is None:
        rows = table.rows
    else:
        rows = [row for row, split in zip(table.rows, splits, strict=True) if split]
    rows_by_path: dict[Path, str] = {}
    for row in rows:
        listed_path = row.text["path"]
        path = file.parent / listed_path
        if path in rows_by_path:
            raise DatasetError(f"{row.where} repeats {listed_path} from {rows_by_path[path]}; list each image once")
        if not path.is_file():
            raise DatasetError(f"{row.where} names {listed_path}, but there is no file {path}")
        rows_by_path[path] = row.where
    classes = table.number_labels(file, [row.text["label"] for row in rows])
    numbers = classes.labels.tolist()
    if splits is None:
        spread_splits = spread(numbers)
    else:
        spread_splits = (split for split in splits if split)
    entries = [
        Labelled(path, number, split, is_drawn=splits is None)
        for path, number, split in zip(rows_by_path, numbers, spread_splits, strict=True)
    ]
    if selected is not None:
        entries = select_entries(
            entries, selected, [(row.where, row.text[selected.column]) for row in rows], file, classes.names
        )
    check_classes(entries, classes.names, file)
    return labelled_source(entries, classes.names, options, also=(file,), notes=notes)


def _read_splits(rows: Sequence[Cells]) -> tuple[list[Split | None] | None, tuple[str, ...]]:
    """Return each row's split (None: not read), and notes about rows that are not read.

    The splits are None if there is no split column.
    """
    if "split" not in rows[0].text:
        return None, ()
    split_names = []
    for row in rows:
        name = split_called(row.text["split"])
        if name is None:
            raise DatasetError(f"{row.where}: split is {row.text['split']!r:.80}; it must be {ALLOWED}")
        split_names.append(name)
    read_as = choose_splits(split_names)
    splits = [read_as.get(name) for name in split_names]
    unread = splits.count(None)
    return splits, (unread_note(unread),) if unread else ()
