"""Records other than images, such as questions with answers. Records are rows of fields, each with a unique id.

A record data set is a file in JSON Lines (one object per line) or Parquet. The reader declares the fields, for example
`catalog.load_records(dataset, pa.schema([("id", pa.string()), ("question", pa.string())]))`. Other fields are ignored.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.datasets.dataset import DatasetError, file_sha256, unreadable
from tasks.datasets.images import Images
from tasks.datasets.row_order import draw_group_order
from tasks.datasets.source import Source, digest_of
from tasks.worker.size_limits import TooLarge, read_parquet

RULE = "records 2"
ID = "id"
SUFFIXES = (".jsonl", ".parquet")


@dataclass(frozen=True, eq=False)
class Records:
    """A table with a column `id` of distinct texts.

    Other columns contain text, numbers, booleans, or lists and structs of these.
    """

    table: pa.Table

    def __post_init__(self) -> None:
        check_schema(self.table.schema)
        for field in self.table.schema:
            column = self.table[field.name]
            if column.null_count and (field.name == ID or not field.nullable):
                row = column.is_null().to_pylist().index(True)
                raise DatasetError(f"record {row} has no {field.name}")
        repeated = [name for name, count in Counter(self.ids).items() if count > 1]
        if repeated:
            raise DatasetError(f"several records have the id {repeated[0]!r}; ids must differ")

    @property
    def ids(self) -> list[str]:
        return list(self.table[ID].to_pylist())

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def rows(self, positions: NDArray[np.integer]) -> Records:
        """Select the records at these positions, in this order, without repeats."""
        return Records(self.table.take(pa.array(positions)))

    def as_dicts(self) -> Iterator[dict[str, Any]]:
        for batch in self.table.to_batches(max_chunksize=1024):
            yield from batch.to_pylist()


@dataclass(frozen=True)
class RecordFile:
    """The content of a data set: a record file, and the digest of its bytes."""

    path: Path
    sha256: str

    def digest(self) -> str:
        return digest_of(RULE, [self.path.suffix.lower().encode(), self.sha256.encode()])

    def images(self) -> Images:
        raise DatasetError(f"{self.path} contains records, not images")

    def records(self, schema: pa.Schema) -> Records:
        """Read the fields of the schema with its types. Rows are in random order (`tasks.datasets.row_order`).

        Raises DatasetError, naming the row, if the file has other types.
        """
        check_schema(schema)
        if self.path.suffix.lower() == ".parquet":
            table = from_parquet(self.path, schema)
        else:
            table = _from_lines(self.path, schema)
        if not table.num_rows:
            raise DatasetError(f"{self.path} has no records")
        try:
            records = Records(table)
        except DatasetError as error:
            raise DatasetError(f"{self.path}: {error}") from None
        return records.rows(np.array(draw_group_order(records.ids, "records")))


def source(path: Path) -> Source:
    """Return the file's records. Raises DatasetError for any other file type."""
    if path.suffix.lower() not in SUFFIXES:
        raise DatasetError(f"{path} is not a file of records; it must end in {' or '.join(SUFFIXES)}")
    return Source(RULE, (path,), lambda: RecordFile(path, file_sha256(path)))


def check_schema(schema: pa.Schema) -> None:
    """Raise DatasetError unless there is exactly one text field `id` and every field has a type that JSON supports."""
    if schema.names.count(ID) != 1 or not is_text(schema.field(ID).type):
        raise DatasetError(f"records have the fields {', '.join(schema.names) or 'none'}; expected a text field {ID}")
    for field in schema:
        if schema.names.count(field.name) > 1 or not _is_plain(field.type):
            raise DatasetError(
                f"the field {field.name} of records is {field.type}; expected each field once, with text, numbers, "
                "booleans, or lists and structs of these"
            )


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_plain(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _is_plain(kind.value_type)
    if pa.types.is_struct(kind):
        return all(_is_plain(field.type) for field in kind)
    return is_text(kind) or bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _from_lines(path: Path, schema: pa.Schema) -> pa.Table:
    numbers: list[int] = []
    rows: list[dict[str, Any]] = []
    try:
        with path.open(encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    numbers.append(number)
                    rows.append(_parse_record(path, number, line))
    except OSError as error:
        raise unreadable(path, error) from None
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path} is not text in UTF-8: {error}") from None
    return table_of(path, numbers, rows, schema)


def _parse_record(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise DatasetError(f"{path}, line {number} is not JSON: {error}") from None
    except RecursionError:
        raise DatasetError(f"{path}, line {number} is nested too deeply for a record") from None
    if not isinstance(row, dict):
        raise DatasetError(f'{path}, line {number} is not an object; write each record as {{"id": ..., ...}}')
    return row


def table_of(path: Path, numbers: Sequence[int], rows: Sequence[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    """Return the schema's fields of these rows. Raises DatasetError for the first line that does not fit."""
    lacking = next((number for number, row in zip(numbers, rows, strict=True) if row.get(ID) is None), None)
    if lacking is not None:
        raise DatasetError(f"{path}, line {lacking} has no {ID}")
    lists = [field for field in schema if pa.types.is_list(field.type) or pa.types.is_large_list(field.type)]
    for number, row in zip(numbers, rows, strict=True):
        for field in lists:
            if isinstance(row.get(field.name), str):  # Arrow would convert a string to a list of its characters
                raise _misfit(path, number, row, field)
    try:
        return pa.Table.from_pylist(list(rows), schema)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as problem:
        for number, row in zip(numbers, rows, strict=True):
            for field in schema:
                try:
                    pa.array([row.get(field.name)], field.type)
                except (pa.ArrowException, TypeError, ValueError, OverflowError):
                    raise _misfit(path, number, row, field) from None
        # Arrow accepts some values on their own that it rejects among others, such as [] for a struct.
        raise DatasetError(f"{path}: its records do not have the declared fields: {problem}") from None


def _misfit(path: Path, number: int, row: dict[str, Any], field: pa.Field) -> DatasetError:
    return DatasetError(f"{path}, line {number}: {field.name} is {row[field.name]!r:.80}; it must be {field.type}")


def from_parquet(path: Path, schema: pa.Schema) -> pa.Table:
    import pyarrow.parquet as pq

    try:
        existing_columns = pq.read_schema(path).names
        lacking = []
        for field in schema:
            if field.name not in existing_columns and (field.name == ID or not field.nullable):
                lacking.append(field.name)
        if lacking:
            raise DatasetError(f"{path} has the columns {', '.join(existing_columns)} and no {lacking[0]}")
        table = read_parquet(path, columns=[name for name in schema.names if name in existing_columns])
        columns = []
        for field in schema:
            columns.append(
                table[field.name].cast(field.type)
                if field.name in existing_columns
                else pa.nulls(table.num_rows, field.type)
            )
        return pa.table(columns, schema=schema)
    except (OSError, pa.ArrowException, TooLarge) as error:
        raise DatasetError(f"{path} cannot be read: {' '.join(str(error).split())}") from None
