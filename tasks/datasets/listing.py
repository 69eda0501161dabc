"""A list of pictures: a CSV or Parquet file with the columns path, label and, if wished, split (train or test).

Paths are relative to the file. Labels are text or whole numbers; the classes are the different ones, sorted, as numbers
where all are numbers. Without a column split, of every class's rows the first, the sixth, the eleventh ... are the test
split.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.datasets import labelled
from tasks.datasets.content import Source
from tasks.datasets.dataset import DatasetError
from tasks.datasets.labelled import Labelled, Split, check_classes, spread
from tasks.datasets.options import AS_THEY_ARE, Options

NEEDED = ("path", "label")
SUFFIXES = (".csv", ".parquet")


@dataclass(frozen=True)
class Row:
    """A row of the list as text; `at` says where it stands."""

    at: str
    path: str
    label: str
    split: str | None


def source(file: Path, options: Options = AS_THEY_ARE) -> Source:
    """The pictures it lists; a DatasetError naming the row that is not as it should be."""
    rows = read(file)
    names = sorted({row.label for row in rows}, key=by_number if all(map(is_number, rows)) else None)
    labels = {name: index for index, name in enumerate(names)}
    met: dict[Path, str] = {}
    for row in rows:
        path = file.parent / row.path
        if path in met:
            raise DatasetError(f"{row.at} names {row.path} again, after {met[path]}; a picture must be listed once")
        if not path.is_file():
            raise DatasetError(f"{row.at} names {row.path}, but there is no file {path}")
        met[path] = row.at
    splits = list(given(rows) if rows[0].split is not None else spread([labels[row.label] for row in rows]))
    entries = [Labelled(path, labels[row.label], split) for path, row, split in zip(met, rows, splits, strict=True)]
    check_classes(entries, names, file)
    return labelled.source(entries, tuple(names), options, also=(file,))


def by_number(label: str) -> tuple[int, str]:
    return int(label), label


def is_number(row: Row) -> bool:
    return row.label.removeprefix("-").isdecimal()


def given(rows: list[Row]) -> Iterator[Split]:
    for row in rows:
        if row.split == "train":
            yield "train"
        elif row.split == "test":
            yield "test"
        else:
            raise DatasetError(f"{row.at}: split is {row.split!r}; it must be train or test")


def read(file: Path) -> list[Row]:
    if file.suffix.lower() not in SUFFIXES:
        raise DatasetError(f"{file} is no list of pictures; it must end in {' or '.join(SUFFIXES)}")
    rows = list(from_csv(file) if file.suffix.lower() == ".csv" else from_parquet(file))
    if not rows:
        raise DatasetError(f"{file} has no rows")
    for row in rows:
        for name in NEEDED:
            if not getattr(row, name):
                raise DatasetError(f"{row.at} has no {name}")
    return rows


def from_csv(file: Path) -> Iterator[Row]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.reader(lines, strict=True)
            columns = [name.strip() for name in next(reader, [])]
            check_columns(file, columns)
            for values in reader:
                if not values:  # an empty line
                    continue
                at = f"{file}, line {reader.line_num}"
                if len(values) != len(columns):
                    raise DatasetError(f"{at} has {len(values)} values; it must have {len(columns)}")
                cells = {name: value.strip() for name, value in zip(columns, values, strict=True)}
                yield Row(at, cells["path"], cells["label"], cells.get("split"))
    except OSError as error:
        raise DatasetError(f"{file} cannot be read: {error.strerror or error}") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise DatasetError(f"{file} is no CSV file in UTF-8: {error}") from None


def from_parquet(file: Path) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(file)
        check_columns(file, schema.names)
        table = pq.read_table(file, columns=[name for name in (*NEEDED, "split") if name in schema.names])
    except (OSError, pa.ArrowException) as error:
        raise DatasetError(f"{file} cannot be read: {' '.join(str(error).split())}") from None
    for number, cells in enumerate(table.to_pylist()):
        at = f"{file}, row {number}"
        split = text(at, "split", cells["split"]) if "split" in cells else None
        yield Row(at, text(at, "path", cells["path"]), text(at, "label", cells["label"]), split)


def check_columns(file: Path, columns: list[str]) -> None:
    if any(columns.count(name) != 1 for name in NEEDED) or columns.count("split") > 1:
        have = ", ".join(columns) or "none"
        raise DatasetError(f"{file} has the columns {have}; it must have path, label and, if wished, split, each once")


def text(at: str, name: str, value: Any) -> str:
    """A cell as text: numbers without a fraction as whole ones, nothing as nothing."""
    if isinstance(value, str | bool | int):
        return str(value).strip()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if value is None:
        return ""
    raise DatasetError(f"{at}: {name} is {value!r}; it must be text or a whole number")
