"""A CSV or Parquet table returned by a model's owner: the ids of its rows, and its numbers.

An encoder's owner returns embeddings as Parquet, with the columns `image` (the ids from `tasks.external.handout`) and
`embedding`, a list of numbers with the same length in every row. Other columns are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tasks.worker.confined import check_file_size, read_table
from tasks.worker.delimited_text import DelimitedTextError, is_row_number, match_names, read_delimited
from tasks.worker.files import File, check_regular, expand_home, pin, unreadable
from tasks.worker.files import read as bytes_of
from tasks.worker.size_limits import TooLarge, most_bytes, unpack_parquet

IMAGE = "image"
# Columns that owners are asked for. Capital letters in these names are accepted.
KNOWN = re.compile(
    r"image|id|label|set|row|predicted|loss|confidence|log_confidence|log_p|(?:p|logit|logp)\d+"
    r"|probabilities|logits|log_probabilities|embedding"
)
SMALL = 50 * 10**6  # bytes; larger CSV files are not parsed in this process
TIMES = 6  # memory of a table relative to its file: its bytes, its text twice, its columns and their numbers
NUMBER = r"^[+-]?\d*\.?(?P<fraction>\d*)(?:[eE](?P<exponent>[+-]?\d{1,9}))?$"


@dataclass(frozen=True, eq=False)
class Sent:
    """A table with the ids of its rows. Every error message about it begins with `name`."""

    name: str
    table: pa.Table
    ids: tuple[str, ...]
    id_column: str = IMAGE  # column with the ids

    @property
    def columns(self) -> list[str]:
        """The names of all columns except the ids."""
        return [column for column in self.table.column_names if column != self.id_column]

    def column(self, name: str) -> pa.ChunkedArray:
        return self.table.column(name)

    def numbers(self, column: str) -> NDArray[np.float64]:
        """Return the numbers in a column (rows,), which may be NaN. Raises ValueError for missing values and text."""
        return _numbers(self.name, self.ids, column, self.column(column))

    def rows(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """Return the rows with these ids. Raises ValueError if an id is missing."""
        missing_ids = [image for image in ids if image not in self._places]
        if missing_ids:
            check_sets(self.name, self.ids, ids)
            raise ValueError(
                f"{self.name} has no row for {missing_ids[0]!r}; {len(missing_ids)} of {len(ids)} are missing"
            )
        return np.array([self._places[image] for image in ids], np.int64)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.ids)}


HANDED_OUT = re.compile(r"([a-z]+-[0-9a-f]{8})[/-].+", re.DOTALL)  # an exported id, which includes the set's name
SHOWN = 3  # sets listed in a message


def check_sets(name: str, answered_ids: Iterable[str], exported_ids: Iterable[str]) -> None:
    """Raise ValueError if the table answers other sets of the same kind instead of the exported ones."""
    answered = _set_names(answered_ids)
    generated = _set_names(exported_ids)
    absent = [set_name for set_name in generated if set_name not in answered]
    kinds = {_set_kind(set_name) for set_name in absent}
    foreign = []
    for set_name in answered:
        if set_name not in generated and _set_kind(set_name) in kinds:
            foreign.append(set_name)
    if foreign:
        raise ValueError(
            f"{name} answers {', '.join(foreign[:SHOWN])}, but these settings and this secret generate "
            f"{', '.join(absent[:SHOWN])}; data, seed, secret and the other settings must be the same as for engram "
            "probes"
        )


def _set_kind(name: str) -> str:
    """Return the kind of a set, such as `pictures`."""
    return name.rpartition("-")[0]


def _set_names(ids: Iterable[str]) -> list[str]:
    """Return the sets that occur in ids, such as `pictures-cf19f686`, in order."""
    matches = (HANDED_OUT.fullmatch(image) for image in ids)
    return list(dict.fromkeys(match[1] for match in matches if match))


def read_sent(file: File, label: str = "outputs", id_column: str = IMAGE) -> Sent:
    """Read a table from a `.csv` or `.parquet` file. CSV columns are text, which preserves the printed digits.

    `label` describes the content in error messages, and `id_column` is the column with the ids. Raises ValueError if
    the file cannot be read, or if a row has no id or a repeated one.
    """
    suffix = PurePath(file.path).suffix.lower()
    path = expand_home(file.path)
    try:
        size = check_regular(path).st_size
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    if suffix not in (".csv", ".parquet"):
        raise ValueError(f"{label} are {file.path}; expected a .csv or a .parquet file")
    name = f"{label} {file.path}"
    if suffix == ".csv" and size <= SMALL:  # text takes a few times its size in memory
        table = _csv(name, bytes_of(file))
    else:
        try:
            check_file_size(size, TIMES)
            request = {"path": str(path), "digest": file.digest, "name": name, "byte_limit": most_bytes(size)}
            table = read_table("tasks.external.sent_table:parse", **request)
        except TooLarge as error:
            raise ValueError(f"{name} cannot be read: {error}") from None
    if id_column not in table.column_names:
        raise ValueError(f"{name} has no column {id_column}; found {', '.join(table.column_names)}")
    return Sent(name, table, _ids(name, table.column(id_column), id_column), id_column)


def decimals(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return the number of decimal places of each number: as printed for text, or the fewest that determine a float.

    0.50 has two, 1.2e-05 has six, and the float 0.1 has one. Lists are flattened. Other values have none.
    """
    import pyarrow.compute as pc

    if is_list(column.type):
        column = pc.list_flatten(column)
    parts = pc.fill_null(pc.extract_regex(pc.cast(bare(column), pa.string()), NUMBER), {"fraction": "", "exponent": ""})
    digits = pc.utf8_length(pc.struct_field(parts, "fraction"))
    exponent = pc.utf8_ltrim(pc.struct_field(parts, "exponent"), "+")
    shift = pc.cast(pc.if_else(pc.equal(exponent, ""), "0", exponent), pa.int64())
    return np.maximum(np.asarray(digits, np.int64) - np.asarray(shift, np.int64), 0)


def is_text(column: pa.ChunkedArray) -> bool:
    """Return whether a column's numbers are text, so that they may have been rounded."""
    return bool(pa.types.is_string(column.type))


def has_exponents(column: pa.ChunkedArray) -> bool:
    """Return whether a column is text that contains exponents, such as 1e-7."""
    import pyarrow.compute as pc

    return is_text(column) and bool(pc.any(pc.match_substring(pc.utf8_lower(column), "e")).as_py())


def is_list(kind: pa.DataType) -> bool:
    return any(is_kind(kind) for is_kind in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))


def bare(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Strip spaces in a text column. Other columns are returned unchanged."""
    import pyarrow.compute as pc

    return pc.utf8_trim_whitespace(column) if is_text(column) else column


def _csv(name: str, content: bytes) -> pa.Table:
    """Read every column as text, which preserves decimals and leading zeros in ids."""
    try:
        text = read_delimited(content, (), KNOWN)
        _check_unique(name, [column for column in text.header if not is_row_number(column)])
        return text.table()
    except DelimitedTextError as error:
        raise ValueError(error.describe(name)) from None


def parse(path: str, digest: str, name: str, byte_limit: int) -> pa.Table:
    """Read a table and check its digest. Runs in the child process of `tasks.worker.confined`."""
    file = File(path, digest)
    if PurePath(path).suffix.lower() == ".csv":
        return _csv(name, bytes_of(file))
    if digest:
        pin(file)
    try:
        table = unpack_parquet(path, None, byte_limit)
    except (pa.ArrowException, OSError, TooLarge) as error:
        raise ValueError(f"{name} cannot be read: {' '.join(str(error).split())}") from None
    table = table.select([index for index, column in enumerate(table.column_names) if not is_row_number(column)])
    table = table.rename_columns(spell_columns(table.column_names))
    _check_unique(name, table.column_names)
    return table


def spell_columns(names: Iterable[str]) -> list[str]:
    """Return column names with known names in lower case, for every way in which a table is read."""
    return list(match_names(names, (), KNOWN))


def _check_unique(name: str, header: Sequence[str]) -> None:
    repeated_columns = [column for column in header if header.count(column) > 1]
    if repeated_columns:
        raise ValueError(f"{name} has two columns {repeated_columns[0]!r}")


def _ids(name: str, column: pa.ChunkedArray, id_column: str) -> tuple[str, ...]:
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise ValueError(f"{name} has {column.type} in its column {id_column}; expected text")
    ids: list[str | None] = column.to_pylist()
    if not ids:
        raise ValueError(f"{name} has no rows")
    if None in ids:
        raise ValueError(f"{name} has no {id_column} in row {ids.index(None)}; {ids.count(None)} rows have none")
    earlier_ids: set[str | None] = set()
    repeated_ids = [image for image in ids if image in earlier_ids or earlier_ids.add(image)]  # type: ignore[func-returns-value]
    if repeated_ids:
        raise ValueError(f"{name} has more than one row for {repeated_ids[0]!r}; {len(repeated_ids)} rows repeat an id")
    return tuple(str(image) for image in ids)


def _numbers(name: str, ids: Sequence[str], label: str, column: pa.ChunkedArray) -> NDArray[np.float64]:
    import pyarrow.compute as pc

    try:
        values = np.array(pc.cast(bare(column), pa.float64()).to_numpy(), np.float64)
    except pa.ArrowException:
        invalid_rows = []
        for row, value in enumerate(column.to_pylist()):
            if value is not None and not _is_number(value):
                invalid_rows.append(row)
        if invalid_rows:
            first = column[invalid_rows[0]].as_py()
        else:
            first = column.type
        where = f" of image {ids[invalid_rows[0]]!r}" if invalid_rows else ""
        raise ValueError(
            f"{name}: {first!s}{where} in column {label} is not a number; {len(invalid_rows)} are not"
        ) from None
    missing_rows = np.flatnonzero(column.is_null().to_numpy())
    if len(missing_rows):
        raise ValueError(
            f"{name}: image {ids[missing_rows[0]]!r} has no value in column {label}; {len(missing_rows)} have none"
        )
    return values


def _is_number(text: object) -> bool:
    try:
        float(str(text))
    except ValueError:
        return False
    return True


EMBEDDING = "embedding"


@dataclass(frozen=True, eq=False)
class SentEmbeddings:
    """The embeddings in a table, (rows, d) float32, and the ids of its rows."""

    returned_table: Sent
    values: NDArray[np.float32]

    def select(self, images: Sequence[str]) -> NDArray[np.float32]:
        """Return the embeddings of these images, in this order. Raises ValueError if one is missing."""
        embeddings: NDArray[np.float32] = self.values[self.returned_table.rows(images)]
        return embeddings


def read_embeddings(file: File) -> SentEmbeddings:
    """Read a table of embeddings and check every row.

    Raises ValueError if the file cannot be read or lacks a column, if a row has no id or a repeated one, if embeddings
    have different lengths, or if numbers are missing or not finite in float32.
    """
    if PurePath(file.path).suffix.lower() != ".parquet":
        raise ValueError(f"embeddings are {file.path}; expected a .parquet file")
    returned_table = read_sent(file, "embeddings")
    if EMBEDDING not in returned_table.columns:
        columns = ", ".join(returned_table.columns) or "only image"
        raise ValueError(f"{returned_table.name} has no column {EMBEDDING}; found {columns}")
    return SentEmbeddings(returned_table, _embedding_values(returned_table, returned_table.column(EMBEDDING)))


def _embedding_values(returned_table: Sent, column: pa.ChunkedArray) -> NDArray[np.float32]:
    """Return the lists in a column as an array (n, d)."""
    kind = column.type
    number = kind.value_type if is_list(kind) else None
    if number is None or not (pa.types.is_floating(number) or pa.types.is_integer(number)):
        raise ValueError(f"{returned_table.name} has {kind} in its column {EMBEDDING}; expected lists of numbers")
    rows = column.cast(pa.large_list(number)).combine_chunks()  # offsets may exceed 32 bits
    lengths = pc.list_value_length(rows).to_numpy(zero_copy_only=False)
    if rows.null_count:
        first = returned_table.ids[int(np.argmax(np.isnan(lengths)))]
        raise ValueError(f"{returned_table.name}: image {first!r} has no embedding; {rows.null_count} have none")
    width = int(lengths[0])
    different_rows = np.flatnonzero(lengths != width)
    if len(different_rows) or not width:
        row = int(different_rows[0]) if len(different_rows) else 0
        raise ValueError(
            f"{returned_table.name}: the embedding of {returned_table.ids[row]!r} has {int(lengths[row])} numbers, but "
            f"that of {returned_table.ids[0]!r} has {width}; expected the same length of at least one for all"
        )
    with np.errstate(over="ignore"):
        # Missing numbers become NaN.
        flat = pc.cast(pc.list_flatten(rows), pa.float64() if pa.types.is_integer(number) else number)
        flat_values: NDArray[np.float32] = np.asarray(flat.to_numpy(zero_copy_only=False), np.float32)
    table = flat_values.reshape(len(rows), width)
    invalid_rows = np.flatnonzero(~np.isfinite(table).all(axis=1))
    if len(invalid_rows):
        raise ValueError(
            f"{returned_table.name}: the embedding of {returned_table.ids[invalid_rows[0]]!r} has a number that is "
            f"missing or not finite, as have {len(invalid_rows)} of {len(table)} embeddings"
        )
    return table
