"""Tables that name pictures: CSV or Parquet, a row for each, with a path, a label and further columns.

Cells are read as text, whatever the file holds: numbers without a fraction as whole ones, nothing as nothing.

A list of pictures has the columns path, label and, if wished, split (train or test). Paths are relative to the file.
Labels are text or whole numbers; the classes are the different ones, sorted, as numbers where all are numbers. Without
a column split, of every class's rows the first, the sixth, the eleventh ... are the test split.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.datasets.dataset import DatasetError, unreadable
from tasks.datasets.labelled import Labelled, Split, check_classes, labelled_source, spread
from tasks.datasets.options import AS_THEY_ARE, Options
from tasks.datasets.source import Source
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


@dataclass(frozen=True)
class Cells:
    """A row's cells as text by column; `at` says where it stands."""

    at: str
    text: Mapping[str, str]


def read_cells(file: Path, columns: Columns) -> list[Cells]:
    """The rows; a DatasetError naming the one that is not as it should be, or where there is none."""
    if file.suffix.lower() not in SUFFIXES:
        raise DatasetError(f"{file} is no {columns.what}; it must end in {' or '.join(SUFFIXES)}")
    rows = list(from_csv(file, columns) if file.suffix.lower() == ".csv" else from_parquet(file, columns))
    if not rows:
        raise DatasetError(f"{file} has no rows")
    for row in rows:
        for name in NAMED:
            if not row.text[name]:
                raise DatasetError(f"{row.at} has no {name}")
    return rows


def class_names(labels: Iterable[str]) -> list[str]:
    """The different labels, sorted; as numbers where all are numbers."""
    different = set(labels)
    numbers = all(label.removeprefix("-").isdecimal() for label in different)
    return sorted(different, key=(lambda label: (int(label), label)) if numbers else None)


def from_csv(file: Path, columns: Columns) -> Iterator[Cells]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.reader(lines, strict=True)
            header = [name.strip() for name in next(reader, [])]
            check_columns(file, header, columns)
            for values in reader:
                if not values:  # an empty line
                    continue
                at = f"{file}, line {reader.line_num}"
                if len(values) != len(header):
                    raise DatasetError(f"{at} has {len(values)} values; it must have {len(header)}")
                yield Cells(at, {name: value.strip() for name, value in zip(header, values, strict=True)})
    except OSError as error:
        raise unreadable(file, error) from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise DatasetError(f"{file} is no CSV file in UTF-8: {error}") from None


def from_parquet(file: Path, columns: Columns) -> Iterator[Cells]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        header = pq.read_schema(file).names
        check_columns(file, header, columns)
        table = read_parquet(file, columns=[name for name in (*columns.needed, columns.optional) if name in header])
    except (OSError, pa.ArrowException, TooLarge) as error:
        raise DatasetError(f"{file} cannot be read: {' '.join(str(error).split())}") from None
    number = 0
    for batch in table.to_batches(max_chunksize=1024):
        for cells in batch.to_pylist():
            at = f"{file}, row {number}"
            yield Cells(at, {name: cell_text(at, name, value) for name, value in cells.items()})
            number += 1


def check_columns(file: Path, header: Sequence[str], columns: Columns) -> None:
    if any(header.count(name) != 1 for name in columns.needed) or header.count(columns.optional) > 1:
        have, needed = ", ".join(header) or "none", ", ".join(columns.needed)
        raise DatasetError(
            f"{file} has the columns {have}; it must have {needed} and, if wished, {columns.optional}, each once"
        )


def cell_text(at: str, name: str, value: Any) -> str:
    """A cell as text; DatasetError for what is neither text nor a whole number."""
    if isinstance(value, str | bool | int):
        return str(value).strip()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if value is None:
        return ""
    raise DatasetError(f"{at}: {name} is {value!r}; it must be text or a whole number")


LIST_COLUMNS = Columns("list of pictures", NAMED, "split")


def list_source(file: Path, options: Options = AS_THEY_ARE) -> Source:
    """The pictures it lists; a DatasetError naming the row that is not as it should be."""
    rows = read_cells(file, LIST_COLUMNS)
    names = class_names(row.text["label"] for row in rows)
    labels = {name: index for index, name in enumerate(names)}
    met: dict[Path, str] = {}
    for row in rows:
        named = row.text["path"]
        path = file.parent / named
        if path in met:
            raise DatasetError(f"{row.at} names {named} again, after {met[path]}; a picture must be listed once")
        if not path.is_file():
            raise DatasetError(f"{row.at} names {named}, but there is no file {path}")
        met[path] = row.at
    numbers = [labels[row.text["label"]] for row in rows]
    splits = list(read_splits(rows) if "split" in rows[0].text else spread(numbers))
    entries = [Labelled(path, number, split) for path, number, split in zip(met, numbers, splits, strict=True)]
    check_classes(entries, names, file)
    return labelled_source(entries, tuple(names), options, also=(file,))


def read_splits(rows: list[Cells]) -> Iterator[Split]:
    for row in rows:
        split = row.text["split"]
        if split == "train":
            yield "train"
        elif split == "test":
            yield "test"
        else:
            raise DatasetError(f"{row.at}: split is {split!r}; it must be train or test")
